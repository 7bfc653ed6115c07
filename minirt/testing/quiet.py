"""Injected faults are no news: what minirt says of them is left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged meanwhile: injected faults would be, many times a second."""
    logger = logging.getLogger("minirt")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
