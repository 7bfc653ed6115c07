"""A column that is turned into a type that somebody has named says what it said, or is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.errors import UnlikeTypesError
from minirt.data.fitting import fitted
from minirt.data.from_python import REFUSALS, column_as, column_of
from tests.data.arrow_values import LEAVES, arrays
from tests.data.saying import said, said_by_all, same

TARGETS = [each for each in LEAVES if not pa.types.is_null(each)]


@st.composite
def targets(draw: Any, type: pa.DataType, inside: bool = False) -> pa.DataType:
    """Types that somebody may ask for, of values of this type: others of its kind, or of any."""
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        type = type.value_type
    if pa.types.is_struct(type):
        return pa.struct([pa.field(each.name, draw(targets(each.type, True))) for each in type])
    if pa.types.is_map(type):
        return pa.map_(draw(targets(type.key_type, True)), draw(targets(type.item_type, True)))
    if hasattr(type, "value_field"):
        values = draw(targets(type.value_type, True))
        makers = [pa.list_, pa.large_list, pa.list_view, lambda each: pa.list_(each, 2)]
        return draw(st.sampled_from(makers))(values)
    leaf = draw(st.sampled_from([type, *TARGETS]))
    if inside or pa.types.is_null(leaf) or pa.types.is_float16(leaf) or draw(st.booleans()):
        return leaf
    return pa.dictionary(pa.int32(), leaf)


@given(st.data())
def test_a_column_says_the_same_in_another_type_or_is_refused(data: Any) -> None:
    array = data.draw(arrays())
    type = data.draw(targets(array.type))
    for part in (array, array.slice(1), array.slice(0, 2)):
        try:
            made = fitted(part, type, "v")
        except UnlikeTypesError as error:
            refused = str(error)
        else:
            made.validate(full=True)
            assert made.type == type
            assert same(said_by_all(made), said_by_all(part))
            continue
        assert "column 'v" in refused


@pytest.mark.parametrize(
    ("value", "type"),
    [
        *((1e300, pa.float32()), (1e-300, pa.float32()), (16777217.0, pa.float32())),
        *((70000.0, pa.float16()), (2, pa.bool_()), (True, pa.int8()), (True, pa.float64())),
        *((1.239, pa.decimal128(5, 2)), (1000.0, pa.decimal128(5, 2))),
        *((float("nan"), pa.int64()), (float("inf"), pa.decimal128(5, 2)), (2.5, pa.int64())),
        *((Decimal(2**53 + 1), pa.float64()), (2**53 + 1, pa.float64()), (300, pa.int8())),
        *(
            (1500, pa.timestamp("ms")),
            (5, pa.date32()),
            (5, pa.time64("us")),
            (5, pa.duration("s")),
        ),
        *((5, pa.string()), ("5", pa.int64()), (b"x", pa.string()), ("x", pa.binary())),
        *((b"abc", pa.binary(2)), (dt.datetime(2024, 1, 1), pa.timestamp("us", "UTC"))),
        (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), pa.timestamp("us")),
        (dt.datetime(2024, 1, 1, 5), pa.date32()),
        (dt.datetime(2024, 1, 1, microsecond=1), pa.timestamp("ms")),
        (dt.datetime(9999, 1, 1), pa.timestamp("ns")),
        (dt.time(1, 2, 3, 4), pa.time32("ms")),
        (dt.time(1, tzinfo=dt.UTC), pa.time64("us")),
        (dt.timedelta(microseconds=1), pa.duration("ms")),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())])),
        ([1, 2], pa.list_(pa.int64(), 3)),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
        (2**64, pa.uint64()),
    ],
    ids=str,
)
def test_what_would_change_is_refused_of_rows_and_of_columns(value: Any, type: pa.DataType) -> None:
    for nested, of in ((value, type), ([value], pa.list_(type)), ({"p": value}, None)):
        target = of or pa.struct([("p", type)])
        with pytest.raises(REFUSALS):
            column_as([None, nested], target, "v")
    try:
        array = column_of([None, value], "v")
    except REFUSALS:
        return
    with pytest.raises(UnlikeTypesError, match=r"'v.*cannot|'v.* the others do not have"):
        fitted(array, type, "v")


BERLIN = ZoneInfo("Europe/Berlin")
ATOMS = [
    st.none(),
    st.booleans(),
    st.integers(-5, 5) | st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30]),
    st.sampled_from([0.5, -0.0, 1e300, 1e-300, float("nan"), float("inf"), 2.0, 0.1, 1 / 3]),
    st.decimals(-1000, 1000, places=2) | st.sampled_from([Decimal("1e-25"), Decimal(10) ** 40]),
    st.text("aé\0", max_size=2),
    st.binary(max_size=2),
    st.datetimes() | st.datetimes(timezones=st.sampled_from([dt.UTC, BERLIN])),
    st.sampled_from([dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1), dt.datetime.min]),
    st.dates(),
    st.times() | st.just(dt.time(1, tzinfo=dt.UTC)),
    st.timedeltas(dt.timedelta(days=-99999), dt.timedelta(days=99999)),
    st.sampled_from([np.float32(0.1), np.int8(3), np.uint64(2**64 - 1), np.bool_(True)]),
]
VALUES = st.sampled_from(ATOMS).flatmap(lambda one: st.lists(one, max_size=4)) | st.lists(
    st.sampled_from(ATOMS).flatmap(lambda one: one), max_size=3
)
"""Lists of values of one kind for the most part, and of several."""


def nested(values: list[Any], shape: str) -> list[Any]:
    if shape == "list":
        return [values[:2], None, values[2:], []]
    if shape == "struct":
        return [None if place == 1 else {"p": value} for place, value in enumerate(values)]
    if shape == "map":
        return [{"k": value} for value in values]
    return values


@given(VALUES, st.sampled_from(["plain", "list", "struct"]))
def test_values_of_python_say_the_same_in_a_column_or_are_refused(
    values: list[Any], shape: str
) -> None:
    values = nested(values, shape)
    try:
        array = column_of(values, "v")
    except REFUSALS:
        return
    assert same(said_by_all(array), [said(value) for value in values])


@given(VALUES, st.sampled_from(["plain", "list", "struct", "map"]), st.sampled_from(TARGETS))
def test_values_of_python_say_the_same_in_a_type_or_are_refused(
    values: list[Any], shape: str, leaf: pa.DataType
) -> None:
    types = {
        "plain": leaf,
        "list": pa.list_(leaf),
        "struct": pa.struct([("p", leaf)]),
        "map": pa.map_(pa.string(), leaf),
    }
    values = nested(values, shape)
    try:
        array = column_as(values, types[shape], "v")
    except REFUSALS:
        return
    assert array.type == types[shape]
    expected = [said(value) for value in values]
    if shape == "map":
        expected = [[[said("k"), said(value["k"])]] for value in values]
    assert same(said_by_all(array), expected)
