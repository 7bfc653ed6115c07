"""Operators by key in worker processes, one of which is killed: results are those of plain Python."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from tests.campaigns import soaked
from tests.runtime.jobs import numbers_of

pytestmark = pytest.mark.processes

COUNT, KEYS = 400, 7
NUMBERS = range(COUNT)


class Killer:
    """Kills its process at one record, once checkpoints hold something: half of all have been read."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __call__(self, number: int) -> int:
        if number == COUNT // 2 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number


class Known(rt.BroadcastProcess):
    """Tells at the end how much was broadcast, and how often the key came."""

    known = rt.BroadcastState()
    count = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        self.count.value += 1
        ctx.set_timer(10 * COUNT)

    def process_broadcast(self, record: int, ctx: rt.ProcessContext) -> None:
        self.known[record] = self.known.get(record, 0) + 1

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield (ctx.key, self.count.value, sorted(self.known.items()))


class Counted(rt.Process):
    """Tells of each number how many its subtask has had."""

    count = rt.ListState()

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[Any]:
        [before] = self.count.get() or [0]
        self.count.set([before + 1])
        yield ctx.subtask, before + 1, record


class CountedByAll(rt.Process):
    """The same, where each subtask is given the counts of all and picks its own."""

    counts = rt.ListState(redistribution="union")

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[Any]:
        count = 1 + max(
            (n for subtask, n in self.counts.get() if subtask == ctx.subtask), default=0
        )
        self.counts.set([(ctx.subtask, count)])
        yield ctx.subtask, count, record


def row(number: int) -> dict[str, int]:
    return {"key": number % KEYS, "n": number}


def distinct(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
    both = numbers.union(others)
    return both.map(row).key_by("key").distinct(uid="distinct").map(lambda r: r["key"])


def top(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
    others.sink(rt.DiscardSink(), uid="others-end")
    return numbers.map(row).key_by("key").top_n(3, "n", uid="top")


def of_a_day(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
    even = others.filter(lambda n: n % 2 == 0).map(lambda n: {"n": n, "square": n * n})
    columns = ["key", "n"], ["n", "square"]
    return numbers.map(row).join(even, on="n", ttl="1d", how="left", columns=columns, uid="joined")


def as_of(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
    versions = others.filter(lambda n: n % 10 == 0).map(
        lambda n: {"parity": n // 10 % 2, "since": n}
    )
    rows = numbers.map(lambda n: {"parity": n % 2, "n": n})
    columns = ["parity", "n"], ["parity", "since"]
    return rows.join_as_of(versions, on="parity", how="left", columns=columns, uid="as-of")


def broadcast(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
    few = others.filter(lambda n: n % 40 == 0)
    keyed = numbers.key_by(lambda n: n % KEYS)
    return keyed.connect(few.broadcast()).process(Known(), uid="known")


def listed(process: rt.Process) -> Callable[[rt.Stream, rt.Stream], rt.Stream]:
    def build(numbers: rt.Stream, others: rt.Stream) -> rt.Stream:
        others.sink(rt.DiscardSink(), uid="others-end")
        return numbers.process(process, uid="counted")

    return build


def without_gaps(rows: list[Any]) -> list[int]:
    """The numbers, after a look at the counts that came with them."""
    for subtask in {subtask for subtask, _, _ in rows}:
        counts = sorted(count for own, count, _ in rows if own == subtask)
        assert counts == [*range(1, len(counts) + 1)], f"subtask {subtask}"
    return sorted(number for _, _, number in rows)


def last_of_ranks(rows: list[Any]) -> Any:
    """Of a key and rank the largest number was given out last, as numbers only get better."""
    ranks: dict[Any, int] = {}
    for each in rows:
        at = each["key"], each["rank"]
        ranks[at] = max(ranks.get(at, -1), each["n"])
    assert len({(r["key"], r["rank"], r["n"]) for r in rows}) == len(rows), "nothing comes twice"
    return ranks


def of_key(key: int) -> list[int]:
    return [n for n in NUMBERS if n % KEYS == key]


def since(n: int) -> int | None:
    return max((m for m in range(0, n + 1, 10) if m // 10 % 2 == n % 2), default=None)


JOBS: dict[
    str, tuple[Callable[[rt.Stream, rt.Stream], rt.Stream], Callable[[list[Any]], Any], Any]
] = {
    "distinct": (distinct, sorted, [*range(KEYS)]),
    "top": (
        top,
        last_of_ranks,
        {(key, r): of_key(key)[-r] for key in range(KEYS) for r in (1, 2, 3)},
    ),
    "ttl": (
        of_a_day,
        lambda rows: Counter((r["n"], r["square"]) for r in rows),
        Counter((n, None if n % 2 else n * n) for n in NUMBERS),
    ),
    "as of": (
        as_of,
        lambda rows: Counter((r["n"], r["since"]) for r in rows),
        Counter((n, since(n)) for n in NUMBERS),
    ),
    "list": (listed(Counted()), without_gaps, [*NUMBERS]),
    "list of all": (listed(CountedByAll()), without_gaps, [*NUMBERS]),
    "broadcast": (
        broadcast,
        sorted,
        [(key, len(of_key(key)), [(n, 1) for n in range(0, COUNT, 40)]) for key in range(KEYS)],
    ),
}


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("mode", ["unaligned", *soaked("aligned")])
def test_a_killed_worker_changes_no_result(name: str, mode: Any, tmp_path: Path) -> None:
    build, shown, wanted = JOBS[name]
    env, sink = rt.Environment("killed", parallelism=2), rt.CollectSink()
    numbers = numbers_of(env, COUNT, "numbers", per_second=800)
    others = numbers_of(env, COUNT, "others", per_second=800)
    build(numbers.map(Killer(tmp_path / "killed")), others).sink(sink, uid="out")
    result: Any = env.execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="50ms", mode=mode),
        restart=rt.Restart.fixed_delay(3, 0.01),
        options=rt.Options(placement="slots", workers=2),
    )
    assert (tmp_path / "killed").exists()
    assert result.restarts == 1
    assert shown(sink.rows) == wanted
