"""Reports figures while a worker's loop is held up by a long call of a user's function."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from minirt.monitoring.subtask_metrics import SubtaskMetrics, TimeAccount
from minirt.protocol.ids import SubtaskId
from minirt.threads import repeating

_BEATS_MISSED = 1.5
"""How many heartbeats the loop is late when the figures come from here."""

Figures = Mapping[SubtaskId, SubtaskMetrics]


class LongCalls:
    """Watches when the loop last reported; reports in its place while it cannot.

    Without it, the figures of a subtask that is within a long call stay what they were before the call:
    so it looks idle. It says nothing about whether the worker lives: a call that never ends must be found.
    """

    def __init__(
        self,
        accounts: Mapping[SubtaskId, TimeAccount],
        interval_s: float,
        report: Callable[[Figures], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._accounts = accounts
        self._interval_s = interval_s
        self._report = report
        self._on_error = on_error
        self._reported_at = time.perf_counter()

    def reported(self) -> None:
        """The loop has sent figures."""
        self._reported_at = time.perf_counter()

    def watched(self) -> AbstractContextManager[None]:
        """Watch while the body, which is the loop, runs."""
        return repeating(
            *("figures-of-long-calls", self._interval_s),
            lambda: self.look(time.perf_counter()),
            self._on_error,
        )

    def look(self, now: float) -> None:
        """Report if the loop is late, with the figures as of now."""
        if now - self._reported_at > _BEATS_MISSED * self._interval_s:
            self._report({id: account.settled(now) for id, account in self._accounts.items()})
