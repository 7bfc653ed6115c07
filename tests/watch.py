"""Does something once a job has come so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import minirt as rt


class Watch(rt.JobObserver):
    """Calls back after so many completed or failed checkpoints, or restarts, in all."""

    def __init__(self, calls: Mapping[tuple[str, int], Callable[[], None]]) -> None:
        self._calls = calls
        self.seen: Counter[str] = Counter()

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self._count(entry["status"])

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._count("restart")

    def _count(self, what: str) -> None:
        self.seen[what] += 1
        if call := self._calls.get((what, self.seen[what])):
            call()
