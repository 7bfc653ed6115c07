"""The operators of minirt keep to their contract, and so does one from outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators import (
    OPERATORS,
    AggregateSpec,
    AsOfJoinSpec,
    BroadcastProcessSpec,
    CoFlatMapSpec,
    CoMapSpec,
    DistinctSpec,
    FilterColumnsSpec,
    FilterSpec,
    FlatMapSpec,
    JoinSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    MapAsyncSpec,
    MapBatchesSpec,
    MapSpec,
    ProcessSpec,
    ReduceSpec,
    RowWindowAllSpec,
    RowWindowSpec,
    SelectSpec,
    SinkSpec,
    SourceSpec,
    TopNSpec,
    TtlJoinSpec,
    WindowAllSpec,
    WindowSpec,
    WithColumnSpec,
)
from minirt.testing.contracts import Advance, Event, Given, OperatorContract, Result
from minirt.testing.contracts.operating import Subtasks
from minirt.windows.base import Emission
from tests.campaigns import soaked
from tests.operators.numbering import Numbering

Row = dict[str, Any]


def rows(first: int, count: int, input: int = 0) -> Given:
    """Records of five keys, in order of their times."""
    numbers = range(first, first + count)
    return Given([{"k": f"key {n % 5}", "n": n} for n in numbers], [10 * n for n in numbers], input)


EVENTS: tuple[Event, ...] = (rows(0, 6), Advance(30), rows(6, 5), rows(11, 4), Advance(100))
BOTH: tuple[Event, ...] = (rows(0, 6), rows(6, 5, 1), Advance(30), rows(11, 4), rows(15, 3, 1))


class Total(rt.KeyedProcess):
    """Counts the records of a key, and gives the total of a span of time when it is over."""

    count = rt.ValueState(0)
    seen = rt.ListState()

    def process(self, record: Row, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        self.seen.add(record)
        assert ctx.timestamp is not None
        ctx.set_timer(ctx.timestamp // 50 * 50 + 49)
        yield [ctx.key, self.count.value]

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield [ctx.key, timestamp, self.seen.get()]


class Clocked(rt.KeyedProcess):
    """Gives the numbers of a key by a timer of the clock, which the end of input fires."""

    seen = rt.ListState()

    def process(self, record: Row, ctx: rt.KeyedContext) -> None:
        self.seen.add(record["n"])
        ctx.set_processing_timer(ctx.processing_time + 10)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield [ctx.key, timestamp, self.seen.get()]


class Either(rt.KeyedCoProcess):
    count = rt.ValueState(0)

    def process_left(self, record: Row, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield [self.count.value, record]

    process_right = process_left


class Odd(rt.Process):
    def process(self, record: Row, ctx: rt.ProcessContext) -> Iterable[Any]:
        if record["n"] % 2:
            ctx.side("odd", record)
        else:
            yield record


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "n", pc.multiply(batch["n"], 2))


def twice(record: Row) -> list[Row]:
    return [record, {**record, "again": [record["n"]]}]


def added(value: Row, record: Row) -> Row:
    value["n"] += record["n"]
    return value


PLAIN: dict[str, OperatorSpec] = {
    "map": MapSpec(lambda r: {**r, "list": [r["n"]]}),
    "flat_map": FlatMapSpec(twice),
    "filter": FilterSpec(lambda r: r["n"] % 3 > 0),
    "filter of columns": FilterColumnsSpec(pc.field("n") > 4),
    "select": SelectSpec(("n",)),
    "with_column": WithColumnSpec(None, (("m", pc.field("n") + 1),)),
    "process": ProcessSpec(Odd()),
}
KEYED: dict[str, OperatorSpec] = {
    "reduce": ReduceSpec(added),
    "keyed process": KeyedProcessSpec(Total()),
    "keyed process by the clock": KeyedProcessSpec(Clocked()),
}


class TestPlain(OperatorContract):
    @pytest.fixture(params=PLAIN.values(), ids=PLAIN)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        spec: OperatorSpec = request.param
        return spec

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


class TestMapBatches(OperatorContract):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return MapBatchesSpec(doubled, "columns")

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


async def asked(record: Row) -> Row:
    await asyncio.sleep(record["n"] * 7 % 5 / 100)
    return {**record, "answer": [record["n"]]}


class TestMapAsync(OperatorContract):
    """Every other request has company when its answer comes, and some wait for room."""

    @pytest.fixture(params=[True, False], ids=["ordered", "as they come"])
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return MapAsyncSpec(asked, capacity=4, ordered=request.param)

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


class TestMapAsyncByKey(TestMapAsync):
    keys: ClassVar = ("k",)

    @pytest.fixture(params=[True, False], ids=["ordered", "as they come"])
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return MapAsyncSpec(asked, capacity=4, ordered=request.param, keyed=True)


class TestTwoInputs(OperatorContract):
    @pytest.fixture(params=[CoMapSpec, CoFlatMapSpec])
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        functions: dict[Any, tuple[Callable[..., Any], ...]] = {
            CoMapSpec: (dict, lambda r: [r["n"]]),
            CoFlatMapSpec: (twice, lambda r: [[r["n"]], [r]]),
        }
        spec: OperatorSpec = request.param(*functions[request.param])
        return spec

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return BOTH


class TestKeyed(OperatorContract):
    keys: ClassVar = ("k",)

    @pytest.fixture(params=KEYED.values(), ids=KEYED)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        spec: OperatorSpec = request.param
        return spec

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


class TestKeyedTwoInputs(OperatorContract):
    keys: ClassVar = ("k", lambda r: r["k"])

    @pytest.fixture(params=[KeyedCoProcessSpec(Either()), Numbering(2)], ids=["process", "outside"])
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        spec: OperatorSpec = request.param
        return spec

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return BOTH


AGGREGATES = (rt.Count("count"), rt.Sum("n", "sum"), rt.Max("n", "max"), rt.Mean("n", "mean"))


WINDOWS: dict[str, rt.Window] = {
    "tumbling": rt.Tumbling("50ms"),
    "in a zone": rt.Tumbling("1d", timezone="Europe/Berlin"),
    "sliding": rt.Sliding("60ms", "20ms", offset="5ms"),
    "sessions": rt.Session("25ms"),
    "open sessions": rt.Session("25ms", allowed_lateness="30ms"),
    "counted": rt.CountWindow(2),
    "counted, sliding": rt.CountWindow(3, 2),
    "all, by count": rt.GlobalWindow(rt.AfterCount(2)),
    "all, by count, purged": rt.GlobalWindow(rt.AfterCount(2), purge=True),
    "all, by time": rt.GlobalWindow(rt.AfterTime("1h"), purge=True),
}


class TestWindow(OperatorContract):
    keys: ClassVar = ("k",)

    @pytest.fixture(params=WINDOWS.values(), ids=WINDOWS)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return WindowSpec(AGGREGATES, request.param)

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


FRAMES = {"tumbling", "sliding", "open sessions", "counted, sliding", "all, by time"}
"""One window for each frame: the others differ in when they fire, whatever is kept of a window."""

ONE_FOR_EACH_FRAME = [
    pytest.param(window, marks=[] if kind in FRAMES else [pytest.mark.soak])
    for kind, window in WINDOWS.items()
]


class TestWindowAll(TestWindow):
    keys: ClassVar = ()

    @pytest.fixture(params=ONE_FOR_EACH_FRAME, ids=WINDOWS)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return WindowAllSpec(AGGREGATES, request.param)

    @pytest.mark.skip("only one subtask has its state")
    def test_snapshots_that_build_on_older_ones_restore(self) -> None:  # type: ignore[override]
        pass


def added(total: Row, record: Row) -> Row:
    return {"k": record["k"], "n": total["n"] + record["n"]}


class Numbers(rt.WindowProcess):
    """All records of a window, and which of its results it is."""

    given = rt.ValueState(0)

    def process(self, records: list[Row], ctx: rt.WindowContext) -> Iterable[Any]:
        self.given.value += 1
        numbers = sorted(record["n"] for record in records)
        yield [ctx.key, ctx.start, ctx.end, ctx.pane, self.given.value, numbers]

    def retract(self, ctx: rt.WindowContext) -> Iterable[Any]:
        yield [ctx.key, ctx.start, ctx.end]

    def merge(self, other: Mapping[str, Any], ctx: rt.WindowContext) -> None:
        self.given.value += other["given"]


class TestRowWindow(TestWindow):
    @pytest.fixture(params=ONE_FOR_EACH_FRAME, ids=WINDOWS)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return RowWindowSpec(request.param, process=Numbers())


class TestRowWindowReduce(TestWindow):
    @pytest.fixture(params=ONE_FOR_EACH_FRAME, ids=WINDOWS)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return RowWindowSpec(request.param, added)


class TestRowWindowAll(TestWindowAll):
    @pytest.fixture(params=ONE_FOR_EACH_FRAME, ids=WINDOWS)
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return RowWindowAllSpec(request.param, added, Numbers())


class TestWindowUpdates(TestWindow):
    """How many early results there are depends on batches: what a window ends with is always the same."""

    cuts_matter: ClassVar = True

    @pytest.fixture(params=["sliding", "open sessions", *soaked("tumbling", "sessions")])
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        return WindowSpec(AGGREGATES, WINDOWS[request.param], Emission("updates"))

    def settled(self, results: Sequence[Result]) -> Any:
        kept = [one for one in results if one[0] or one[1]["pane"] != "early"]
        return Counter(map(repr, kept))


ALL_KINDS = (
    *(rt.First("n", "first"), rt.Last("n", "last"), rt.Collect("n", "all"), rt.TopN("n", "top")),
    *(rt.CountDistinct("n", "different"), rt.Variance("n", "variance"), rt.StdDev("n", "spread")),
    *(rt.ArgMax("k", "of_max", by="n"), rt.ArgMin("k", "of_min", by="n"), rt.Min("k", "least")),
)


class TestAggregatesOfAllKinds(TestWindow):
    @pytest.fixture(
        params=["end", "sliding", "open sessions", *soaked("tumbling", "counted, sliding")]
    )
    def spec(self, request: pytest.FixtureRequest) -> OperatorSpec:
        if request.param == "end":
            return AggregateSpec(ALL_KINDS, "end")
        return WindowSpec(ALL_KINDS, WINDOWS[request.param])


class TestAggregateAtTheEnd(TestWindow):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return AggregateSpec(AGGREGATES, "end")


class TestAggregate(TestWindow):
    """Gives out the keys that a batch has changed: only the last result of a key is always the same."""

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return AggregateSpec(AGGREGATES, "updates")

    def settled(self, results: Sequence[Result]) -> Any:
        return {record["k"]: (tag, record, time) for tag, record, time in results}


class TestAggregateWithTtl(TestAggregate):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return AggregateSpec(AGGREGATES, "updates", 1000)


class TestAggregateWithTtlAtTheEnd(TestWindow):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return AggregateSpec(AGGREGATES, "end", 1000)


class TestDistinct(OperatorContract):
    keys: ClassVar = ("k",)

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return DistinctSpec()

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS


class TestDistinctWithin(TestDistinct):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return DistinctSpec(60)

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        """With records that are older than what was given out, and with late ones."""
        return (
            *EVENTS[:3],
            rows(4, 3),
            *EVENTS[3:],
            rows(9, 4),
            rows(20, 7),
            Advance(170),
            rows(25, 6),
        )


class TestTopN(OperatorContract):
    """Gives out the ranks that a batch has changed: only the last record of a rank is always the same."""

    keys: ClassVar = ("k",)

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return TopNSpec(3, (("r", "descending"), ("s", "ascending")))

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        """Many come in, and some go; some are alike, and of one key all have no value."""
        return [
            Given([ranked(n) for n in range(first, first + 9)], [*range(first, first + 9)])
            for first in range(0, 63, 9)
        ]

    def settled(self, results: Sequence[Result]) -> Any:
        return {(record["k"], record["rank"]): (tag, record) for tag, record, _ in results}


RUNS = [
    Given([{"k": key, "r": n + 10.0 * at, "s": n % 2} for n, key in enumerate(keys)])
    for at, keys in enumerate(("aabbaabb", "cc", "abc", "ddee", "edcba"))
]


class TestTopNOfSeveralRuns(TestTopN):
    """The keys of a later batch are held in several of them."""

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return RUNS


class Known(rt.BroadcastProcess):
    """Tells how many records were broadcast before this one, and how many of its key came."""

    known = rt.BroadcastState()
    count = rt.ValueState(0)

    def process(self, record: Row, ctx: rt.KeyedContext) -> Iterable[Any]:
        self.count.value += 1
        yield [ctx.key, record["n"], self.count.value, len(self.known)]

    def process_broadcast(self, record: Row, ctx: rt.ProcessContext) -> None:
        assert record["n"] not in self.known
        self.known[record["n"]] = record["k"]


class TestBroadcastProcess(OperatorContract):
    keys: ClassVar = ("k", None)

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return BroadcastProcessSpec(Known())

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return BOTH


def ranked(number: int) -> Row:
    key = number * 7 % 5
    value = None if key == 3 else float(number * 11 % 8)
    return {"k": None if key == 4 else f"key {key}", "r": value, "s": number % 2, "n": number}


SUMS: dict[str, OperatorSpec] = {
    "running": AggregateSpec(AGGREGATES, "updates"),
    **{kind: WindowSpec(AGGREGATES, window) for kind, window in WINDOWS.items()},
}


@pytest.mark.parametrize("kind", SUMS)
def test_a_sum_beyond_its_range_is_told_with_column_and_key(kind: str) -> None:
    """Wherever it comes about: in a batch, in a pane, or where panes or sessions come together."""
    records = [{"k": "ann", "n": 2**62}] * 6
    for cut in (1, 6):
        subtasks = Subtasks(SUMS[kind], (KeySelector(("k",)),))
        events = [Given(records[:cut], [*range(at, at + cut)]) for at in range(0, 6, cut)]
        with pytest.raises(UserCodeError) as error:
            _to_the_end(subtasks, events)
        told = "operator operator: 'sum', the sum of column 'n' for the key {'k': 'ann'}, is beyond the"
        assert told in str(error.value)


def _to_the_end(subtasks: Subtasks, events: Iterable[Event]) -> None:
    for event in events:
        subtasks.feed(event, columns=True)
    subtasks.end()


def test_a_sum_of_all_records_has_no_key() -> None:
    records = [{"k": "ann", "n": 2**62}] * 6
    subtasks = Subtasks(WindowAllSpec(AGGREGATES, rt.Tumbling("50ms")), ())
    with pytest.raises(UserCodeError, match="the sum of column 'n' of all records, is beyond the"):
        subtasks.feed(Given(records, [*range(6)]), columns=True)


@pytest.mark.parametrize("value", [2**64, "a\ud800", object()], ids=["int", "text", "object"])
def test_values_that_no_column_holds_are_refused_by_name(value: object) -> None:
    """Arrow raises whatever it likes for them."""
    subtasks = Subtasks(SUMS["running"], (KeySelector(("k",)),))
    with pytest.raises(UserCodeError, match=r"operator operator .* its records cannot be laid out"):
        subtasks.feed(Given([{"k": "ann", "n": value}]))


def test_every_operator_between_source_and_sink_is_held_to_it() -> None:
    held = {type(spec) for spec in (*PLAIN.values(), *KEYED.values())}
    held |= {
        MapBatchesSpec,
        MapAsyncSpec,
        CoMapSpec,
        CoFlatMapSpec,
        KeyedCoProcessSpec,
        WindowSpec,
        WindowAllSpec,
        RowWindowSpec,
        RowWindowAllSpec,
        JoinSpec,
        AggregateSpec,
        DistinctSpec,
        TopNSpec,
        TtlJoinSpec,
        AsOfJoinSpec,
        BroadcastProcessSpec,
    }
    assert held | {SourceSpec, SinkSpec} == set(OPERATORS), "these two have contracts of their own"
