"""Types become one only where every value stays what it is; a value that would change is named."""

import datetime as dt
import decimal
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirt.data.errors import UnlikeTypesError
from minirt.data.unify import unified_schema, unified_type, widened, widened_table

FEW = 4
WIDE = decimal.Context(prec=100)
UNITS = ("s", "ms", "us", "ns")
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = (None, "UTC", "+02:00", "+01:00", "Europe/Berlin", "America/New_York")
INTS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
PIECES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)]
LEAVES = [
    *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64(), *INTS, *TEXTS, *PIECES),
    *(pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal256(60, 3), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *map(pa.duration, UNITS),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in ZONES),
]


def edges(type: pa.DataType) -> st.SearchStrategy:
    """Values of a type as Arrow stores them: whole numbers of times, not Python's objects."""
    if pa.types.is_null(type):
        return st.none()
    if pa.types.is_boolean(type):
        return st.booleans()
    if pa.types.is_integer(type):
        unsigned = pa.types.is_unsigned_integer(type)
        least = 0 if unsigned else -(2 ** (type.bit_width - 1))
        most = 2**type.bit_width - 1 if unsigned else 2 ** (type.bit_width - 1) - 1
        special = [0, least, most, min(most, 2**53), min(most, 2**53 + 1), min(most, 2**60)]
        return st.sampled_from(special) | st.integers(least, most)
    if pa.types.is_floating(type):
        return st.floats(width=type.bit_width)
    if pa.types.is_decimal(type):
        most = 10**type.precision - 1
        return st.integers(-most, most).map(lambda whole: Decimal(whole).scaleb(-type.scale, WIDE))
    if pa.types.is_date32(type):
        return st.sampled_from([-(2**31), 2**31 - 1, -1, 0, 20000])
    if pa.types.is_date64(type):
        return st.integers(-(10**5), 10**5).map(lambda day: day * 86_400_000)
    if pa.types.is_time(type):
        most = 86_400 * PER_SECOND[type.unit] - 1
        return st.integers(0, most)
    if pa.types.is_temporal(type):
        return st.sampled_from([0, -1, 1500, -(2**62), 2**62]) | st.integers(-(10**9), 10**9)
    if type == pa.binary(2):
        return st.binary(min_size=2, max_size=2)
    return st.text(max_size=3) if type in TEXTS else st.binary(max_size=3)


@st.composite
def arrays(draw, depth: int = 2) -> pa.Array:
    kinds = ["leaf"] * 3 + (["list", "struct", "map", "dictionary", "runs"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return of_leaf(draw, draw(st.sampled_from(LEAVES)))
    if kind == "dictionary":
        type = draw(st.sampled_from([each for each in LEAVES if not pa.types.is_null(each)]))
        values = of_leaf(draw, type, least=1)
        places = draw(st.lists(st.none() | st.integers(0, len(values) - 1), max_size=FEW))
        index = draw(st.sampled_from([pa.int8(), pa.int32()]))
        return pa.DictionaryArray.from_arrays(pa.array(places, index), values)
    if kind == "runs":
        values = of_leaf(draw, draw(st.sampled_from([pa.int32(), pa.string(), pa.float64()])))
        ends = pa.array([2 * (place + 1) for place in range(len(values))], pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, values)
    if kind == "struct":
        names = draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1))
        parts = [draw(arrays(depth=depth - 1)) for _ in names]
        count = min(map(len, parts))
        mask = pa.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), pa.bool_())
        parts = [part.slice(0, count) for part in parts]
        return pa.StructArray.from_arrays(parts, names=names, mask=mask)
    values = draw(arrays(depth=depth - 1))
    if kind == "map":
        keys = pa.array(range(len(values)), draw(st.sampled_from([pa.int8(), pa.int64()])))
        return pa.MapArray.from_arrays([0, len(values), len(values)], keys, values)
    sizes = [0, len(values) // 2, len(values)]
    shape = draw(st.sampled_from(["list", "large", "view", "fixed"]))
    if shape == "fixed":
        return pa.FixedSizeListArray.from_arrays(values.slice(0, len(values) // 2 * 2), 2)
    if shape == "view":
        bounds = [sizes[1] - sizes[0], sizes[2] - sizes[1]]
        return pa.ListViewArray.from_arrays(
            pa.array(sizes[:2], pa.int32()), pa.array(bounds, pa.int32()), values
        )
    make = pa.ListArray if shape == "list" else pa.LargeListArray
    return make.from_arrays(sizes, values)


def of_leaf(draw, type: pa.DataType, least: int = 0) -> pa.Array:
    values = draw(st.lists(st.none() | edges(type), min_size=least, max_size=FEW))
    if pa.types.is_temporal(type):
        whole = pa.int32() if type.bit_width == 32 else pa.int64()
        return pa.array(values, whole).view(type)
    if pa.types.is_float16(type):
        return pa.array(values, pa.float32()).cast(type)
    return pa.array(values, type)


def meaning(scalar: pa.Scalar) -> object:
    """What a value is, whichever of Arrow's types holds it; numbers and times are exact fractions."""
    type = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(type):
        return meaning(scalar.dictionary[scalar.index.as_py()])
    if pa.types.is_run_end_encoded(type):
        return meaning(scalar.value)
    if pa.types.is_struct(type):
        fields = {each.name: meaning(scalar[each.name]) for each in type}
        return {name: value for name, value in fields.items() if value is not None}
    if pa.types.is_map(type):
        pairs = scalar.values
        return [[meaning(pair["key"]), meaning(pair["value"])] for pair in pairs]
    if hasattr(type, "value_field"):
        return [meaning(value) for value in scalar.values]
    if pa.types.is_timestamp(type):
        kind = "moment" if type.tz is None else "instant"
        return kind, Fraction(scalar.value, PER_SECOND[type.unit])
    if pa.types.is_time(type) or pa.types.is_duration(type):
        kind = "clock" if pa.types.is_time(type) else "span"
        return kind, Fraction(scalar.value, PER_SECOND[type.unit])
    if pa.types.is_date(type):
        return "date", scalar.value // (1 if pa.types.is_date32(type) else 86_400_000)
    value = scalar.as_py()
    if isinstance(value, float):
        return value if not math.isfinite(value) else Fraction(value)
    return Fraction(value) if isinstance(value, Decimal) else (type_of(value), value)


def type_of(value: object) -> object:
    return Fraction if type(value) is int else type(value)


def meanings(array: pa.Array) -> str:
    """As a text, so that NaN equals NaN; whole numbers are fractions, as floats are."""
    return repr([plain(meaning(value)) for value in array])


def plain(value: object) -> object:
    if isinstance(value, tuple) and value and value[0] is Fraction:
        return Fraction(value[1])
    if isinstance(value, dict):
        return {name: plain(part) for name, part in sorted(value.items())}
    return [plain(part) for part in value] if isinstance(value, list) else value


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
