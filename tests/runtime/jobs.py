"""Jobs to break: a numbered source, one job for each group of operators, and what each must put out.

The oracle is plain Python over the numbers that went in and shares no code with the runtime. Whatever
the order in which subtasks work, the bag of records that a job puts out is the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from minirt import (
    BadRecord,
    Environment,
    KeyedContext,
    KeyedCoProcess,
    KeyedProcess,
    ListState,
    MapState,
    Process,
    ProcessContext,
    Source,
    Split,
    SplitReader,
    Stream,
    ValueState,
    Watermarks,
)

Row = dict[str, Any]
Outputs = dict[str, Stream]
Expected = dict[str, list[Row]]

KEYS = 7
WINDOW_MS = 50
HELD = 100
_BATCH = 64


class Numbers(Source):
    """0 to `count` - 1; split i of n gives every n-th number, beginning with the i-th.

    Event time is the number. `per_second` is the pace of all splits together. Every number that
    `bad_every` divides does not parse. Without `count` it never ends. With `let_go`, the last `HELD`
    numbers come once that file is there: on no machine does the job end before a test wants it to. With
    `allowance`, those below the number in that file do.
    """

    interleave = True

    def __init__(
        self,
        count: int | None,
        *,
        splits: int = 4,
        per_second: float | None = None,
        bad_every: int | None = None,
        let_go: Path | None = None,
        allowance: Path | None = None,
    ) -> None:
        self._count = count
        self._splits = splits
        self._per_second = per_second
        self._bad_every = bad_every
        self._let_go = let_go
        self._allowance = allowance
        self.bounded = count is not None
        self.side_errors = bad_every is not None

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        return [Split(str(index), {"first": index}) for index in range(self._splits)]

    def open_split(self, split: Split, offset: Any) -> SplitReader:
        pace = None if self._per_second is None else self._per_second / self._splits
        first = split.info["first"]
        how = (pace, self._bad_every, self._let_go, self._allowance)
        return _NumbersReader(first, self._splits, self._count, offset or 0, *how)


class _NumbersReader(SplitReader):
    """Its offset is how many numbers it has gone through."""

    def __init__(
        self,
        first: int,
        step: int,
        count: int | None,
        offset: int,
        pace: float | None,
        bad_every: int | None,
        let_go: Path | None,
        allowance: Path | None,
    ) -> None:
        self._first = first
        self._step = step
        self._count = count
        self._pace = pace
        self._bad_every = bad_every
        self._let_go = let_go
        self._allowance = allowance
        self._opened_at = time.monotonic()
        self._opened_at_offset = offset
        self._bad: list[BadRecord] = []
        self.offset = offset

    def read(self) -> list[int] | None:
        due = self.offset + _BATCH
        if self._pace is not None:
            passed = time.monotonic() - self._opened_at
            due = min(due, self._opened_at_offset + 1 + int(passed * self._pace))
        numbers = [self._first + place * self._step for place in range(self.offset, due)]
        if self._count is not None:
            if self._first + self.offset * self._step >= self._count:
                return None
            held = 0 if self._let_go is None or self._let_go.exists() else HELD
            numbers = [number for number in numbers if number < self._count - held]
        if self._allowance is not None:
            allowed = int(self._allowance.read_text())
            numbers = [number for number in numbers if number < allowed]
        self.offset += len(numbers)
        if self._bad_every is None:
            return numbers
        bad = [number for number in numbers if number % self._bad_every == 0]
        self._bad += [BadRecord(str(number), "?", "is bad") for number in bad]
        return [number for number in numbers if number % self._bad_every]

    def take_bad_records(self) -> list[BadRecord]:
        bad, self._bad = self._bad, []
        return bad


@dataclass(frozen=True)
class Case:
    """A job with its oracle. `build` adds to an environment, `expected` takes numbers and parallelism."""

    name: str
    build: Callable[[Environment, Stream, Callable[[str], Stream]], Outputs]
    expected: Callable[[range, int], Expected]


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Records without their order."""
    return Counter(repr(sorted(row.items())) for row in rows)


def numbers_of(
    env: Environment,
    count: int | None,
    name: str,
    *,
    per_second: float | None,
    splits: int = 4,
    let_go: Path | None = None,
    allowance: Path | None = None,
) -> Stream:
    source = Numbers(
        count, splits=splits, per_second=per_second, let_go=let_go, allowance=allowance
    )
    return env.source(source, uid=name, watermarks=Watermarks.monotonous(timestamp=lambda n: n))


