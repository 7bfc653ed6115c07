"""Very many timers that are due at once: a checkpoint is taken between two of them, and each fires once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.modes import MODES
from tests.campaigns import soaked
from tests.runtime.test_user_code import first_time

FAR_AWAY_MS = 1 << 50
PATIENT = "unaligned"
"""In this mode a storm lasts until a checkpoint has come in between."""


class Notes:
    """What the storm and the observer of its job tell each other, in files: they may be two processes."""

    def __init__(self, folder: Path) -> None:
        self._began = folder / "began"
        self._checkpointed = folder / "checkpointed"
        self.failed = folder / "failed"

    def storm_began(self) -> None:
        if not self._began.exists():
            self._began.write_text(repr(time.time()))

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        if entry["status"] != "completed" or not self._began.exists():
            return
        if entry["triggered_at"] > float(self._began.read_text() or "inf"):
            self._checkpointed.touch()

    @property
    def checkpointed(self) -> bool:
        return self._checkpointed.exists()


class Storm(rt.KeyedProcess):
    """A timer for each key, all of them due at the end. It fails once, in the middle of them.

    With `patient` it does so only once it knows of a checkpoint that began after the first of them. Its
    results carry their attempt: those of the first one must come from that checkpoint.
    """

    def __init__(self, notes: Notes, timers: int, domain: str, *, patient: bool) -> None:
        self._notes = notes
        self._timers = timers
        self._domain = domain
        self._patient = patient
        self._fired = 0
        self._attempt = 0

    def open(self) -> None:
        self._attempt = int(self._notes.failed.exists())

    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        if self._domain == "event":
            ctx.set_timer(self._timers + record % 3)
        else:
            ctx.set_processing_timer(FAR_AWAY_MS)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterator[tuple[int, int]]:
        self._notes.storm_began()
        self._fired += 1
        if not self._attempt and self._fired % 100 == 0:
            self._fail_once()
        yield (ctx.key, self._attempt)

    def _fail_once(self) -> None:
        late = self._fired > self._timers // 2
        if self._notes.checkpointed if self._patient else late:
            assert not first_time(self._notes.failed), "half of the timers are left"
        if late:
            time.sleep(
                0.05
            )  # The machine is slow: the storm must not be over before its checkpoint.


class NotLate(rt.Process):
    """No watermark may come ahead of what timers of event time emit that it makes fire."""

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterator[Any]:
        late = ctx.watermark is not None and ctx.watermark >= ctx.timestamp
        assert not late or ctx.timestamp == FAR_AWAY_MS
        yield record


class Observer(rt.JobObserver):
    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self._notes.on_checkpoint(entry)


@pytest.mark.parametrize("domain", ["event", "processing"])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_each_timer_of_a_storm_fires_once_although_it_is_interrupted(
    mode: str, domain: str, tmp_path: Path
) -> None:
    interrupt_a_storm("inline", 20_000 if mode == PATIENT else 5_000, mode, domain, tmp_path)


@pytest.mark.processes
@pytest.mark.parametrize("domain", ["event", *soaked("processing")])
def test_each_timer_of_a_storm_fires_once_in_worker_processes(domain: str, tmp_path: Path) -> None:
    interrupt_a_storm("processes", 50_000, PATIENT, domain, tmp_path)


def interrupt_a_storm(runner: Any, timers: int, mode: str, domain: str, tmp_path: Path) -> None:
    """Barriers that overtake are handled within the storm, others wait behind it."""
    within = mode == PATIENT
    notes, sink, env = Notes(tmp_path), rt.CollectSink(), rt.Environment()
    watermarks = rt.Watermarks.monotonous(timestamp=lambda n: n)
    numbers = env.source(rt.SequenceSource(timers, splits=1), uid="n", watermarks=watermarks)
    fired = numbers.key_by(lambda n: n).process(
        Storm(notes, timers, domain, patient=within), uid="storm"
    )
    fired.rebalance().process(NotLate(), uid="late").sink(sink, uid="out")
    env.execute(
        runner=runner,
        checkpointing=rt.Checkpointing(str(tmp_path / "checkpoints"), interval="100ms", mode=mode),
        restart=rt.Restart.fixed_delay(3, "10ms"),
        observer=Observer(notes),
    )
    assert notes.failed.exists()
    assert notes.checkpointed or not within
    assert sorted(key for key, _ in sink.rows) == list(range(timers))
    attempts = Counter(attempt for _, attempt in sink.rows)
    assert attempts[1] > 0
    assert attempts[0] > 0 or not within


def test_time_spent_on_watermarks_does_not_make_the_pieces_of_a_slow_function_larger() -> None:
    def slow(batch: list[int]) -> list[int]:
        time.sleep(0.005 * len(batch))
        return [len(batch)] * len(batch)

    env, sizes = rt.Environment(), rt.CollectSink()
    watermarks = rt.Watermarks.monotonous(timestamp=lambda n: n)
    numbers = env.source(rt.SequenceSource(100, splits=20), watermarks=watermarks)
    numbers.rebalance().map_batches(slow).sink(sizes)
    env.execute(runner="inline", options=rt.Options(limits=rt.Limits(watermark_interval_s=0)))
    assert sizes.rows == [1] * 100
