"""Types become one only where every value stays what it is; a value that would change is named."""

import datetime as dt
import pickle
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given

from minirt.data.errors import UnlikeTypesError
from minirt.data.unify import unified_schema, unified_type, widened, widened_table
from tests.data.arrow_values import arrays, meanings


@given(arrays(), arrays())
@example(pa.array([2**53 + 1]), pa.array([0.5]))
@example(pa.array([1]).slice(1), pa.array([Decimal("1.5")]))
@example(pa.array([2**62], pa.timestamp("s")), pa.array([1], pa.timestamp("ns")))
def test_each_value_is_the_same_in_the_type_of_both_or_refused(one, other) -> None:
    """Whichever comes first, and wherever in memory its values lie."""
    type = either(lambda: unified_type(one.type, other.type, "v"), one.type, other.type)
    back = either(lambda: unified_type(other.type, one.type, "v"), one.type, other.type)
    assert (type is None) == (back is None)
    if type is None:
        return
    assert unified_type(type, one.type, "v") == type == unified_type(type, other.type, "v")
    for array in (one, other, one.slice(1), other.slice(1, 2)):
        before = meanings(array)
        wide = either(partial(widened, array, type, "v"), array.type, type)
        if wide is not None:
            assert wide.type == type
            assert meanings(wide) == before
            wide.validate(full=True)


def either(work: Callable[[], Any], one: pa.DataType, other: pa.DataType) -> Any:
    """What it gives; None if it refuses, which names a column and two types that are at fault."""
    try:
        return work()
    except UnlikeTypesError as error:
        refused = error
    assert refused.column.startswith("v")
    assert repr(refused.column) in str(refused)
    for side in (refused.one, refused.other):
        assert str(side) in str(refused)
        assert refused.value or str(side) in f"{one} {other}"
    return None


@given(arrays())
def test_null_goes_with_every_type(array) -> None:
    type = unified_type(pa.null(), array.type, "v")
    assert unified_type(array.type, pa.null(), "v") == type
    assert meanings(widened(array, type, "v")) == meanings(array)
    nulls = widened(pa.nulls(3), type, "v")
    nulls.validate(full=True)
    assert meanings(nulls) == meanings(pa.nulls(3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((pa.decimal128(5, 2), pa.float64()), (pa.string(), pa.binary()), (pa.bool_(), pa.int8())),
        *((pa.string(), pa.int64()), (pa.date32(), pa.timestamp("us")), (pa.bool_(), pa.string())),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())),
    ],
)
def test_other_kinds_are_refused_by_name(one, other) -> None:
    with pytest.raises(UnlikeTypesError, match="'price'") as caught:
        unified_schema(pa.schema([("price", one)]), pa.schema([("price", other)]))
    assert f"{one} " in str(caught.value)
    assert f"{other} " in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        *((pa.int8(), pa.int64(), pa.int64()), (pa.uint8(), pa.int8(), pa.int16())),
        *((pa.uint32(), pa.int16(), pa.int64()), (pa.int8(), pa.float32(), pa.float32())),
        *((pa.int64(), pa.float32(), pa.float64()), (pa.uint8(), pa.uint16(), pa.uint16())),
        (pa.timestamp("us", "+02:00"), pa.timestamp("us", "+01:00"), pa.timestamp("us", "UTC")),
        (pa.decimal128(5, 2), pa.decimal128(8, 1), pa.decimal128(9, 2)),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
    ],
)
def test_the_narrowest_type_of_both(one, other, both) -> None:
    assert unified_type(one, other, "v") == unified_type(other, one, "v") == both


def test_the_value_that_does_not_fit_is_named_wherever_it_lies() -> None:
    inside = pa.array([{"p": [1, 2]}, {"p": [3, 2**53 + 1]}])
    with pytest.raises(UnlikeTypesError, match=r"'v\.p\[\]': the value 9007199254740993") as caught:
        widened(inside, pa.struct([("p", pa.list_(pa.float64()))]), "v")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_a_column_that_records_lack_is_null_in_them() -> None:
    one, other = pa.record_batch({"k": [1]}), pa.record_batch({"k": [2.5], "v": ["x"]})
    schema = unified_schema(one.schema, other.schema)
    assert widened_table(one, schema).to_pylist() == [{"k": 1.0, "v": None}]
    assert widened_table(other, schema).to_pylist() == [{"k": 2.5, "v": "x"}]
    with pytest.raises(UnlikeTypesError, match="'v'"):
        widened_table(other, one.schema)


def test_structs_with_other_fields_are_refused_where_a_missing_field_is_none_of_null() -> None:
    one, other = pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])
    assert unified_type(one, other, "v").num_fields == 2
    with pytest.raises(UnlikeTypesError):
        unified_type(pa.list_(one), pa.list_(other), "v", missing_fields=False)
    assert unified_type(
        one, pa.struct([("a", pa.int64())]), "v", missing_fields=False
    ) == pa.struct([("a", pa.int64())])


def test_offsets_become_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    array = pa.array([dt.datetime(2024, 10, 27, 2, 30, tzinfo=zone)])
    wide = widened(array, pa.timestamp("ns", "UTC"), "v")
    assert wide[0].value == int(dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC).timestamp()) * 10**9
