"""One `key_by` means one set of keys: for every operator, as rows and as columns of every type."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.keys import hash_column, hash_keys
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators import (
    AggregateSpec,
    AsOfJoinSpec,
    DistinctSpec,
    JoinSpec,
    KeyedProcessSpec,
    ReduceSpec,
    RowWindowSpec,
    TopNSpec,
    TtlJoinSpec,
    WindowSpec,
)
from minirt.operators.common.join_bounds import JoinBounds, Lasting, Within
from minirt.operators.join_as_of import AsOf
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.testing.contracts.operating import Subtasks
from tests.data.arrow_values import PER_SECOND, ZONES, meanings

AUTUMN = 1_729_987_200
"""The second at which the hour that comes twice begins for the first time, in Berlin in 2024."""
NANOSECONDS = (0, 1, -1, 1000, 1500, 1999, 2000, -1500, -2000)
KINDS: Sequence[Sequence[pa.DataType]] = (
    [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32()],
    [pa.bool_()],
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    [pa.binary(), pa.large_binary(), pa.binary(2)],
    [pa.date32(), pa.date64()],
    [pa.timestamp(unit) for unit in PER_SECOND],
    [pa.timestamp(unit, zone) for unit in PER_SECOND for zone in ZONES if zone is not None],
)


def keys_of(type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values as Arrow stores them."""
    if pa.types.is_timestamp(type):
        factor = PER_SECOND[type.unit]
        seconds = st.sampled_from([0, AUTUMN, AUTUMN + 3600, AUTUMN + 1800, -1])
        near = st.sampled_from(NANOSECONDS).map(lambda nanos: nanos * factor // 10**9)
        return st.builds(lambda second, more: second * factor + more, seconds, near)
    if pa.types.is_date(type):
        return st.integers(-3, 3).map(lambda day: day * (86_400_000 if type == pa.date64() else 1))
    if pa.types.is_boolean(type):
        return st.booleans()
    if pa.types.is_integer(type):
        return st.integers(0, 3)
    if pa.types.is_binary(type) or pa.types.is_large_binary(type) or type == pa.binary(2):
        return st.sampled_from([b"ab", b"cd"])
    return st.sampled_from(["ab", "cd", ""])


@st.composite
def key_columns(draw: st.DrawFn) -> list[pa.Array]:
    kind = draw(st.sampled_from(KINDS))
    arrays = []
    for _ in range(draw(st.integers(1, 2))):
        type = draw(st.sampled_from(kind))
        values = draw(st.lists(st.none() | keys_of(type), min_size=1, max_size=6))
        if pa.types.is_temporal(type):
            whole = pa.int32() if type.bit_width == 32 else pa.int64()
            arrays.append(pa.array(values, whole).view(type))
        elif pa.types.is_dictionary(type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(type))
        else:
            arrays.append(pa.array(values, type))
    return arrays


class Once(rt.KeyedProcess):
    seen: ClassVar = rt.ValueState()

    def process(self, record: Any, ctx: Any) -> Any:
        if self.seen.value is None:
            yield record
        self.seen.value = 1


def counted(one: Any, other: Any) -> Any:
    return {**other, "again": True}


def firsts(rows: Sequence[Any]) -> int:
    return sum("again" not in row for row in rows)


KEYED: dict[str, tuple[OperatorSpec, Callable[[Sequence[Any]], int]]] = {
    "distinct": (DistinctSpec(), len),
    "distinct within": (DistinctSpec(3_600_000), len),
    "aggregate": (AggregateSpec((rt.Count("c"),), "end"), len),
    "window": (WindowSpec((rt.Count("c"),), rt.Tumbling("1h")), len),
    "sliding": (
        WindowSpec((rt.Count("c"),), rt.Sliding("20ms", "10ms")),
        lambda rows: len(rows) // 2,
    ),
    "session": (WindowSpec((rt.Count("c"),), rt.Session("1h")), len),
    "row window": (RowWindowSpec(rt.Tumbling("1h"), counted), len),
    "reduce": (ReduceSpec(counted), firsts),
    "process": (KeyedProcessSpec(Once()), len),
    "top_n": (TopNSpec(1, (("t", "descending"),)), lambda rows: len({repr(r["k"]) for r in rows})),
}
BOUNDS: dict[str, tuple[type, JoinBounds]] = {
    "interval": (JoinSpec, Within(-1000, 1000)),
    "ttl": (TtlJoinSpec, Lasting(3_600_000)),
    "as of": (AsOfJoinSpec, AsOf(None)),
}
SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
ONE_MICROSECOND = [
    pa.array([1500, 1999, 1000], pa.timestamp("ns")),
    pa.array([1], pa.timestamp("us")),
]
BEFORE_1970 = [pa.array([-1500, -2000], pa.timestamp("ns")), pa.array([-2], pa.timestamp("us"))]
ONE_HOUR_TWICE = [
    pa.array([AUTUMN, AUTUMN + 3600], pa.timestamp("s", zone)) for zone in ("Europe/Berlin", "UTC")
]


def run(spec: OperatorSpec, batches: Sequence[tuple[Batch, int]]) -> list[Any]:
    keys = (KeySelector(("k",)),) * spec.inputs
    found: list[Any] = []

    def emit(tag: str, batch: Batch) -> None:
        if isinstance(batch, Rows):
            found.extend(batch.records)
            return
        # Keys as texts of what they mean, as Python's rows have no nanoseconds.
        table = batch.table.drop_columns(["k"]) if "k" in batch.table.schema.names else batch.table
        texts = meanings(batch.table.column("k"))
        found.extend({**row, "k": k} for row, k in zip(table.to_pylist(), texts, strict=True))

    subtasks = Subtasks(spec, keys, emit=emit)
    [operator] = subtasks.operators
    for batch, number in batches:
        operator.process(batch, number)
    for _ in operator.on_watermark(MAX_WATERMARK):
        pass
    return found


def as_columns(array: pa.Array) -> Columns:
    count = len(array)
    table = pa.RecordBatch.from_arrays([array, pa.array([0] * count)], ["k", "t"])
    return Columns(table, np.zeros(count, np.int64))


@pytest.mark.parametrize("name", KEYED)
@SETTINGS
@given(key_columns())
@example(ONE_MICROSECOND)
@example(BEFORE_1970)
@example(ONE_HOUR_TWICE)
def test_every_operator_tells_the_same_keys_apart(name: str, arrays: list[pa.Array]) -> None:
    spec, number_of = KEYED[name]
    found = run(spec, [(as_columns(array), 0) for array in arrays])
    assert number_of(found) == len({text for array in arrays for text in meanings(array)})


@pytest.mark.parametrize("name", [name for name in KEYED if name != "top_n"])
@SETTINGS
@given(key_columns())
@example(ONE_HOUR_TWICE)
def test_rows_and_columns_have_the_same_keys(name: str, arrays: list[pa.Array]) -> None:
    """The same keys as rows make no new ones; but for nanoseconds, which rows do not have."""
    assume(all(in_whole_microseconds(array) for array in arrays))
    spec, number_of = KEYED[name]
    batches: list[tuple[Batch, int]] = []
    for array in arrays:
        rows = [{"k": key, "t": 0} for key in array.to_pylist()]
        batches += [(as_columns(array), 0), (Rows(rows, [0] * len(rows)), 0)]
        assert hash_keys([row["k"] for row in rows]).tolist() == hash_column(array).tolist()
    found = run(spec, batches)
    assert number_of(found) == len({text for array in arrays for text in meanings(array)})


def in_whole_microseconds(array: pa.Array) -> bool:
    if not pa.types.is_timestamp(array.type) or array.type.unit != "ns":
        return True
    return all(value is None or value % 1000 == 0 for value in array.view(pa.int64()).to_pylist())


@pytest.mark.parametrize("name", BOUNDS)
@SETTINGS
@given(key_columns())
@example(ONE_MICROSECOND)
@example(BEFORE_1970)
@example(ONE_HOUR_TWICE)
def test_joins_pair_equal_keys_of_both_sides(name: str, arrays: list[pa.Array]) -> None:
    kind, bounds = BOUNDS[name]
    left, right = arrays[0], arrays[-1]
    pairs = run(kind(bounds), [(as_columns(left), 0), (as_columns(right), 1)])
    lefts, rights = (Counter(meanings(side.drop_null())) for side in (left, right))
    partners = (min(1, rights[key]) if name == "as of" else rights[key] for key in lefts)
    expected = sum(lefts[key] * number for key, number in zip(lefts, partners, strict=True))
    assert len(pairs) == expected


def test_a_time_between_two_microseconds_is_shown_whole() -> None:
    class Shows(rt.KeyedProcess):
        def process(self, record: Any, ctx: Any) -> Any:
            assert isinstance(ctx.key, dt.datetime)
            yield str(ctx.key)

    keys = pa.array([1500, 1000], pa.timestamp("ns"))
    shown = run(KeyedProcessSpec(Shows()), [(as_columns(keys), 0)])
    assert shown == ["1970-01-01 00:00:00.000001500", "1970-01-01 00:00:00.000001"]
