"""Slow sinks: memory stays bounded, nothing deadlocks, and the figures say where time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    DiscardSink,
    Environment,
    Job,
    JobObserver,
    JobProgress,
    Limits,
    Options,
    SequenceSource,
)
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from tests.runtime.jobs import numbers_of
from tests.runtime.processes import needs_proc, resident_bytes, wait_until, workers

pytestmark = pytest.mark.processes

MIB = 1 << 20
SMALL = Limits(
    input_queue_bytes=32 * 1024,
    output_queue_bytes=32 * 1024,
    overdraft_bytes=64 * 1024,
    spill_bytes_max=0,
)


class Figures(JobObserver):
    """The newest figures of all subtasks."""

    def __init__(self) -> None:
        self.progress: JobProgress | None = None

    def on_progress(self, progress: JobProgress) -> None:
        self.progress = progress

    def of(self, operator: str) -> list[SubtaskMetrics]:
        assert self.progress is not None
        return [
            metrics
            for id, metrics in self.progress.metrics.items()
            if self.progress.names[id].startswith(operator)
        ]

    def sums(self) -> dict[SubtaskId, float]:
        """The time that is accounted for, by subtask."""
        found = {} if self.progress is None else self.progress.metrics
        return {
            id: one.busy_s + one.idle_s + one.soft_backpressure_s + one.hard_backpressure_s
            for id, one in found.items()
        }


@pytest.fixture
def cancelled() -> Iterator[Callable[[Job], Job]]:
    """Cancels jobs after the test."""
    jobs: list[Job] = []

    def remember(job: Job) -> Job:
        jobs.append(job)
        return job

    yield remember
    for job in jobs:
        job.cancel()
        job.wait(20)


def ten_a_second(record: int) -> int:
    time.sleep(0.1)
    return record


def hundred_a_second(record: int) -> int:
    time.sleep(0.01)
    return record


@needs_proc
@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_memory_under_full_backpressure_is_bounded_by_the_queues(placement, tmp_path, cancelled):
    env, figures = Environment(), Figures()
    numbers = env.source(SequenceSource.endless()).rebalance()
    slow = numbers.map(lambda n: {"text": f"{n:0200}"}).rebalance().map(ten_a_second, name="slow")
    slow.sink(CollectSink())
    cancelled(
        env.start(
            checkpointing=Checkpointing(str(tmp_path), interval="200ms"),
            options=Options(placement=placement),
            observer=figures,
        )
    )

    def is_full() -> bool:
        return figures.progress is not None and any(
            metrics.soft_backpressure_s > 0.5 for metrics in figures.of("SequenceSource")
        )

    wait_until(is_full, "backpressure at the source")
    before = sum(map(resident_bytes, workers()))
    time.sleep(3)
    grown = sum(map(resident_bytes, workers())) - before
    assert grown < 16 * MIB
    assert sum(metrics.queued_in_bytes for metrics in figures.of("slow")) <= MIB


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_debloated_queues_hold_little_before_a_slow_function(placement, tmp_path, cancelled):
    """What is 0.3 MiB and more in queues of fixed size; an aligned checkpoint waits for all of it."""
    env, figures, completed = Environment(), Figures(), []
    figures.on_checkpoint = lambda entry: completed.append(entry["status"] == "completed")
    numbers = env.source(SequenceSource.endless()).rebalance()
    slow = (
        numbers.map(lambda n: {"text": f"{n:0200}"}).rebalance().map(hundred_a_second, name="slow")
    )
    slow.sink(CollectSink())
    cancelled(
        env.start(
            checkpointing=Checkpointing(str(tmp_path), interval="200ms"),
            options=Options(placement=placement, debloat="100ms"),
            observer=figures,
        )
    )
    wait_until(lambda: completed.count(True) >= 2, "two aligned checkpoints")

    def is_full() -> bool:
        return any(metrics.soft_backpressure_s > 0.5 for metrics in figures.of("SequenceSource"))

    wait_until(is_full, "backpressure at the source")
    assert figures.progress is not None
    metrics = figures.progress.metrics.values()
    assert sum(one.queued_in_bytes + one.queued_out_bytes for one in metrics) < 64 * 1024
    assert sum(one.input_window_bytes for one in metrics) < 64 * 1024


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_one_record_that_becomes_very_many_is_held_back_until_there_is_room(placement, cancelled):
    """Two subtasks, each of which floods both: while it waits, each must serve the other."""
    env, sink, figures = Environment(parallelism=2), CollectSink(), Figures()
    bursts = numbers_of(env, 4, "numbers", per_second=None, splits=2).rebalance()
    flood = bursts.flat_map(lambda n: range(n * 50_000, (n + 1) * 50_000), name="burst")
    flood.rebalance().map(_slowly, name="slow").sink(sink)
    options = Options(placement=placement, limits=SMALL)
    job = cancelled(env.start(options=options, observer=figures))
    job.wait(60)
    assert sorted(sink.rows) == list(range(200_000))
    assert sum(metrics.hard_backpressure_s for metrics in figures.of("burst")) > 0.05


def _slowly(record: int) -> int:
    if record % 1000 == 0:
        time.sleep(0.001)
    return record


def test_checkpoints_complete_while_one_record_floods_the_job(tmp_path, cancelled):
    env, sink = Environment(), CollectSink()
    bursts = numbers_of(env, 4, "numbers", per_second=None, splits=1)
    flood = bursts.flat_map(lambda n: range(n * 50_000, (n + 1) * 50_000))
    flood.rebalance().map(_slowly).sink(sink)
    checkpointing = Checkpointing(str(tmp_path), interval="20ms")
    job = env.start(checkpointing=checkpointing, options=Options(limits=SMALL))
    result = cancelled(job).wait(60)
    assert sorted(sink.rows) == list(range(200_000))
    assert all(entry["status"] == "completed" for entry in result.checkpoints)


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_the_last_figures_count_every_record(placement):
    env, figures = Environment(parallelism=2), Figures()
    numbers = numbers_of(env, 1000, "numbers", per_second=None).filter(lambda n: n % 2 == 0)
    numbers.key_by(lambda n: n).map(lambda n: n, name="kept").sink(CollectSink())
    env.execute(options=Options(placement=placement), observer=figures)
    source, kept = figures.of("Numbers"), figures.of("kept")
    assert sum(metrics.records_in for metrics in source) == 1000
    assert sum(metrics.records_out for metrics in source) == 500
    assert sum(metrics.records_in for metrics in kept) == 500
    assert sum(metrics.bytes_out for metrics in source) == sum(m.bytes_in for m in kept) > 0


@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_busy_idle_and_blocked_time_add_up_to_the_time_that_passes(placement, cancelled):
    env, figures = Environment(parallelism=2), Figures()
    numbers = env.source(SequenceSource.endless()).map(lambda n: n)
    numbers.rebalance().map(ten_a_second, name="slow").sink(DiscardSink())
    cancelled(env.start(options=Options(placement=placement), observer=figures))
    wait_until(lambda: len(figures.sums()) == 4, "figures of all subtasks")
    first, began = figures.sums(), time.monotonic()
    time.sleep(2)
    second, passed = figures.sums(), time.monotonic() - began
    for id, before in first.items():
        assert passed - 0.7 < second[id] - before < passed + 0.7