def build(
    case: Case,
    env: Environment,
    count: int,
    *,
    per_second: float | None = None,
    let_go: Path | None = None,
    allowance: Path | None = None,
) -> dict[str, Stream]:
    """Add the case to the environment; its uids begin with the name of the case."""

    def another(name: str) -> Stream:
        uid = f"{case.name}-{name}"
        return numbers_of(
            env, count, uid, per_second=per_second, let_go=let_go, allowance=allowance
        )

    return case.build(env, another("numbers"), another)


# Operators that look at each record alone.


def _stateless(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    rows = (
        numbers.map(lambda n: n + 1)
        .filter(lambda n: n % 3 != 0)
        .flat_map(lambda n: [n] * (n % 4))
        .map_batches(lambda batch: [{"n": n} for n in batch])
        .rebalance()
        .map_batches(_add_square, "columns")
        .rescale()
        .map(lambda row: {**row, "odd": row["n"] % 2 == 1})
        .forward()
        .filter(lambda row: row["square"] > 10)
    )
    return {"rows": rows}


def _add_square(table: pa.RecordBatch) -> pa.RecordBatch:
    numbers = table.column("n").to_pylist()
    squares = pa.array([n * n for n in numbers], pa.int64())
    return pa.record_batch([table.column("n"), squares], names=["n", "square"])


def _stateless_expected(numbers: range, parallelism: int) -> Expected:
    kept = [n + 1 for n in numbers if (n + 1) % 3]
    return {
        "rows": [
            {"n": n, "square": n * n, "odd": n % 2 == 1}
            for n in kept
            for _ in range(n % 4)
            if n * n > 10
        ]
    }


# Keyed state of all kinds, with event-time timers.


class Ledger(KeyedProcess):
    """Numbers each record of a key, and reports each window of event time at its end."""

    seen = ValueState(default=0)
    numbers = ListState()
    per_digit = MapState()

    def process(self, record: int, ctx: KeyedContext) -> Iterable[Row]:
        self.seen.value += 1
        self.numbers.add(record)
        self.per_digit[record % 10] = self.per_digit.get(record % 10, 0) + 1
        ctx.set_timer(record // WINDOW_MS * WINDOW_MS + WINDOW_MS - 1)
        yield {"key": ctx.key, "seq": self.seen.value}

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[Row]:
        numbers = self.numbers.get()
        later = [n for n in numbers if n > timestamp]
        self.numbers.set(later)
        total = sum(n for n in numbers if n <= timestamp)
        count = sum(self.per_digit.values()) - len(later)
        yield {"key": ctx.key, "until": timestamp, "total": total, "so far": count}


def _keyed(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    return {"ledger": numbers.key_by(lambda n: n % KEYS).process(Ledger(), uid="ledger")}


def _keyed_expected(numbers: range, parallelism: int) -> Expected:
    rows: list[Row] = []
    for key in range(KEYS):
        own = [n for n in numbers if n % KEYS == key]
        rows += [{"key": key, "seq": place} for place in range(1, len(own) + 1)]
        for window in sorted({n // WINDOW_MS for n in own}):
            until = window * WINDOW_MS + WINDOW_MS - 1
            total = sum(n for n in own if n // WINDOW_MS == window)
            count = sum(n <= until for n in own)
            rows.append({"key": key, "until": until, "total": total, "so far": count})
    return {"ledger": rows}


class Postponed(KeyedProcess):
    """Holds records back until the clock has moved on by 30 ms."""

    held = ListState()

    def process(self, record: int, ctx: KeyedContext) -> None:
        if not self.held.get():
            ctx.set_processing_timer(ctx.processing_time + 30)
        self.held.add(record)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[Row]:
        released = self.held.get()
        self.held.clear()
        return [{"n": n} for n in released]


def _postponed(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    return {"released": numbers.key_by(lambda n: n % KEYS).process(Postponed(), uid="postponed")}


def _postponed_expected(numbers: range, parallelism: int) -> Expected:
    return {"released": [{"n": n} for n in numbers]}


def _reduced(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    rows = numbers.map(lambda n: {"key": f"k{n % KEYS}", "count": 1})
    counted = rows.key_by("key").reduce(
        lambda one, other: {"key": one["key"], "count": one["count"] + other["count"]}, uid="count"
    )
    return {"counts": counted}


def _reduced_expected(numbers: range, parallelism: int) -> Expected:
    sizes = Counter(n % KEYS for n in numbers)
    rows = [
        {"key": f"k{key}", "count": count}
        for key, size in sizes.items()
        for count in range(1, size + 1)
    ]
    return {"counts": rows}


class Numbering(KeyedProcess):
    """Numbers the records of a key in the order in which they come."""

    seen = ValueState(default=0)

    def process(self, record: int, ctx: KeyedContext) -> Iterable[Row]:
        self.seen.value += 1
        yield {"n": record, "key": ctx.key, "seq": self.seen.value}


class Times(KeyedProcess):
    """Says how often a record has come, and no more of it than does not depend on the order."""

    times = ValueState(default=0)

    def process(self, row: Row, ctx: KeyedContext) -> Iterable[Row]:
        self.times.value += 1
        yield {"key": row["key"], "seq": row["seq"], "times": self.times.value}


def _numbered(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    numbered = numbers.key_by(lambda n: n % KEYS).process(Numbering(), uid="numbering")
    return {"times": numbered.key_by(lambda row: row["n"]).process(Times(), uid="times")}


def _numbered_expected(numbers: range, parallelism: int) -> Expected:
    sizes = Counter(n % KEYS for n in numbers)
    return {
        "times": [
            {"key": key, "seq": seq, "times": 1}
            for key, size in sizes.items()
            for seq in range(1, size + 1)
        ]
    }


# Several streams.


def _united(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    negative = numbers.map(lambda n: -n - 1)
    united = numbers.union(numbers, negative, another("others")).map(lambda n: {"n": n})
    return {"united": united}


def _united_expected(numbers: range, parallelism: int) -> Expected:
    return {"united": [{"n": m} for n in numbers for m in (n, n, -n - 1, n)]}


class Pairing(KeyedCoProcess):
    """Emits a pair as soon as the second half of it has come."""

    left = ValueState()
    right = ValueState()

    def process_left(self, record: int, ctx: KeyedContext) -> Iterable[Row]:
        self.left.value = record
        return self._pair()

    def process_right(self, record: Row, ctx: KeyedContext) -> Iterable[Row]:
        self.right.value = record["text"]
        return self._pair()

    def _pair(self) -> list[Row]:
        left, right = self.left.value, self.right.value
        return [] if left is None or right is None else [{"left": left, "right": right}]


def _connected(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    texts = another("texts").map(lambda n: {"id": n, "text": f"<{n}>"})
    pairs = numbers.connect(texts).key_by(lambda n: n, "id").process(Pairing(), uid="pairs")
    mapped = numbers.connect(texts).map(lambda n: {"n": n}, lambda row: {"text": row["text"]})
    flat = numbers.connect(texts).flat_map(lambda n: [{"n": n}] * 2, lambda row: [])
    return {"pairs": pairs, "mapped": mapped, "flat": flat}


def _connected_expected(numbers: range, parallelism: int) -> Expected:
    mapped: list[Row] = [{"n": n} for n in numbers]
    return {
        "pairs": [{"left": n, "right": f"<{n}>"} for n in numbers],
        "mapped": mapped + [{"text": f"<{n}>"} for n in numbers],
        "flat": mapped * 2,
    }


# Who receives what.


class Where(Process):
    """Tells which subtask a record has come to."""

    def process(self, record: int, ctx: ProcessContext) -> Iterable[Row]:
        return [{"n": record, "subtask": ctx.subtask}]


def _dealt(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    custom = numbers.partition_custom(lambda key, parts: key % parts, lambda n: n + 1)
    return {
        "broadcast": numbers.broadcast().process(Where()),
        "custom": custom.process(Where()),
    }


def _dealt_expected(numbers: range, parallelism: int) -> Expected:
    everywhere = range(parallelism)
    return {
        "broadcast": [{"n": n, "subtask": subtask} for n in numbers for subtask in everywhere],
        "custom": [{"n": n, "subtask": (n + 1) % parallelism} for n in numbers],
    }


class Sorter(Process):
    """Odd numbers go aside."""

    def process(self, record: int, ctx: ProcessContext) -> Iterable[Row]:
        if record % 2:
            ctx.side("odd", {"odd": record})
            return []
        return [{"even": record}]


def _sides(env: Environment, numbers: Stream, another: Callable[[str], Stream]) -> Outputs:
    sorted_ = numbers.process(Sorter())
    return {"even": sorted_, "odd": sorted_.side_output("odd")}


def _sides_expected(numbers: range, parallelism: int) -> Expected:
    return {
        "even": [{"even": n} for n in numbers if n % 2 == 0],
        "odd": [{"odd": n} for n in numbers if n % 2],
    }


CASES = {
    case.name: case
    for case in (
        Case("stateless", _stateless, _stateless_expected),
        Case("keyed", _keyed, _keyed_expected),
        Case("postponed", _postponed, _postponed_expected),
        Case("reduced", _reduced, _reduced_expected),
        Case("numbered", _numbered, _numbered_expected),
        Case("united", _united, _united_expected),
        Case("connected", _connected, _connected_expected),
        Case("dealt", _dealt, _dealt_expected),
        Case("sides", _sides, _sides_expected),
    )
}
