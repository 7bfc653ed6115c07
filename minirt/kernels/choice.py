"""Which kernels a process uses: numpy's, until a job that deals or groups columns by key chooses."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from minirt.errors import ConfigurationError
from minirt.kernels import on_numpy
from minirt.kernels.contract import Kernels

logger = logging.getLogger("minirt.kernels")

AUTO = "auto"

IMPLEMENTATIONS = {"numba": "minirt.kernels.compiled", "numpy": "minirt.kernels.on_numpy"}
"""The module of each, by the package that it needs; the fastest first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a process uses, and in words why nothing faster; "" if there is nothing faster."""

    name: str
    kernels: Kernels
    reason: str = ""

    def __str__(self) -> str:
        found = f"{self.name} {import_module(self.name).__version__}"
        return found + (f" ({self.reason})" if self.reason else "")


_chosen = Choice("numpy", on_numpy)


def kernels() -> Kernels:
    """Those of this process."""
    return _chosen.kernels


def chosen() -> Choice:
    """What this process uses, and why."""
    return _chosen


def choose_kernels(wanted: str) -> Choice:
    """Have this process use the kernels of one package from now on, or with "auto" the fastest there are.

    To load those of numba takes half a second, and seconds where its cache does not have them yet. Raises
    ConfigurationError if those that were asked for cannot be had.
    """
    global _chosen
    _chosen = _load(wanted)
    return _chosen


def _load(wanted: str) -> Choice:
    reasons = []
    for name in IMPLEMENTATIONS if wanted == AUTO else (wanted,):
        try:
            module = import_module(IMPLEMENTATIONS[name])
        except (ImportError, RuntimeError) as error:
            reasons.append(f"no {name}: {error}")
            if wanted == AUTO and find_spec(name) is not None:  # It was installed to be used.
                logger.warning("%s is installed, but its kernels cannot be used: %s", name, error)
        else:
            return Choice(name, cast("Kernels", module), "; ".join(reasons))
    raise ConfigurationError(
        f"options.kernels is \"{wanted}\", but {'; '.join(reasons)}; pip install 'minirt[fast]' installs "
        'numba, NUMBA_CACHE_DIR names a folder for what it compiles, and "auto" takes what there is'
    )
