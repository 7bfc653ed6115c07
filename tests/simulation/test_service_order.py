"""Workers that read several channels and come back alone in the middle of a job, and planted mistakes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.api.stream import Stream
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.job_events import JobStatus
from minirt.protocol.service_order import (
    Determinant,
    OrderSince,
    Passed,
    Segment,
    Served,
    order_since,
)
from minirt.runtime.input import service_log
from minirt.runtime.input.elements import Element
from minirt.runtime.input.ordered_input import OrderedInput
from minirt.runtime.input.service_log import ServiceLog
from minirt.testing import Faults, SimulationResult, TransactionalSink, simulate
from minirt.testing.conformance.sources import NumberedSource
from minirt.testing.options import drawn_latency_interval, drawn_options
from minirt.testing.simulation import Simulation
from tests.campaigns import MIXED, runs, sampled, seeds
from tests.simulation.test_comebacks import Remember
from tests.simulation.test_replays import (
    COUNT,
    CRASHES,
    EXPECTED,
    KEYS,
    REPLAY,
    SPLITS,
    STRIKE_STEPS,
    Again,
    strike_later,
    strike_when_it_may_come_back,
    wrong_in,
)

Patch = pytest.MonkeyPatch

SEEDS = 200
BACK = 19
"""From this seed on a worker of each kind of job comes back within the first few runs."""
REFUSED = 7
"""From this seed on some of the first few runs have a worker whose short log does not reach back."""
_LOOK_STEPS = 40


class Pass(rt.KeyedProcess):
    """Passes on what comes, in the order in which it comes."""

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield record


class CountBoth(rt.KeyedCoProcess):
    """Numbers the records of a key, from whichever side they come."""

    count = rt.ValueState(0)

    def process_left(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield (record, self.count.value)

    def process_right(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        return self.process_left(record, ctx)


class Times(rt.KeyedProcess):
    """Adds how often a record has come."""

    times = rt.MapState()

    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.times[record[0]] = self.times.get(record[0], 0) + 1
        yield (*record, self.times[record[0]])


def by_order(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    """Each subtask of `count` and `twice` reads several channels and sends on."""
    stream: Any = source.key_by(by_remainder).process(Remember(), uid="count")
    if random.random() < 0.5:
        stream = stream.key_by(lambda each: each[1]).process(Pass(), uid="twice")
    again = stream.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")


def by_sides(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    """`count` reads two links, and what it does depends on the link."""
    left = source.filter(lambda record: record[2] % 2 == 0, uid="even").key_by(by_remainder)
    right = source.filter(lambda record: record[2] % 2 == 1, uid="odd").key_by(by_remainder)
    counted = left.connect(right).process(CountBoth(), uid="count")
    again = counted.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")


def by_batches(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    """What `count` sends depends on how its input is cut into batches."""
    stream: Any = source.key_by(by_remainder).process(Remember(), uid="count")
    turned = stream.map_batches(lambda batch: batch[::-1], uid="turn")
    again = turned.key_by(lambda each: each[0][2]).process(Again(), uid="again")
    again.sink(sink, uid="out")


def by_updates(random: Random, source: Stream[Any], sink: rt.Sink) -> None:
    """`updates` gives the results of the keys that each batch has changed."""
    rows = source.map(lambda record: {"key": by_remainder(record)}, uid="rows")
    updates = rows.key_by("key").aggregate(rt.Count(), uid="updates")
    pairs = updates.map(lambda row: (row["key"], row["count"]), uid="pairs")
    again = pairs.key_by(lambda pair: pair[1]).process(Times(), uid="again")
    again.sink(sink, uid="out")


def by_remainder(record: Any) -> int:
    remainder: int = (record[1] + record[2]) % KEYS
    return remainder


def strike_twice_later(simulation: Simulation) -> None:
    """Kill a worker, and again as soon as it has caught up: mostly it falls back to the same snapshot."""
    simulation.schedule.later(STRIKE_STEPS, lambda: strike_twice(simulation))


def strike_twice(simulation: Simulation) -> None:
    newest = simulation._coordinators[-1]
    before = {worker.number for worker in newest.cluster.workers if worker.gone}
    strike_when_it_may_come_back(simulation)
    for number in {worker.number for worker in newest.cluster.workers if worker.gone} - before:
        simulation.schedule.later(_LOOK_STEPS, partial(strike_again, simulation, number))


def strike_again(simulation: Simulation, number: int) -> None:
    newest = simulation._coordinators[-1]
    if newest.gone:
        return
    [worker] = [one for one in newest.cluster.workers if one.number == number]
    if newest.protocol.comebacks._away is None and worker.life and not worker.gone:
        worker.vanish()
    elif newest.protocol.status is JobStatus.RUNNING:
        simulation.schedule.later(_LOOK_STEPS, partial(strike_again, simulation, number))


def run(
    seed: int,
    faults: Faults = CRASHES,
    limits: rt.Limits | None = None,
    stages: Callable[[Random, Stream[Any], rt.Sink], None] = by_order,
    strike: Callable[[Simulation], None] = strike_later,
    judge: Callable[[TransactionalSink], list[str]] = wrong_in,
    interval: str = "20ms",
    latency_interval: float | None = None,
) -> tuple[SimulationResult, list[str]]:
    """A run, and what is wrong with it; its limits are drawn unless given."""
    mode = Uncoordinated(jitter=0.5, log_bytes=2048) if seed % 2 else Uncoordinated()
    random = Random(f"orders {seed}")
    sink = TransactionalSink()
    env = rt.Environment(parallelism=2, max_parallelism=8)
    times = rt.Watermarks.bounded("1ms", timestamp=lambda record: record[2])
    senders = 2 if stages is by_order else random.choice((1, 2))
    numbers = NumberedSource("n", SPLITS, COUNT)
    source = env.source(numbers, uid="n", watermarks=times, parallelism=senders)
    stages(random, source, sink)
    options = replace(
        drawn_options(random, 0.01), placement="subtask", latency_interval=latency_interval
    )
    with Patch.context() as patch:
        patch.setattr(Simulation, "_strike_worker_crashes", strike)
        result = simulate(
            env,
            seed=seed,
            steps_max=150_000,
            checkpointing=rt.Checkpointing("simulated://", interval=interval, mode=mode),
            faults=faults,
            restart=REPLAY,
            options=options if limits is None else replace(options, limits=limits),
        )
    return result, [*result.problems, *judge(sink)]


def updates_wrong_in(sink: TransactionalSink) -> list[str]:
    counts: dict[int, list[int]] = {}
    for key, count, times in sink.rows:
        counts.setdefault(key, []).append(count)
        if times > 1:
            return [f"key {key} has come {times} times with {count}"]
    expected = Counter((split + number) % KEYS for _, split, number in EXPECTED)
    ends = Counter({key: max(each) for key, each in counts.items()})
    return [f"key {key} ends with {ends[key]}" for key in expected if ends[key] != expected[key]]


@pytest.mark.parametrize("stages", [by_order, by_sides, by_batches, by_updates])
def test_nothing_is_lost_and_nothing_comes_twice(
    stages: Callable[[Random, Stream[Any], rt.Sink], None],
) -> None:
    judge = updates_wrong_in if stages is by_updates else wrong_in
    comebacks, wanted = 0, sampled(20, 10)
    for seed in range(BACK, BACK + wanted):
        result, wrong = run(seed, stages=stages, judge=judge)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks > wanted / 2


def test_latency_markers_change_nothing_of_what_is_done_again() -> None:
    """They come more often than sources read: these have their turn all the same."""
    comebacks = 0
    for seed in (MIXED, MIXED + 3):
        result, wrong = run(seed, latency_interval=0.002)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks > 2


def test_where_the_log_is_too_long_the_whole_job_restarts() -> None:
    refused = 0
    for seed in range(REFUSED, REFUSED + runs(6)):
        _, wrong = run(seed, limits=rt.Limits(order_log_bytes=128))
        told = [problem for problem in wrong if "cannot come back alone" in problem]
        assert wrong == told, seed
        refused += len(told)
    assert refused


def assert_noticed(limits: rt.Limits | None = None, first: int = 0) -> None:
    noticed = any(run(seed, limits=limits)[1] for seed in seeds(SEEDS, first))
    assert noticed, f"nobody noticed in {SEEDS} runs"


def test_a_second_comeback_from_the_same_snapshot() -> None:
    for seed in range(MIXED, MIXED + sampled(12, 6)):
        _, wrong = run(seed, strike=strike_twice_later)
        assert wrong == [], seed


def test_among_all_other_faults() -> None:
    for seed in range(MIXED, MIXED + sampled(8, 4)):
        interval = drawn_latency_interval(Random(f"markers {seed}"), 0.01)
        faults = Faults(worker_crashes=6, lost_connections=1, full_disks=1)
        _, wrong = run(seed, faults, latency_interval=interval)
        assert wrong == [], seed


def test_a_log_that_loses_its_last_entries(monkeypatch: Patch) -> None:
    right = ServiceLog.go_on
    monkeypatch.setattr(ServiceLog, "go_on", lambda log, number: right(log, number)[:-3])
    assert_noticed(first=15)


def test_a_second_channel_that_is_read_in_any_order(monkeypatch: Patch) -> None:
    def again(number: int, segments: Mapping[int, Segment]) -> OrderSince | None:
        right = order_since(number, segments)
        if right is None:
            return None
        first = [one for one in right.determinants if one.__class__ != Served or one.channel == 0]
        return replace(right, determinants=tuple(first))

    monkeypatch.setattr(service_log, "order_since", again)
    assert_noticed(first=16)


def test_a_segment_that_counts_also_what_lies_ahead_of_its_snapshot(monkeypatch: Patch) -> None:
    """The log is not cut where a snapshot was taken."""

    def again(number: int, segments: Mapping[int, Segment]) -> OrderSince | None:
        return order_since(min(segments), segments)

    monkeypatch.setattr(service_log, "order_since", again)
    assert_noticed(first=48)


def test_watermarks_that_are_merged_anew(monkeypatch: Patch) -> None:
    right = OrderedInput._poll_again

    def poll_again(input: OrderedInput, again: deque[Determinant]) -> Element | None:
        while again and isinstance(again[0], Passed):
            again.popleft()
        return right(input, again)

    monkeypatch.setattr(OrderedInput, "_poll_again", poll_again)
    assert_noticed(first=15)
