"""What is kept of the load of a job, for advice."""

from __future__ import annotations

from typing import Any

import minirt as rt
from minirt.graph.execution import ExecutionGraph
from minirt.graph.planner import build_execution_graph
from minirt.monitoring.load import JobSetup, LoadEntries, LoadEntry
from minirt.monitoring.monitor import JobMonitor
from minirt.protocol.job_events import JobStatus
from minirt.runtime.coordinator.observer import JobProgress
from tests.monitoring.samples import totals


def planned(parallelism: int) -> ExecutionGraph:
    """At parallelism 2 all is one chain, else the operator in the middle, which has 2 itself, is not."""
    env = rt.Environment("job", parallelism=parallelism)
    numbers = env.source(rt.SequenceSource(10, splits=4), uid="numbers")
    fixed = numbers.map(abs, uid="fixed", parallelism=2)
    fixed.sink(rt.DiscardSink(), uid="out")
    return build_execution_graph(env.graph())


def test_the_inputs_of_an_operator_are_those_of_the_plan_that_runs() -> None:
    found: list[dict[str, Any]] = []
    monitor = JobMonitor(planned(2), lambda: 0.0)
    setup = JobSetup("aligned", 1.0, 60.0, None)
    loads = LoadEntries(monitor, planned(2), setup, found.append, lambda: 1000.0 * len(found), 10.0)

    def inputs(parallelism: int, generation: int) -> dict[str, tuple[str, ...]]:
        graph = planned(parallelism)
        for one in (monitor, loads):
            one.take_shape(graph)
            one.on_status(JobStatus.RUNNING, generation)
        ids = [id for vertex in graph.vertices for id in vertex.subtasks()]
        for seconds in (8, 10):
            metrics = {id: totals(seconds, busy=0.5) for id in ids}
            progress = JobProgress(metrics, dict.fromkeys(ids, "?"), {})
            for one in (monitor, loads):
                one.on_progress(progress)
        return {one.operator: one.inputs for one in LoadEntry.from_plain(found[-1]).operators}

    assert inputs(2, 1) == {"numbers": ()}
    assert inputs(3, 2) == {"numbers": (), "fixed": ("numbers",), "out": ("fixed",)}
    assert inputs(2, 3) == {"numbers": ()}
