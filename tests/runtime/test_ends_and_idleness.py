"""Inputs that end, that never end, and that have nothing to say for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    Environment,
    JobObserver,
    JobStatus,
    JsonlSink,
    KeyedContext,
    KeyedProcess,
    Options,
    SequenceSource,
    ValueState,
    Watermarks,
)
from tests.runtime.campaign import read_files
from tests.runtime.jobs import Numbers, numbers_of
from tests.runtime.processes import wait_until

RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("interval", ["10ms", "1h"])
def test_everything_is_committed_when_a_bounded_job_ends(runner, interval, tmp_path):
    env = Environment(parallelism=2)
    rows = env.source(SequenceSource(500)).key_by(lambda n: n).map(lambda n: {"n": n})
    rows.sink(JsonlSink(tmp_path / "out"))
    result = env.execute(
        runner=runner,
        checkpointing=Checkpointing(str(tmp_path / "checkpoints"), interval=interval),
    )
    assert result.checkpoints[-1]["kind"] == "final"
    assert sorted(row["n"] for row in read_files(tmp_path / "out")) == list(range(500))
    assert not list((tmp_path / "out").rglob("*.pending"))


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_empty_job_ends_as_well(runner):
    env, sink = Environment(parallelism=2), CollectSink()
    env.source(SequenceSource(0)).key_by(lambda n: n).map(lambda n: n).sink(sink)
    assert env.execute(runner=runner).status is JobStatus.FINISHED
    assert sink.rows == []


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_job_that_has_ended_may_be_restored_and_ends_again_without_output(runner, tmp_path):
    for restore in (None, "latest"):
        env = Environment(parallelism=2)
        rows = env.source(SequenceSource(100)).key_by(lambda n: n).map(lambda n: {"n": n})
        rows.sink(JsonlSink(tmp_path / "out"))
        env.execute(
            runner=runner,
            restore=restore,
            checkpointing=Checkpointing(str(tmp_path / "checkpoints"), interval="10ms"),
        )
        assert len(read_files(tmp_path / "out")) == 100


class AtTheHundred(KeyedProcess):
    """Reports each key once event time has reached 100."""

    def process(self, record: int, ctx: KeyedContext) -> None:
        ctx.set_timer(100)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[Any]:
        return [ctx.key]


class LetGoLater(KeyedProcess):
    """Holds each record until a time of the clock that a test does not live to see."""

    held = ValueState()

    def process(self, record: int, ctx: KeyedContext) -> None:
        self.held.value = record
        ctx.set_processing_timer(ctx.processing_time + 3_600_000)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[Any]:
        return [self.held.value]


class CountAtTheEnd(KeyedProcess):
    """Reports how many records a key had when all event time had passed."""

    count = ValueState(default=0)

    def process(self, record: int, ctx: KeyedContext) -> None:
        self.count.value += 1
        ctx.set_timer(1 << 62)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[Any]:
        return [(ctx.key, self.count.value)]


@pytest.mark.parametrize("key", [lambda n: 0, lambda n: n % 2], ids=["one-key", "two-keys"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_event_time_ends_behind_what_pending_timers_of_the_clock_emit(runner, key):
    env, sink = Environment(parallelism=2), CollectSink()
    later = env.source(SequenceSource(100)).key_by(lambda n: n).process(LetGoLater())
    later.key_by(key).process(CountAtTheEnd()).sink(sink)
    env.execute(runner=runner)
    expected = Counter(key(n) for n in range(100))
    assert sorted(sink.rows) == sorted(expected.items())


class Completed(JobObserver):
    """Counts completed checkpoints."""

    def __init__(self) -> None:
        self.count = 0

    def on_checkpoint(self, entry: Any) -> None:
        self.count += entry["status"] == "completed"


@pytest.mark.processes
@pytest.mark.parametrize("placement", ["subtask", "slots"])
def test_an_idle_source_holds_no_watermark_back(placement, tmp_path):
    env, sink = Environment(), CollectSink()
    stamped = Watermarks.monotonous(timestamp=lambda n: n, idle_timeout="200ms")
    # Of the second source one number comes, and the next one after more than a quarter of an hour.
    silent = env.source(Numbers(None, splits=1, per_second=0.001), uid="silent", watermarks=stamped)
    lively = env.source(Numbers(None, splits=1, per_second=1000), uid="lively", watermarks=stamped)
    silent.union(lively).key_by(lambda n: n % 3).process(AtTheHundred()).sink(sink)
    job = env.start(
        checkpointing=Checkpointing(str(tmp_path), interval="50ms"),
        options=Options(placement=placement),
    )
    try:
        wait_until(lambda: len(set(sink.rows)) == 3, "timers although one source is silent")
    finally:
        job.cancel()
        job.wait(20)


@pytest.mark.processes
def test_checkpoints_go_on_after_one_of_two_sources_has_ended(tmp_path):
    env, ended, going = Environment(parallelism=2), CollectSink(), CollectSink()
    completed = Completed()
    short = numbers_of(env, 100, "short", per_second=None)
    endless = numbers_of(env, None, "endless", per_second=500)
    both = short.union(endless.map(lambda n: n + 1000)).key_by(lambda n: n)
    both.map(lambda n: n).sink(going, uid="going")
    short.map(lambda n: n).sink(ended, uid="ended")
    job = env.start(checkpointing=Checkpointing(str(tmp_path), interval="20ms"), observer=completed)
    try:
        wait_until(lambda: len(ended.rows) == 100, "output of the source that ends")
        before = completed.count
        wait_until(lambda: completed.count > before + 5, "more checkpoints")
        seen = len(going.rows)
        wait_until(lambda: len(going.rows) > seen + 50, "more output of the other")
    finally:
        job.cancel()
        assert job.wait(20).status is JobStatus.CANCELLED
    assert sorted(ended.rows) == list(range(100))
    assert sorted(n for n in going.rows if n < 1000) == list(range(100))
