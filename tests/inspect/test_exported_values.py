"""Exported columns hold each value as it is, whatever lies in the other pieces of a state."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirt.inspect.table import StoredTable
from minirt.inspect.values import json_text

NO_ORIGIN = pa.schema([])
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    st.floats(allow_nan=False),
    st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3
    ),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text("aé", max_size=3),
    st.binary(max_size=3),
    st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    st.times(),
    TIMES,
    TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
    st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000)),
)
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.fixed_dictionaries({"a": LEAVES})
PIECES = st.lists(st.lists(LEAVES, min_size=1, max_size=3), min_size=1, max_size=3) | st.lists(
    st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3
)


def is_same(value: Any, read: Any) -> bool:
    """Whether the value was read as it is; numbers may come in another type that holds them exactly."""
    if isinstance(value, list):
        return isinstance(read, list) and len(value) == len(read) and all(map(is_same, value, read))
    if isinstance(value, dict):
        return (
            isinstance(read, dict)
            and value.keys() == read.keys()
            and is_same(value["a"], read["a"])
        )
    numbers = (int, float, Decimal)
    if type(value) in numbers and type(read) in numbers:
        return bool(value == read)
    if isinstance(value, dt.datetime) and isinstance(read, dt.datetime):
        return value == read and (value.tzinfo is None) == (read.tzinfo is None)
    return type(value) is type(read) and value == read


@given(PIECES)
@example([[Decimal("1.5")], [0.1]])
@example([[2**60 + 1], [0.5]])
@example([[dt.date(2025, 1, 1), dt.datetime(2025, 1, 1, 5)]])
@example([["a", b"b"]])
def test_each_value_is_in_its_column_as_it_is_or_as_json(pieces: list[list[Any]]) -> None:
    parts = tuple((lambda piece=piece: iter([((), (piece,))])) for piece in pieces)
    table = StoredTable(NO_ORIGIN, ("value",), parts)
    [kind] = table.types()
    read = [row["value"] for batch in table.record_batches([kind]) for row in batch.to_pylist()]
    values = [value for piece in pieces for value in piece]
    assert len(read) == len(values)
    for value, found in zip(values, read, strict=True):
        if kind.as_json:
            assert json.loads(found) == json.loads(json_text(value))
        else:
            assert is_same(value, found), (value, found, kind)


@pytest.mark.parametrize("one", [1, 2**40])
def test_whole_numbers_that_are_exact_as_floats_share_a_column_with_them(one: int) -> None:
    table = StoredTable(NO_ORIGIN, ("value",), (lambda: iter([((), ([one],)), ((), ([0.5],))]),))
    [kind] = table.types()
    assert str(kind.arrow) == "double"
