"""Whatever a function of a user raises: the error names the operator and the record, and the job fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.io.base import Prepared, SinkContext
from minirt.testing.quiet import quiet

DRAW = (Phase.explicit, Phase.generate)
"""To find the simplest case takes long, and tells nothing here."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with quiet():
        yield


CULPRIT = 7
"""The record at which functions raise."""


class Unprintable(Exception):
    """An error that neither pickles nor can be shown."""

    def __reduce__(self) -> Any:
        raise TypeError("it does not travel")

    def __str__(self) -> str:
        raise LookupError("it cannot be shown")


class Foreign(BaseException):
    """As test frameworks and greenlets raise them."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("a stone in the way"),
    "StopIteration": lambda: StopIteration("a stone in the way"),
    "StopAsyncIteration": lambda: StopAsyncIteration("a stone in the way"),
    "CancelledError": lambda: asyncio.CancelledError("a stone in the way"),
    "GeneratorExit": lambda: GeneratorExit("a stone in the way"),
    "SystemExit": lambda: SystemExit(0),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("a stone in the way"),
    "Unprintable": Unprintable,
    "Foreign": lambda: Foreign("a stone in the way"),
    "of minirt": lambda: rt.MinirtError("a stone in the way"),
    "without words": AssertionError,
}

raised = "ValueError"


def number_of(record: Any) -> int:
    return int(record["n"])


def stumble(number: int) -> int:
    """As the function of a user: raises at the record."""
    if number == CULPRIT:
        raise RAISED[raised]()
    return number


def at(record: Any) -> Any:
    stumble(number_of(record))
    return record


def key(record: Any) -> int:
    return stumble(record["n"])


def at_batch(records: Any) -> Any:
    for record in records if isinstance(records, list) else records.to_pylist():
        at(record)
    return records


def at_any(*given: Any, **named: Any) -> Any:
    raise RAISED[raised]()


async def answer(record: Any) -> Any:
    await asyncio.sleep(0)
    return at(record)


class Each(rt.Process):
    def process(self, record: Any, ctx: rt.Context) -> Any:
        yield at(record)


class Keyed(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        return [at(record)]


class Timed(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        ctx.set_timer(ctx.timestamp)
        return []

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Any:
        stumble(timestamp)
        return []


class Both(rt.KeyedCoProcess):
    def process_left(self, record: Any, ctx: rt.KeyedContext) -> Any:
        return []

    def process_right(self, record: Any, ctx: rt.KeyedContext) -> Any:
        return [at(record)]


class Told(rt.BroadcastProcess):
    def process(self, record: Any, ctx: Any) -> Any:
        return []

    def process_broadcast(self, record: Any, ctx: Any) -> Any:
        return [at(record)]


class InWindow(rt.WindowProcess):
    def process(self, records: Any, ctx: Any) -> Any:
        return [at(record) for record in records]


class Folded(rt.Fold):
    def of(self, values: pa.Array) -> int:
        return max(stumble(value) for value in values.to_pylist())

    def merge(self, earlier: int, later: int) -> int:
        return earlier


class Marks(rt.WatermarkGenerator):
    def on_event(self, record: Any, timestamp: int) -> None:
        at(record)

    def watermark(self) -> None:
        return None


class Written(rt.Sink, rt.SinkWriter):
    def open_writer(self, context: SinkContext) -> rt.SinkWriter:
        return self

    def write(self, batch: Any) -> None:
        at_batch(batch.rows().records)

    def prepare(self, checkpoint_id: int) -> Prepared:
        return Prepared([{"n": 1}])

    def commit(self, handles: Any) -> None:
        pass


class Rows(rt.Source, rt.SplitReader):
    """Records, as rows or columns; its reader raises if it is told so."""

    def __init__(self, columns: bool, fails: bool = False, offset: int = 0) -> None:
        self.columns, self.fails, self.offset = columns, fails, offset

    def schema(self) -> pa.Schema | None:
        return pa.schema({"n": pa.int64(), "k": pa.int64()}) if self.columns else None

    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        return [rt.Split("one")]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return Rows(self.columns, self.fails, offset or 0)

    def read(self) -> Any:
        if self.offset >= 10:
            return None
        numbers = range(self.offset, self.offset + 5)
        self.offset += 5
        rows = [{"n": n, "k": n % 2} for n in numbers]
        if self.fails:
            at_batch(rows)
        return pa.RecordBatch.from_pylist(rows, self.schema()) if self.columns else rows


def by_key(stream: Any) -> Any:
    return stream.key_by("k")


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(at, uid="x"),
    "filter": lambda s: s.filter(at, uid="x"),
    "flat_map": lambda s: s.flat_map(lambda record: [at(record)], uid="x"),
    "map_batches": lambda s: s.map_batches(at_batch, uid="x"),
    "map_batches of columns": lambda s: s.map_batches(at_batch, "columns", uid="x"),
    "map_async": lambda s: s.map_async(answer, uid="x"),
    "map_async by key": lambda s: s.key_by(key).map_async(answer, uid="x"),
    "key of reduce": lambda s: s.key_by(key).reduce(max, uid="x"),
    "key of distinct": lambda s: s.key_by(key).distinct(uid="x"),
    "key of process": lambda s: s.key_by(key).process(Keyed(), uid="x"),
    "key of window": lambda s: s.key_by(key).window(rt.Tumbling("1s")).reduce(max, uid="x"),
    "partitioner": lambda s: s.partition_custom(lambda n, of: stumble(n) % of, "n").map(
        at, uid="x"
    ),
    "key of partitioner": lambda s: s.partition_custom(
        lambda n, of: n % of, lambda record: stumble(record["n"])
    ).map(lambda record: record, uid="x"),
    "reduce": lambda s: by_key(s).reduce(lambda one, other: at(other), uid="x"),
    "process": lambda s: s.process(Each(), uid="x"),
    "keyed process": lambda s: by_key(s).process(Keyed(), uid="x"),
    "timer": lambda s: by_key(s).process(Timed(), uid="x"),
    "two inputs": lambda s: s.connect(s).key_by("k", "k").process(Both(), uid="x"),
    "broadcast": lambda s: by_key(s).connect(s.broadcast()).process(Told(), uid="x"),
    "co_map": lambda s: s.connect(s).map(lambda record: record, at, uid="x"),
    "window process": lambda s: by_key(s).window(rt.Tumbling("1s")).process(InWindow(), uid="x"),
    "window reduce": lambda s: (
        by_key(s).window(rt.Session("1s")).reduce(lambda one, other: at(other), uid="x")
    ),
    "aggregate": lambda s: by_key(s).aggregate(Folded("n", "m", pa.int64()), uid="x"),
    "window aggregate": lambda s: (
        by_key(s).window(rt.Tumbling("1s")).aggregate(Folded("n", "m", pa.int64()), uid="x")
    ),
}
OF_THE_SENDER = ("key of", "partitioner", "map_async by key")
"""Functions that the operator calls which sends, the source, or at parallelism 1 that which receives."""


def failure(
    build: Callable[[Any], Any],
    columns: bool,
    parallelism: int,
    marks: rt.Watermarks | None = None,
    **source: Any,
) -> str:
    marks = marks or rt.Watermarks.monotonous(timestamp="n")
    env = rt.Environment("j", parallelism=parallelism)
    stream = env.source(Rows(columns, **source), watermarks=marks, uid="the-source")
    build(stream)
    with pytest.raises(rt.JobFailedError) as caught:
        env.execute(runner="inline", restart=rt.Restart.none())
    return str(caught.value)


def check(told: str, *operators: str) -> None:
    first, *_ = told.splitlines()
    assert any(operator in first for operator in operators), told
    shown = first.partition("failed on record ")[2]
    several = shown.startswith("[") and "7" in shown
    assert several or shown.startswith(
        ("{'n': 7,", "{'n': 7}", "'timer at 7", "the window from 0")
    ), told


kinds = st.sampled_from(list(RAISED))


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=6, deadline=None, phases=DRAW)
@given(kind=kinds, columns=st.booleans(), parallelism=st.sampled_from((1, 2)))
def test_a_function_names_operator_and_record(
    name: str, kind: str, columns: bool, parallelism: int
) -> None:
    global raised
    raised = kind
    if "partitioner" in name:
        parallelism = 2  # With one receiver nobody asks it.
    told = failure(lambda s: OPERATORS[name](s).sink(rt.DiscardSink()), columns, parallelism)
    check(told, *(("the-source", "uid x") if name.startswith(OF_THE_SENDER) else ("uid x",)))


@settings(max_examples=12, deadline=None, phases=DRAW)
@given(kind=kinds, columns=st.booleans())
def test_a_sink_names_itself_and_the_record(kind: str, columns: bool) -> None:
    global raised
    raised = kind
    told = failure(lambda s: s.sink(Written(), uid="the-sink"), columns, 1)
    if kind == "of minirt":  # A sink says by itself what it refuses.
        assert "a stone in the way" in told
    else:
        check(told, "the-sink")


@settings(max_examples=12, deadline=None, phases=DRAW)
@given(kind=kinds, columns=st.booleans())
def test_a_reader_names_its_source_and_split(kind: str, columns: bool) -> None:
    global raised
    raised = kind
    told = failure(lambda s: s.sink(rt.DiscardSink()), columns, 1, fails=True)
    if kind != "of minirt":
        assert "the-source" in told, told
        assert "split one" in told, told


@settings(max_examples=12, deadline=None, phases=DRAW)
@given(kind=kinds, columns=st.booleans(), generated=st.booleans())
def test_event_time_names_source_and_record(kind: str, columns: bool, generated: bool) -> None:
    global raised
    raised = kind
    marks = rt.Watermarks.monotonous(timestamp=lambda record: stumble(record["n"]))
    if generated:
        marks = rt.Watermarks.generated(Marks, timestamp="n")
    told = failure(lambda s: s.sink(rt.DiscardSink()), columns, 1, marks)
    check(told, "the-source")


@settings(max_examples=12, deadline=None, phases=DRAW)
@given(
    kind=kinds,
    where=st.sampled_from(
        ("open_split", "open_writer", "prepare", "plan_splits", "open", "commit")
    ),
)
def test_other_methods_name_their_operator(kind: str, where: str, tmp_path_factory: Any) -> None:
    global raised
    raised = kind
    of_source = where in ("open_split", "plan_splits")
    source = type("OwnRows", (Rows,), {where: at_any} if of_source else {})(False)
    sink = type("OwnSink", (Written,), {where: at_any, "write": Quiet.write})()
    env = rt.Environment("j")
    stream = env.source(source, uid="the-source")
    if where == "open":
        stream = stream.process(type("Opened", (Quiet,), {"open": at_any})(), uid="the-process")
    stream.sink(rt.DiscardSink() if of_source or where == "open" else sink, uid="the-sink")
    told = ""
    try:
        checkpointing = rt.Checkpointing(
            tmp_path_factory.mktemp("chk"), interval="1h", tolerable_failures=0
        )
        env.execute(runner="inline", checkpointing=checkpointing, restart=rt.Restart.none())
    except rt.JobFailedError as error:
        told = str(error)
    named = "the-source" if of_source else "the-process" if where == "open" else "the-sink"
    assert named in told or kind == "of minirt", told
    assert told


class Quiet(rt.Process):
    def process(self, record: Any, ctx: rt.Context) -> Any:
        return [record]

    def write(self, batch: Any) -> None:
        pass
