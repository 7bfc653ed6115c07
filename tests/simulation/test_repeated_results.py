"""Workers that come back alone and give out results of many keys at a time, in the order of before.

State is kept in another order after a restore: so what goes by that order must be noticed here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import minirt as rt
from minirt.api.stream import Stream
from minirt.testing import SimulationResult, TransactionalSink
from minirt.testing.contracts.restoring import restore_in_any_order
from tests.campaigns import sampled
from tests.simulation.test_replays import EXPECTED
from tests.simulation.test_service_order import run

Patch = pytest.MonkeyPatch
Results = Counter[tuple[Any, ...]]

KEYS, WINDOW, SLIDE, GAP, COUNTED, TOP, OPEN = 16, 12, 4, 7, 3, 2, 20
SEEDS = 100


def key_of(record: Any) -> int:
    return (record[1] * 5 + record[2]) % KEYS  # type: ignore[no-any-return]


def id_of(record: Any) -> int:
    return 1000 * record[1] + record[2]  # type: ignore[no-any-return]


class Seen(rt.KeyedProcess):
    """Adds how often a result has come."""

    times = rt.ValueState(0)

    def process(self, result: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.times.value += 1
        yield (*result, self.times.value)


class Numbers(rt.WindowProcess):
    """The records of a window, and how many results it has had."""

    given = rt.ValueState(0)

    def process(self, records: list[Any], ctx: rt.WindowContext) -> Iterable[Any]:
        self.given.value += 1
        numbers = sorted(row["id"] for row in records)
        yield (ctx.key, ctx.start, len(numbers), sum(numbers), self.given.value)


def millis(row: dict[str, Any]) -> int:
    return round(row["window_start"].timestamp() * 1000)


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["k"], millis(row), row["count"], row["sum"])


AGGREGATES = (rt.Count(), rt.Sum("id", "sum"))


def tumbling(keyed: Any) -> Any:
    windows = keyed.window(rt.Tumbling(f"{WINDOW}ms"))
    return windows.aggregate(*AGGREGATES, uid="results").map(shown, uid="shown")


def sliding(keyed: Any) -> Any:
    windows = keyed.window(rt.Sliding(f"{WINDOW}ms", f"{SLIDE}ms"))
    return windows.aggregate(*AGGREGATES, uid="results").map(shown, uid="shown")


def sessions(keyed: Any) -> Any:
    windows = keyed.window(rt.Session(f"{GAP}ms"))
    return windows.aggregate(*AGGREGATES, uid="results").map(shown, uid="shown")


def of_rows(keyed: Any) -> Any:
    return keyed.window(rt.Tumbling(f"{WINDOW}ms")).process(Numbers(), uid="results")


def open_sessions(keyed: Any) -> Any:
    """Results that are taken back when a session grows: updates of all of them."""
    windows = keyed.window(rt.Session(f"{GAP}ms", allowed_lateness=f"{OPEN}ms"))
    results = windows.aggregate(*AGGREGATES, emit="updates", uid="results")
    return results.map(
        lambda row: (row["k"], millis(row), row["count"], row["sum"], row["pane"]), uid="shown"
    )


def early(keyed: Any) -> Any:
    """Results after every batch that has changed them."""
    windows = keyed.window(rt.Sliding(f"{WINDOW}ms", f"{SLIDE}ms"))
    results = windows.aggregate(*AGGREGATES, emit="updates", uid="results")
    return results.map(lambda row: (*shown(row), row["pane"]), uid="shown")


def counted(keyed: Any) -> Any:
    windows = keyed.window(rt.CountWindow(COUNTED))
    return windows.aggregate(*AGGREGATES, uid="results").map(
        lambda row: (row["k"], row["sum"], row["count"]), uid="shown"
    )


def at_the_end(keyed: Any) -> Any:
    results = keyed.aggregate(*AGGREGATES, emit="end", uid="results")
    return results.map(lambda row: (row["k"], 0, row["count"], row["sum"]), uid="shown")


def first(keyed: Any) -> Any:
    results = keyed.top_n(TOP, by="id", uid="results")
    return results.map(lambda row: (row["k"], row["rank"], row["id"]), uid="shown")


def ids_of(windows: Callable[[int, Sequence[int]], Iterable[int]]) -> Results:
    """The results of windows: `windows` says those of a time, given all times of its key."""
    times: dict[int, set[int]] = defaultdict(set)
    for record in EXPECTED:
        times[key_of(record)].add(record[2])
    held: dict[tuple[int, int], list[int]] = defaultdict(list)
    for record in EXPECTED:
        key = key_of(record)
        for start in windows(record[2], sorted(times[key])):
            held[key, start].append(id_of(record))
    return Counter((*window, len(ids), sum(ids)) for window, ids in held.items())


def begin_of_session(time: int, times: Sequence[int]) -> int:
    begin = time
    for other in sorted((t for t in times if t < time), reverse=True):
        if begin - other > GAP:
            break
        begin = other
    return begin


TUMBLING = ids_of(lambda time, _: [time // WINDOW * WINDOW])
SLIDING = ids_of(lambda time, _: range(time // SLIDE * SLIDE - WINDOW + SLIDE, time + 1, SLIDE))
SESSIONS = ids_of(lambda time, times: [begin_of_session(time, times)])
ENDS = ids_of(lambda time, _: [0])


def differs(expected: Results, got: Iterable[tuple[Any, ...]]) -> list[str]:
    found = Counter(got)
    lost, more = list((expected - found).items())[:2], list((found - expected).items())[:2]
    return [f"lost {lost}, more {more}"] if lost or more else []


def exactly(expected: Results) -> Callable[[TransactionalSink], list[str]]:
    return lambda sink: differs(expected, (row[:4] for row in sink.rows))


def rows_once(sink: TransactionalSink) -> list[str]:
    again = [f"{row} is no first result" for row in sink.rows if row[-2] != 1]
    return [*again, *differs(TUMBLING, (row[:4] for row in sink.rows))]


def on_time(expected: Results) -> Callable[[TransactionalSink], list[str]]:
    """Also that no update comes twice: each counts more records than the one before."""

    def judge(sink: TransactionalSink) -> list[str]:
        twice = [f"{row} came again" for row in sink.rows if row[4] == "early" and row[-1] > 1]
        return twice + differs(expected, (row[:4] for row in sink.rows if row[4] == "on_time"))

    return judge


def counted_once(sink: TransactionalSink) -> list[str]:
    """How records come together depends on their order; each counts once."""
    sizes = Counter(key_of(record) for record in EXPECTED)
    windows = Counter({key: size // COUNTED for key, size in sizes.items()})
    got = Counter(row[0] for row in sink.rows)
    wrong = [f"{row} has another size" for row in sink.rows if row[2] != COUNTED]
    wrong += [f"{row} came again" for row in sink.rows if row[-1] > 1]
    return wrong + ([f"{got - windows} more, {windows - got} less"] if got != windows else [])


def ranked(sink: TransactionalSink) -> list[str]:
    """A record only moves down, so no rank of it comes twice; the last ones are those of all records."""
    wrong = [f"{row} came again" for row in sink.rows if row[-1] > 1]
    ids: dict[int, list[int]] = defaultdict(list)
    for record in EXPECTED:
        ids[key_of(record)].append(id_of(record))
    got = {row[:3] for row in sink.rows}
    for key, of_key in ids.items():
        for rank, id in enumerate(sorted(of_key, reverse=True)[:TOP], start=1):
            if (key, rank, id) not in got:
                wrong.append(f"rank {rank} of key {key} is missing")
    return wrong


@dataclass(frozen=True)
class Kind:
    results: Callable[[Any], Any]
    judge: Callable[[TransactionalSink], list[str]]

    def stages(self, random: Random, source: Stream[Any], sink: rt.Sink) -> None:
        rows = source.map(lambda record: {"k": key_of(record), "id": id_of(record)}, uid="rows")
        results = self.results(rows.key_by("k"))
        seen = results.key_by(lambda result: result).process(Seen(), uid="seen")
        seen.sink(sink, uid="out")

    def run(self, seed: int) -> tuple[SimulationResult, list[str]]:
        with Patch.context() as patch:
            restore_in_any_order(patch)
            return run(seed, stages=self.stages, judge=self.judge, interval="300ms")


KINDS = {
    "tumbling": Kind(tumbling, exactly(TUMBLING)),
    "sliding": Kind(sliding, exactly(SLIDING)),
    "sessions": Kind(sessions, exactly(SESSIONS)),
    "open sessions": Kind(open_sessions, on_time(SESSIONS)),
    "early": Kind(early, on_time(SLIDING)),
    "of rows": Kind(of_rows, rows_once),
    "counted": Kind(counted, counted_once),
    "at the end": Kind(at_the_end, exactly(ENDS)),
    "top": Kind(first, ranked),
}


COMING_BACK = 3
"""The first run of each kind has a comeback."""


@pytest.mark.parametrize("kind", KINDS)
def test_results_come_once(kind: str) -> None:
    comebacks = 0
    for seed in range(COMING_BACK, COMING_BACK + sampled(2)):
        result, wrong = KINDS[kind].run(seed)
        assert wrong == [], seed
        comebacks += result.comebacks
    assert comebacks
