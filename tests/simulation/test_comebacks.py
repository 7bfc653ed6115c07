"""Workers that come back alone under all faults, and mistakes planted into that which must be noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.errors import ProtocolError
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol import lines
from minirt.protocol.ids import ChannelId
from minirt.protocol.lines import LocalCut
from minirt.protocol.trigger_times import TriggerTimes
from minirt.protocol.uncoordinated import Uncoordinated as UncoordinatedFamily
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.logged import CountedInput, LoggedOutput, SentLog
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource, numbered
from minirt.testing.options import drawn_latency_interval, drawn_options
from tests.campaigns import MIXED, sampled, seeds

Patch = pytest.MonkeyPatch

SPLITS, COUNT, KEYS = 3, 60, 6
EXPECTED = Counter(numbered("n", SPLITS, COUNT))
ALONE = rt.Restart.fixed_delay(100, 0.005, scope="subtask")
CRASHES = replace(Faults.none(), worker_crashes=8)
LARGE_FRAMES = rt.Limits(input_queue_bytes=20_000, output_queue_bytes=10_000)
"""Snapshots are often taken in the middle of one."""
SEEDS = 100


class Remember(rt.KeyedProcess):
    """Emits each record with its number among those of its key, at once or when event time has come."""

    held = rt.ListState()
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        if record[2] % 3:
            self.count.value += 1
            yield (record, self.count.value)
        else:
            self.held.add(record)
            ctx.set_timer(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        for record in self.held.get():
            self.count.value += 1
            yield (record, self.count.value)
        self.held.clear()


def run(
    seed: int,
    faults: Faults = CRASHES,
    limits: rt.Limits | None = None,
    latency_interval: float | None = None,
) -> tuple[SimulationResult, list[str]]:
    """A run, and what is wrong with it; its limits are drawn unless given."""
    mode = Uncoordinated(jitter=0.5, log_bytes=2048) if seed % 2 else Uncoordinated()
    random = Random(f"comebacks {seed}")
    sink = TransactionalSink()
    env = rt.Environment(parallelism=3, max_parallelism=8)
    times = rt.Watermarks.bounded("1ms", timestamp=lambda record: record[2])
    source = env.source(
        NumberedSource("n", SPLITS, COUNT),
        uid="n",
        watermarks=times,
        parallelism=random.choice((1, 2)),
    )
    counted = source.key_by(lambda record: (record[1] + record[2]) % KEYS)
    counted.process(Remember(), uid="count").sink(sink, uid="out")
    options = replace(
        drawn_options(random, 0.01), placement="subtask", latency_interval=latency_interval
    )
    result = simulate(
        env,
        seed=seed,
        checkpointing=rt.Checkpointing("simulated://", interval="20ms", mode=mode),
        faults=faults,
        restart=ALONE,
        options=options if limits is None else replace(options, limits=limits),
    )
    return result, [*result.problems, *_wrong(sink)]


def lost_or_more(expected: Counter[Any], got: Counter[Any]) -> list[str]:
    """Which records are missing, and which came too often."""
    lost, more = expected - got, got - expected
    found = [f"lost {list(lost)[:3]}"] if lost else []
    return found + ([f"duplicated {list(more)[:3]}"] if more else [])


def _wrong(sink: TransactionalSink) -> list[str]:
    found = lost_or_more(EXPECTED, Counter(record for record, _ in sink.rows))
    counts: dict[int, int] = {}
    for (_, split, number), count in sink.rows:
        key = (split + number) % KEYS
        if count != counts.get(key, 0) + 1:
            return [*found, f"key {key} counted {count} after {counts.get(key, 0)}"]
        counts[key] = count
    return found + [f"part {id} has an id that was given before" for id in sink.alike]


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    comebacks = 0
    for seed in range(MIXED, MIXED + sampled(25, 5)):
        result, wrong = run(seed)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks


def test_among_all_other_faults() -> None:
    # With the last one, a disk is full for longer than snapshots may wait for a line.
    for seed in (*range(MIXED, MIXED + sampled(12, 4)), 149):
        interval = drawn_latency_interval(Random(f"markers {seed}"), 0.01)
        faults = Faults(worker_crashes=6, lost_connections=1, full_disks=1)
        _, wrong = run(seed, faults, latency_interval=interval)
        assert wrong == [], seed


def without_rests(monkeypatch: Patch) -> None:
    """Let checkpoints follow each other as closely as they can, so that more goes wrong between two."""
    monkeypatch.setattr(TriggerTimes, "on_full", lambda self, now: None)


def assert_noticed(limits: rt.Limits | None = None, first: int = 0) -> None:
    noticed = any(run(seed, limits=limits)[1] for seed in seeds(SEEDS, first))
    assert noticed, f"nobody noticed in {SEEDS} runs"


def test_records_that_count_as_processed_once_they_were_taken(monkeypatch: Patch) -> None:
    def begin(channel: CountedInput, frame_bytes: int, records: int) -> None:
        channel.records += records

    monkeypatch.setattr(CountedInput, "begin", begin)
    monkeypatch.setattr(CountedInput, "processed", lambda channel, records: None)
    assert_noticed(LARGE_FRAMES, first=59)


def test_a_log_that_keeps_no_event_time(monkeypatch: Patch) -> None:
    right = SentLog.add

    def add(log: SentLog, frame: Frame) -> None:
        if frame.is_data:
            right(log, frame)

    monkeypatch.setattr(SentLog, "add", add)
    without_rests(monkeypatch)
    assert_noticed(LARGE_FRAMES, first=55)


def test_a_log_that_forgets_what_was_processed_since_the_line(monkeypatch: Patch) -> None:
    right = UncoordinatedFamily._processed

    def processed(family: UncoordinatedFamily) -> dict[ChannelId, int]:
        return {channel: records + 1 for channel, records in right(family).items()}

    monkeypatch.setattr(UncoordinatedFamily, "_processed", processed)
    assert_noticed(first=18)


def test_snapshots_that_have_the_numbers_of_earlier_lives(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LocalCut, "next_life", lambda cut, life: 0)
    with pytest.raises(ProtocolError, match=r"has stored snapshot \d+ behind \d+"):
        assert_noticed(first=18)


def test_lives_that_outlast_the_numbers_between_two_lives(monkeypatch: Patch) -> None:
    """As a job that runs for weeks: lives take more snapshots than lie between the numbers of two."""
    monkeypatch.setattr(lines, "_AHEAD", 12)
    comebacks = 0
    for seed in range(MIXED, MIXED + sampled(16, 6)):
        result, wrong = run(seed)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks


def test_a_queue_that_is_lost_with_its_receiver(monkeypatch: Patch) -> None:
    right = LoggedOutput.park

    def park(channel: LoggedOutput) -> None:
        right(channel)
        channel.queued_bytes -= sum(frame.size for frame in channel._frames)
        channel._frames.clear()

    monkeypatch.setattr(LoggedOutput, "park", park)
    assert_noticed(first=18)
