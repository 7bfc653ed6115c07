"""Arrow arrays of every type with edge values, and what each value means, for property tests."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
from hypothesis import strategies as st

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


def meanings(array: pa.Array) -> list[str]:
    """As texts, so that NaN equals NaN; whole numbers are fractions, as floats are."""
    return [text_of(value) for value in array]


def text_of(scalar: pa.Scalar) -> str:
    """What a value means, as a text."""
    return repr(plain(meaning(scalar)))


def plain(value: object) -> object:
    if isinstance(value, tuple) and value and value[0] is Fraction:
        return Fraction(value[1])
    if isinstance(value, dict):
        return {name: plain(part) for name, part in sorted(value.items())}
    return [plain(part) for part in value] if isinstance(value, list) else value
