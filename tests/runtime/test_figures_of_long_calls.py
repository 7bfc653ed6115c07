"""What the figures say of a subtask that is within a long call of a user's function."""

from __future__ import annotations

import time

import minirt as rt
from minirt.monitoring.subtask_metrics import Activity, SubtaskMetrics, TimeAccount
from minirt.protocol.ids import SubtaskId
from minirt.runtime.worker.long_calls import Figures, LongCalls

CALL_S = 8.0
WITHIN_S = 30.0


def slow(number: int) -> int:
    time.sleep(CALL_S)
    return number


def test_a_subtask_within_a_long_call_is_busy():
    env = rt.Environment()
    env.source(rt.CollectionSource([1, 2, 3]), uid="numbers").map(slow, uid="slow").sink(
        rt.CollectSink(), uid="out"
    )
    job = env.start()
    try:
        until = time.monotonic() + WITHIN_S
        while not is_busy(job) and time.monotonic() < until:
            time.sleep(0.2)
        called_s = max(one.totals.busy_s for one in job.figures.subtasks)
    finally:
        job.cancel()
    assert 0 < called_s < CALL_S, "the figures have come after the end of the call"


def is_busy(job: rt.Job) -> bool:
    """Whether the last second was one of work throughout."""
    rates = [one.rates for one in job.figures.subtasks]
    return any(one is not None and one.busy_ms > 900 for one in rates)


def test_figures_are_reported_only_while_the_loop_is_late():
    account, reports = TimeAccount(metrics := SubtaskMetrics(idle_s=2.0), 0.0), list[Figures]()
    calls = LongCalls({SubtaskId(0, 0): account}, 1.0, reports.append, raise_it)
    calls.reported()
    now = time.perf_counter()
    account.turn_to(Activity.BUSY, now)
    idle_s = metrics.idle_s
    calls.look(now + 1.0)
    assert reports == []
    calls.look(now + 4.0)
    assert reports == [{SubtaskId(0, 0): SubtaskMetrics(idle_s=idle_s, busy_s=4.0)}]
    assert metrics == SubtaskMetrics(idle_s=idle_s), "only the loop counts"


def raise_it(error: BaseException) -> None:
    raise error
