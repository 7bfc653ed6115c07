"""The package that aggregates by sketches need."""

from __future__ import annotations

from importlib.util import find_spec

from minirt.errors import ConfigurationError


def check_sketches(what: str) -> None:
    """Raise ConfigurationError if the package is missing."""
    if find_spec("datasketches") is None:
        raise ConfigurationError(
            f"{what} needs the package datasketches: pip install 'minirt[sketches]'"
        )
