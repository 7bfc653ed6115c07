"""A source in a worker process that waits for a slower one in another."""

from __future__ import annotations

import time

import pytest

import minirt as rt

COUNT, STEP_MS = 120, 10


def slowly(record: dict[str, int]) -> dict[str, int]:
    time.sleep(0.01)
    return record


@pytest.mark.processes
def test_the_figures_say_that_a_source_waits_for_another() -> None:
    env, sink = rt.Environment(parallelism=1), rt.CollectSink()
    marks = rt.Watermarks.monotonous(timestamp="t", max_drift="100ms")
    records = [{"t": number * STEP_MS, "n": number} for number in range(COUNT)]
    fast = env.source(rt.CollectionSource(records), watermarks=marks, uid="fast")
    slow = env.source(rt.CollectionSource(records), watermarks=marks, uid="slow").map(slowly)
    names = ["t", "n"]
    joined = fast.join(slow, on=names, within=(0, 0), columns=(names, names), uid="join")
    joined.sink(sink, uid="out")
    job = env.start()
    result = job.wait(60)
    assert result.status is rt.JobStatus.FINISHED
    assert sorted(row["n"] for row in sink.rows) == [*range(COUNT)]
    totals = {one.operator: one.totals for one in job.figures.subtasks}
    assert totals["fast"].drift_pause_s > COUNT * 0.01 / 2
    assert totals["slow"].drift_pause_s < totals["fast"].drift_pause_s / 4
    assert totals["join"].drift_pause_s == 0
