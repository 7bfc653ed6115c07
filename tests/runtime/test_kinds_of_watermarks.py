"""Watermarks told by each record, by a column, or by a generator of the user; what bad ones are told."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.graph.explain import explain
from minirt.graph.planner import build_execution_graph

LONG_INTERVAL = rt.Options(limits=rt.Limits(watermark_interval_s=3600))
"""Watermarks that come periodically come at the beginning and never again."""


class Batches(rt.Source):
    """One split of batches, as they are given: lists or columns."""

    def __init__(self, *splits: Sequence[Any], schema: pa.Schema | None = None) -> None:
        self.splits = splits
        self._schema = schema

    interleave = True

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split(str(place), {"place": place}) for place in range(len(self.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(iter(self.splits[split.info["place"]]))

    def schema(self) -> pa.Schema | None:
        return self._schema


class _Reader(rt.SplitReader):
    def __init__(self, batches: Iterator[Any]) -> None:
        self.offset = 0
        self._batches = batches

    def read(self) -> Any:
        return next(self._batches, None)


class Seen(rt.Process):
    """The time of each record, and the watermark that it found."""

    def process(
        self, record: Any, ctx: rt.ProcessContext
    ) -> Iterable[tuple[int | None, int | None]]:
        yield ctx.timestamp, ctx.watermark


def seen(source: rt.Source, marks: rt.Watermarks) -> list[tuple[int, int | None]]:
    env, sink = rt.Environment(), rt.CollectSink()
    env.source(source, watermarks=marks).process(Seen()).sink(sink)
    env.execute(runner="inline", options=LONG_INTERVAL)
    return sink.rows


def dicts(*times: int, **more: Sequence[Any]) -> list[dict[str, Any]]:
    others = [dict(zip(more, values, strict=True)) for values in zip(*more.values(), strict=True)]
    return [
        {"at": at, **other} for at, other in zip(times, others or [{}] * len(times), strict=True)
    ]


def columns(records: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(records)


def both(records: list[dict[str, Any]]) -> list[rt.Source]:
    table = columns(records)
    return [Batches([records]), Batches([table], schema=table.schema)]


RECORDS = dicts(10, 12, 11, 20)


@pytest.mark.parametrize("source", both(RECORDS), ids=["rows", "columns"])
def test_each_record_tells_a_watermark_before_the_next(source: rt.Source) -> None:
    marks = rt.Watermarks.bounded("2ms", timestamp="at", emit="per record")
    assert seen(source, marks) == [(10, None), (12, 7), (11, 9), (20, 9)]


@pytest.mark.parametrize("source", both(RECORDS), ids=["rows", "columns"])
def test_periodic_watermarks_wait_for_their_interval(source: rt.Source) -> None:
    marks = rt.Watermarks.bounded("2ms", timestamp="at")
    assert seen(source, marks) == [(10, None), (12, None), (11, None), (20, None)]


PROMISES = [None, 5, 3, None]
TOLD = [(10, None), (12, None), (11, 5), (20, 5)]


@pytest.mark.parametrize(
    "source", both(dicts(10, 12, 11, 20, sure=PROMISES)), ids=["rows", "columns"]
)
def test_a_column_tells_the_watermark(source: rt.Source) -> None:
    marks = rt.Watermarks.from_column("sure", timestamp="at", emit="per record")
    assert seen(source, marks) == TOLD


def test_a_column_of_times_tells_the_watermark() -> None:
    times = [None, dt.datetime(1970, 1, 1, 0, 0, 0, 5000), None, None]
    for source in both(dicts(10, 12, 11, 20, sure=times)):
        marks = rt.Watermarks.from_column("sure", timestamp="at", emit="per record")
        assert seen(source, marks) == TOLD


class Newest(rt.WatermarkGenerator):
    """The newest event time: no later one is as old."""

    def __init__(self) -> None:
        self.newest: Any = None

    def on_event(self, record: Any, timestamp: int) -> None:
        assert record == {"at": timestamp}
        self.newest = timestamp if self.newest is None else max(timestamp, self.newest)

    def watermark(self) -> Any:
        return self.newest


class NewestOfBatch(Newest):
    def on_batch(self, records: Any, timestamps: Any) -> None:
        assert len(records) == len(timestamps)
        newest = timestamps.max()
        self.newest = newest if self.newest is None else max(newest, self.newest)


@pytest.mark.parametrize("kind", [Newest, NewestOfBatch])
@pytest.mark.parametrize("source", both(RECORDS), ids=["rows", "columns"])
def test_a_generator_tells_the_watermark(source: rt.Source, kind: type[Newest]) -> None:
    marks = rt.Watermarks.generated(kind, timestamp="at", emit="per record")
    assert seen(source, marks) == [(10, None), (12, 10), (11, 12), (20, 12)]


def test_each_split_has_a_generator_and_the_least_watermark_holds() -> None:
    marks = rt.Watermarks.generated(Newest, timestamp="at", emit="per record")
    source = Batches([dicts(1), dicts(5)], [dicts(3), dicts(9)])
    assert seen(source, marks) == [(1, None), (3, None), (5, 1), (9, 3)]


class OnlyTogether(NewestOfBatch):
    def on_batch(self, records: Any, timestamps: Any) -> None:
        assert len(records) == 250
        super().on_batch(records, timestamps)


def test_a_generator_gets_what_was_read_at_once() -> None:
    marks = rt.Watermarks.generated(OnlyTogether, timestamp="at")
    assert len(seen(Batches([dicts(*range(250))]), marks)) == 250


def test_a_generator_may_go_by_a_clock() -> None:
    class Clock(rt.WatermarkGenerator):
        def watermark(self) -> dt.datetime:
            return dt.datetime(1970, 1, 1, 0, 0, 0, 4000)

    marks = rt.Watermarks.generated(Clock, timestamp="at", emit="per record")
    assert seen(Batches([dicts(10, 12)]), marks) == [(10, None), (12, 4)]


def test_a_generator_that_goes_back_is_told_so_once(caplog: pytest.LogCaptureFixture) -> None:
    class Back(Newest):
        def on_event(self, record: Any, timestamp: int) -> None:
            self.newest = timestamp

    marks = rt.Watermarks.generated(Back, timestamp="at", emit="per record")
    with caplog.at_level(logging.WARNING, "minirt"):
        assert seen(Batches([dicts(10, 7, 6)]), marks) == [(10, None), (7, 10), (6, 10)]
    told = [record.getMessage() for record in caplog.records if "went back" in record.getMessage()]
    assert len(told) == 1
    assert "the watermark generator of source" in told[0]
    assert "split 0 went back by 3 ms" in told[0]


def gives(value: object) -> type[rt.WatermarkGenerator]:
    class Gives(rt.WatermarkGenerator):
        def watermark(self) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

    return Gives


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1.5, r"the watermark generator of source .*, split 0 gives 1.5: .* not float"),
        ("now", "gives 'now': .* not str"),
        (True, "gives True: .* not bool"),
        (2**62, "gives a watermark of 4611686018427387904 milliseconds .* not in the years"),
        (
            ValueError("oh"),
            r"watermark generator of split 0, failed on record(?s:.)*ValueError: oh",
        ),
    ],
)
def test_what_is_no_time_fails_the_job(value: object, why: str) -> None:
    marks = rt.Watermarks.generated(gives(value), timestamp="at", emit="per record")
    with pytest.raises(rt.JobFailedError, match=why):
        seen(Batches([RECORDS]), marks)


def test_an_error_about_records_fails_the_job() -> None:
    class Fails(rt.WatermarkGenerator):
        def on_event(self, record: Any, timestamp: int) -> None:
            raise LookupError("no such device")

        def watermark(self) -> None:
            return None

    marks = rt.Watermarks.generated(Fails, timestamp="at")
    with pytest.raises(
        rt.JobFailedError,
        match=r"watermark generator .* on record \{'at': 10\}(?s:.)*LookupError: no such device",
    ):
        seen(Batches([RECORDS]), marks)


def test_a_column_that_holds_no_time_fails_the_job() -> None:
    marks = rt.Watermarks.from_column("sure", timestamp="at")
    for given, why in (("x", "column 'sure' is the watermark: .* not str"), (2**60, "1 to 9999")):
        with pytest.raises(rt.JobFailedError, match=why):
            seen(Batches([dicts(10, sure=[given])]), marks)
    with pytest.raises(
        rt.JobFailedError, match="the watermark is in column 'sure', which is missing"
    ):
        seen(Batches([dicts(10)]), marks)


# What is refused before a job starts.


def refused(pattern: str) -> Any:
    return pytest.raises(rt.ConfigurationError, match=pattern)


def build(marks: rt.Watermarks, source: rt.Source | None = None) -> None:
    env = rt.Environment()
    env.source(source or Batches([RECORDS]), watermarks=marks, uid="read").sink(rt.DiscardSink())
    build_execution_graph(env.graph())


def one_argument(argument: object) -> Any:
    return Newest()


class Unfinished(rt.WatermarkGenerator):
    pass


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Newest(), r"read.* for each split; it was given one object for all splits"),
        (dict, "for each split; it was given what makes dict"),
        (one_argument, r"one_argument.* is called with no arguments"),
        (Unfinished, "no watermark generator can be made: TypeError: .*abstract"),
        ("Newest", "expected a function of no arguments, got 'Newest'"),
    ],
)
def test_what_makes_no_generator_is_refused(given: Any, why: str) -> None:
    with refused(why):
        build(rt.Watermarks.generated(given, timestamp="at"))


def test_a_missing_column_of_watermarks_is_refused() -> None:
    table = columns(dicts(1, word=["a"]))
    with refused("there is no column 'sure'; there are at, word"):
        build(
            rt.Watermarks.from_column("sure", timestamp="at"), Batches([table], schema=table.schema)
        )
    with refused("column 'word' is of type string; event time is"):
        build(
            rt.Watermarks.from_column("word", timestamp="at"), Batches([table], schema=table.schema)
        )


def test_options_that_mean_nothing_are_refused() -> None:
    with refused("emit is 'periodic' or 'per record', not 'often'"):
        rt.Watermarks.monotonous(timestamp="at", emit="often")  # type: ignore[arg-type]
    with refused("no option 'bound_ms'; there are: timestamp, emit, idle_timeout"):
        rt.Watermarks.monotonous(timestamp="at", bound_ms=5)  # type: ignore[call-arg]
    with refused("from bound_ms, from a column, or from a generator"):
        rt.Watermarks("at", 5, column="sure")
    with refused("takes the name of a column, not 5"):
        rt.Watermarks.from_column(5, timestamp="at")  # type: ignore[arg-type]


def test_plans_say_where_watermarks_come_from() -> None:
    for marks, words in (
        (rt.Watermarks.generated(Newest, timestamp="at"), "watermarks by Newest"),
        (rt.Watermarks.from_column("sure", timestamp="at"), "watermarks from column 'sure'"),
        (
            rt.Watermarks.bounded("5s", timestamp="at", emit="per record"),
            "watermarks 5 s behind, per record",
        ),
    ):
        env = rt.Environment()
        env.source(Batches([RECORDS]), watermarks=marks).sink(rt.DiscardSink())
        assert words in explain(build_execution_graph(env.graph()), "aligned")
