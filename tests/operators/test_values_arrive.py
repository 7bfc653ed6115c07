"""What comes out of an operator is what went in, or the operator fails and names the column.

Every operator takes batches of values of every type, as rows and as columns, with other types in other
batches, at parallelism 1 and 2, through a snapshot. The judge shares no code with minirt: it compares each
value with the record that went in.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.copies import copied
from minirt.data.keys import key_hash
from minirt.errors import MinirtError
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec, StateDealing
from minirt.operators import (
    AggregateSpec,
    AsOfJoinSpec,
    DistinctSpec,
    FilterColumnsSpec,
    FilterSpec,
    JoinSpec,
    KeyedProcessSpec,
    MapSpec,
    ReduceSpec,
    RowWindowSpec,
    SelectSpec,
    TopNSpec,
    TtlJoinSpec,
    WindowSpec,
    WithColumnSpec,
)
from minirt.operators.common.join_bounds import Lasting, Within
from minirt.operators.join_as_of import AsOf
from minirt.protocol.key_groups import subtask_of_group
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.testing.contracts.operating import GROUPS, Subtasks
from tests.data.arrow_values import arrays, meanings, text_of

BERLIN, LISBON = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Lisbon")
SUMMER, WINTER = (dt.timezone(dt.timedelta(hours=hours)) for hours in (2, 1))
NIGHT = dt.datetime(2024, 10, 27, 2, 30)
SKIPPED = dt.datetime(2024, 3, 31, 2, 30)
MINUTE = dt.timedelta(minutes=1)

# Values.

LEAVES: Sequence[Sequence[Any]] = (
    (True, False),
    (0, 5, -1, 2**31, 2**53, 2**53 + 1, 2**60, 2**63 - 1, -(2**63), 2**63),
    (5.5, 0.5, -0.0, 1e300, math.inf, math.nan, 5.0),
    (Decimal("5.50"), Decimal("12345678901234567.89"), Decimal("1e-20"), Decimal(-0), Decimal(7)),
    ("", "tea", "ü€\0"),
    (b"", b"tea", b"\xff"),
    (bytearray(b"x"),),
    (dt.date(2024, 5, 6), dt.date.min),
    (dt.datetime(2024, 5, 6, 7, 8, 9, 10), dt.datetime.max, dt.datetime(1960, 1, 1)),
    *((NIGHT.replace(tzinfo=zone, fold=fold),) for zone in (BERLIN, LISBON) for fold in (0, 1)),
    *((NIGHT.replace(tzinfo=zone),) for zone in (dt.UTC, SUMMER, WINTER)),
    (SKIPPED.replace(tzinfo=BERLIN), dt.datetime.max.replace(tzinfo=WINTER)),
    (dt.time(9, 30), dt.time(9, 30, tzinfo=dt.UTC), dt.time(9, 30, tzinfo=SUMMER)),
    (dt.timedelta(days=3, microseconds=1), dt.timedelta.max),
    (np.int8(3), np.uint64(2**63), np.float32(0.1), np.bool_(True), np.str_("tea")),
    ((1, 2), (), ("a", 1)),
    ({1}, frozenset({"a"}), set()),
    ([], [1], [1, 2.5], [None], ["a", b"b"], [(1,)], [[1], [2.5]], [{"a": 1}, {"b": 2}]),
    ({}, {"a": 1}, {"a": 1.5}, {"b": 2}, {"a": {"c": {1}}}, {"a": None}, {1: 2}),
    ({"at": NIGHT.replace(tzinfo=SUMMER)}, {"at": NIGHT.replace(tzinfo=WINTER)}, {"at": NIGHT}),
)
ANY = st.sampled_from([value for kind in LEAVES for value in kind]) | st.none()
ALIKE = st.sampled_from(LEAVES).flatmap(lambda kind: st.sampled_from([*kind, None]))


@st.composite
def columns_of_rows(draw: st.DrawFn) -> list[list[Any]]:
    """The values of a few batches: of one kind, of two, or of any."""
    kinds = draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=2))
    values = st.sampled_from([value for kind in kinds for value in kind]) | st.none()
    values = draw(st.sampled_from([values, values, ANY]))
    return draw(st.lists(st.lists(values, min_size=1, max_size=3), min_size=1, max_size=3))


def same(found: Any, sent: Any) -> bool:
    """Whether a value is what was sent: whole numbers may be wider, and instants told in another zone."""
    sent = sent.item() if isinstance(sent, np.generic) else sent
    found = found.item() if isinstance(found, np.generic) else found
    if sent is None or isinstance(sent, bool | str):
        return type(found) is type(sent) and found == sent
    if isinstance(sent, int):
        whole = isinstance(found, int | float | Decimal) and not isinstance(found, bool)
        return whole and math.isfinite(found) and Fraction(found) == sent
    if isinstance(sent, float):
        if not isinstance(found, float) or math.isnan(sent):
            return isinstance(found, float) and math.isnan(found)
        return found == sent and math.copysign(1, found) == math.copysign(1, sent)
    if isinstance(sent, dt.datetime):
        if sent.tzinfo is None or getattr(found, "tzinfo", None) is None:
            return found == sent and found.tzinfo is sent.tzinfo
        return since_epoch(found) == since_epoch(sent)
    if isinstance(sent, dt.time):
        return type(found) is dt.time and found == sent and found.tzinfo == sent.tzinfo
    if type(found) is not type(sent):
        return False
    if isinstance(sent, dict):
        return found.keys() == sent.keys() and all(same(found[name], sent[name]) for name in sent)
    if isinstance(sent, list | tuple):
        return len(found) == len(sent) and all(map(same, found, sent))
    return bool(found == sent)


def since_epoch(time: dt.datetime) -> dt.timedelta:
    offset = time.utcoffset()
    assert offset is not None
    return time.replace(tzinfo=None) - dt.datetime(1970, 1, 1) - offset


# Operators.


class Remembers(rt.KeyedProcess):
    """Gives out each record when the next one of its key comes, and the last one at the end."""

    last: ClassVar = rt.ValueState()
    all: ClassVar = rt.ListState()

    def process(self, record: Any, ctx: Any) -> Any:
        if self.last.value is not None:
            yield self.last.value
        self.last.value = record
        self.all.add(record)
        if ctx.timestamp is not None:
            ctx.set_timer(10**12)

    def on_timer(self, at: int, ctx: Any) -> Any:
        yield self.last.value


def newer(one: Any, other: Any) -> Any:
    return other


Of = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """An operator, and which of its results is the value of which record, by the record's number."""

    spec: OperatorSpec
    key: str | None = "n"
    joins: bool = False
    value: Of = lambda row: row["v"]
    number: Of = lambda row: row["n"]
    very_rows: bool = False
    """Whether rows come out as they are, and not only equal."""


