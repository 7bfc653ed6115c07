"""A stage that takes its time, so that everything before it feels backpressure."""

from __future__ import annotations

import time
from typing import Any

_SHORTEST_NAP_S = 0.001
"""Shorter ones would last much longer than asked for."""


class Slow:
    """Passes records on, at `seconds` of sleep for each on average."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._owed = 0.0

    def __call__(self, record: Any) -> Any:
        self._owed += self._seconds
        if self._owed >= _SHORTEST_NAP_S:
            started = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - started
        return record
