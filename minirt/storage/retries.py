"""Tries a failed access to storage again, if the failure may pass and another attempt can do no harm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from minirt.errors import ConfigurationError

T = TypeVar("T")

PAUSES_S = (0.05, 0.2, 0.8)
"""Before the second and each further attempt."""

_BEGIN_WITHIN_S = 10.0
"""No attempt begins later than this after the first: what takes so long was tried again by its client."""

FINAL: tuple[type[Exception], ...] = (
    *(ConfigurationError, FileNotFoundError, PermissionError, IsADirectoryError),
    *(NotADirectoryError, ValueError, TypeError, ImportError),
)
"""Errors that another attempt would meet again."""


def attempted(access: Callable[[], T], pauses_s: Sequence[float], final: type[Exception]) -> T:
    """The result of the access. Tries it as often as there are pauses, and once more.

    Raises what the last attempt did, and at once what is in FINAL or `final`.
    """
    began_at = time.monotonic()
    for pause_s in pauses_s:
        try:
            return access()
        except (*FINAL, final):
            raise
        except Exception:
            if time.monotonic() - began_at + pause_s > _BEGIN_WITHIN_S:
                raise
        time.sleep(pause_s)
    return access()