AGGREGATED = (rt.First("v", "first"), rt.Last("v", "last"), rt.Collect("v", "all", limit=9))
ARG = (rt.ArgMax("v", by="n", name="arg"), rt.Collect("v", "all", limit=9))
CASES = {
    "filter by expression": Case(FilterColumnsSpec(pc.field("n") >= 0), None, very_rows=True),
    "filter": Case(FilterSpec(lambda row: True), None, very_rows=True),
    "select": Case(SelectSpec(("n", "v")), None),
    "select with computed": Case(SelectSpec(("v",), (("n", pc.field("n")),)), None),
    "with_column": Case(WithColumnSpec(None, (("m", pc.field("n") + 1),)), None),
    "map": Case(MapSpec(lambda row: row), None, very_rows=True),
    "reduce": Case(ReduceSpec(newer), very_rows=True),
    "distinct": Case(DistinctSpec(), very_rows=True),
    "process": Case(KeyedProcessSpec(Remembers()), very_rows=True),
    "row window": Case(RowWindowSpec(rt.Tumbling("1h"), newer), very_rows=True),
    "aggregate": Case(AggregateSpec(AGGREGATED, "end"), value=lambda row: row["first"]),
    "aggregate by": Case(AggregateSpec(ARG, "end"), value=lambda row: row["arg"]),
    "window": Case(WindowSpec(AGGREGATED, rt.Tumbling("1h")), value=lambda row: row["last"]),
    "sliding": Case(
        WindowSpec(AGGREGATED, rt.Sliding("20ms", "10ms")),
        value=lambda row: row["last"],
    ),
    "session": Case(WindowSpec(AGGREGATED, rt.Session("1h")), value=lambda row: row["first"]),
    "top_n": Case(TopNSpec(9, (("n", "ascending"),))),
    "join, left": Case(JoinSpec(Within(-(10**9), 10**9)), joins=True),
    "join, full": Case(JoinSpec(Within(-1, -1), "full")),
    "join, ttl": Case(TtlJoinSpec(Lasting(3_600_000)), joins=True),
    "join, as of": Case(AsOfJoinSpec(AsOf(None)), joins=True),
}


@dataclass
class Outcome:
    rows: list[Any] = field(default_factory=list)
    tables: list[pa.RecordBatch] = field(default_factory=list)
    error: str | None = None


def run(
    case: Case, batches: Sequence[Batch], parallelism: int = 1, restored_at: int | None = None
) -> Outcome:
    """What an operator gives out for these batches, until it fails if it does."""
    outcome = Outcome()

    def emit(tag: str, batch: Batch) -> None:
        if isinstance(batch, Columns):
            outcome.tables.append(batch.table)
        outcome.rows += (
            copied(batch.rows().records) if isinstance(batch, Rows) else [None] * len(batch)
        )

    selector = KeySelector((case.key,)) if case.key else None
    keys = (
        () if selector is None else (selector, selector) if case.spec.inputs == 2 else (selector,)
    )
    subtasks = Subtasks(case.spec, keys, parallelism, emit=emit)
    try:
        for place, batch in enumerate(batches):
            if place == restored_at and case.spec.state is not StateDealing.NONE:
                stored = subtasks.snapshot(f"chk-{place}")
                subtasks = Subtasks(case.spec, keys, 3 - parallelism, restore=stored, emit=emit)
            count = len(subtasks.operators)
            for subtask, operator in enumerate(subtasks.operators):
                part = _dealt(batch, case.key, subtask, count)
                if len(part):
                    operator.process(part, 0)
                    if case.joins:
                        operator.process(_partners(part), 1)
        for operator in subtasks.operators:
            for _ in operator.on_watermark(MAX_WATERMARK):
                pass
    except MinirtError as error:
        outcome.error = str(error)
    return outcome


def _dealt(batch: Batch, key: str | None, subtask: int, count: int) -> Batch:
    """The records of one subtask, by their number, which is the key."""
    if count == 1:
        return batch
    numbers = (
        [row[key or "n"] for row in batch.rows().records]
        if isinstance(batch, Rows)
        else (batch.table.column(key or "n").to_pylist())
    )
    mine = [
        place
        for place, number in enumerate(numbers)
        if subtask_of_group(key_hash(number) % GROUPS, count, GROUPS) == subtask
    ]
    if isinstance(batch, Columns):
        return batch.take(np.array(mine, np.intp))
    times = batch.timestamps or []
    return Rows([batch.records[place] for place in mine], [times[place] for place in mine])


def _partners(batch: Batch) -> Batch:
    if isinstance(batch, Rows):
        return Rows([{"n": row["n"], "w": 1} for row in batch.records], batch.timestamps)
    table = batch.table.select(["n"]).append_column("w", pa.repeat(1, len(batch)))
    return Columns(table, batch.timestamps)


def as_batches(columns: Sequence[Sequence[Any]]) -> list[Batch]:
    batches: list[Batch] = []
    number = 0
    for values in columns:
        records = [{"n": number + place, "v": value} for place, value in enumerate(values)]
        batches.append(Rows(records, [10 * record["n"] for record in records]))
        number += len(values)
    return batches


SETTINGS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("parallelism", [1, 2])
@SETTINGS
@given(columns_of_rows(), st.none() | st.integers(1, 2))
@example([[dt.date(2024, 5, 6), NIGHT]], None)
@example([[{"a": 1}], [{"b": 2}]], 1)
@example([[5, 5.5], [2**53 + 1]], None)
@example([["tea"], [b"tea"]], 1)
@example([[NIGHT.replace(tzinfo=SUMMER)], [NIGHT.replace(tzinfo=WINTER)]], 1)
def test_rows_come_out_as_they_went_in(
    name: str, parallelism: int, columns: list[list[Any]], restored_at: int | None
) -> None:
    case = CASES[name]
    sent = [value for values in columns for value in values]
    batches = as_batches([[copied(value) for value in values] for values in columns])
    outcome = run(case, batches, parallelism, restored_at)
    given_out = [row for row in _rows(outcome) if isinstance(row, dict)]
    for row in given_out:
        found, value = case.value(row), sent[case.number(row)]
        assert same(found, value), (found, value)
        if case.very_rows:
            assert type(found) is type(value)
            assert repr(found) == repr(value)
        for each in row.get("all") or ():
            assert same(each, value)
    if outcome.error is None:
        assert {case.number(row) for row in given_out} == set(range(len(sent)))
    else:
        assert "'v'" in outcome.error or "`v`" in outcome.error, outcome.error
        assert not case.very_rows, outcome.error


def _rows(outcome: Outcome) -> list[Any]:
    """Rows, and those of columns as Arrow has them."""
    rows = [row for row in outcome.rows if row is not None]
    return rows + [row for table in outcome.tables for row in table.to_pylist()]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if name != "process"])
@pytest.mark.parametrize("parallelism", [1, 2])
@SETTINGS
@given(st.lists(arrays(), min_size=1, max_size=2), st.booleans())
def test_columns_come_out_as_they_went_in(
    name: str, parallelism: int, values: list[pa.Array], restored: bool
) -> None:
    case = CASES[name]
    batches, number = list[Batch](), 0
    for array in values:
        numbers = pa.array(range(number, number + len(array)), pa.int64())
        table = pa.RecordBatch.from_arrays([numbers, array], ["n", "v"])
        if len(array):
            batches.append(Columns(table, 10 * np.asarray(numbers)))
        number += len(array)
    sent = [text for array in values for text in meanings(array)]
    outcome = run(case, batches, parallelism, 1 if restored else None)
    for table in outcome.tables:
        _judge_table(case, table, sent)
    if outcome.error is not None:
        assert "'v" in outcome.error, outcome.error


def _judge_table(case: Case, table: pa.RecordBatch, sent: Sequence[str]) -> None:
    names = {"v", "first", "last", "arg", "all"} & {*table.schema.names}
    assert names
    for place, number in enumerate(table.column("n").to_pylist()):
        for name in names:
            value = table.column(name)[place]
            if name == "all":
                value = value.values if value.is_valid and hasattr(value, "values") else []
            for each in [value] if name != "all" else value or ():
                assert text_of(each) == sent[number]
