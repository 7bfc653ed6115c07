"""Columns as the types that a user has named for them: a value keeps what it says, or is refused.

Which types go together at all is decided in `unify`; here a type may also be narrower than the values'
own, where it still holds each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.errors import UnlikeTypesError
from minirt.data.unify import widened

_WIDE = 76
"""Of so many digits are the decimals that hold all numbers on their way into narrower ones."""

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""What stands for types of which Arrow cannot pick values."""

Cast = Callable[[pa.Array, pa.DataType], pa.Array]


def fitted(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    """The same values as an array of this type, also inside of lists, structs and maps.

    Whole numbers may become narrower ones, floats and decimals. Floats may become narrower ones and
    decimals where all their digits stay (those of 0.1 do), and whole numbers where they are whole. Times
    may change their unit. Nothing changes its kind: no number becomes a truth value, a text or a time, no
    text bytes, and no time gets or loses a zone. Fields that a struct lacks are null.

    Raises UnlikeTypesError, which names `column`, both types, and the first value that does not fit.
    """
    return widened(array, type, column, leaf=_fitted_leaf)


def _fitted_leaf(array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
    array = array.cast(_PLAIN.get(array.type, array.type))
    cast = _cast_between(array.type, type)
    if cast is None:
        raise UnlikeTypesError(column, array.type, type, *_first(array))
    result = _tried(cast, array, type)
    if result is not None:
        return result
    there = array.drop_null()
    begin, end = 0, len(there)
    while end - begin > 1:  # The first value that does not fit, as all of them together do not.
        middle = (begin + end) // 2
        if _tried(cast, there.slice(begin, middle - begin), type) is None:
            end = middle
        else:
            begin = middle
    raise UnlikeTypesError(column, array.type, type, *_first(there.slice(begin)))


def _tried(cast: Cast, array: pa.Array, type: pa.DataType) -> pa.Array | None:
    """None if a value does not fit."""
    try:
        return cast(array, type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnlikeTypesError):
        return None


def _first(array: pa.Array) -> tuple[object, ...]:
    there = array.drop_null()
    if not len(there):
        return ()
    try:
        return (there[0].as_py(),)
    except (ValueError, OverflowError):  # A time that Python does not have.
        return (there[0].value if hasattr(there[0], "value") else f"a {array.type}",)


def _cast_between(one: pa.DataType, type: pa.DataType) -> Cast | None:
    """What turns values of the one type into the other, and raises ArrowInvalid where that loses something.

    None if no value goes from the one to the other.
    """
    for is_one, is_type, cast in _CASTS:
        if is_one(one) and is_type(type):
            return cast
    return None


def _is_number(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    )


def _is_text(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)
    )


def _is_bytes(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
        or pa.types.is_binary_view(type)
        or pa.types.is_fixed_size_binary(type)
    )


def _is_local(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and type.tz is None)


def _is_instant(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) and type.tz is not None)


def _plainly(array: pa.Array, type: pa.DataType) -> pa.Array:
    """By Arrow's own cast, which checks each value of these types."""
    return array.cast(type)


def _there_and_back(array: pa.Array, type: pa.DataType) -> pa.Array:
    result = array.cast(type)
    if not result.cast(array.type).equals(array):
        raise pa.ArrowInvalid("a part of a value would be lost")
    return result


def _widened(array: pa.Array, type: pa.DataType) -> pa.Array:
    return widened(array, type, "")


def _floats(array: pa.Array, type: pa.DataType) -> pa.Array:
    """All digits stay, so 0.1 is 0.1: what is compared is the shortest text that tells the float."""
    result: pa.Array = array.cast(type, safe=False)
    if type.bit_width > array.type.bit_width:
        return result
    differ = pc.fill_null(pc.not_equal(_wide(result), _wide(array)), False)
    nan = pc.fill_null(pc.and_(pc.is_nan(_wide(array)), pc.is_nan(_wide(result))), False)
    differ = pc.and_not(differ, nan)
    if pc.any(differ).as_py() and not _texts(result.filter(differ)).equals(
        _texts(array.filter(differ))
    ):
        raise pa.ArrowInvalid("a number has more digits than the float")
    return result


def _floats_to_decimals(array: pa.Array, type: pa.DataType) -> pa.Array:
    if pc.any(pc.invert(pc.is_finite(_wide(array)))).as_py():
        raise pa.ArrowInvalid("no decimal is infinite, or no number")
    return _texts(array).cast(type)


def _decimals_to_floats(array: pa.Array, type: pa.DataType) -> pa.Array:
    result: pa.Array = array.cast(type)
    scale = max(array.type.scale, 0)
    if (
        not _texts(result)
        .cast(pa.decimal256(_WIDE, scale))
        .equals(array.cast(pa.decimal256(_WIDE, scale)))
    ):
        raise pa.ArrowInvalid("a decimal has more digits than the float")
    return result


def _whole_to_decimals(array: pa.Array, type: pa.DataType) -> pa.Array:
    # Arrow asks for as many digits as the type of the whole numbers can have.
    return array.cast(pa.decimal256(_WIDE, max(type.scale, 0))).cast(type)


def _wide(array: pa.Array) -> pa.Array:
    return array.cast(pa.float64())


def _texts(array: pa.Array) -> pa.StringArray:
    """The shortest text that tells each float from the others of its type."""
    if array.type == pa.float16():  # Arrow writes all digits of these.
        values = array.to_pylist()
        shown = [None if value is None else str(np.float16(value)) for value in values]
        return pa.array(map(_like_arrow, shown), pa.string())
    return array.cast(pa.string())


def _like_arrow(text: str | None) -> str | None:
    return None if text is None else str(pa.scalar(float(text)).cast(pa.string()))


_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Cast], ...] = (
    (pa.types.is_integer, pa.types.is_integer, _plainly),
    (pa.types.is_integer, pa.types.is_floating, _widened),
    (pa.types.is_integer, pa.types.is_decimal, _whole_to_decimals),
    (pa.types.is_floating, pa.types.is_integer, _plainly),
    (pa.types.is_floating, pa.types.is_floating, _floats),
    (pa.types.is_floating, pa.types.is_decimal, _floats_to_decimals),
    (pa.types.is_decimal, pa.types.is_integer, _plainly),
    (pa.types.is_decimal, pa.types.is_floating, _decimals_to_floats),
    (pa.types.is_decimal, pa.types.is_decimal, _plainly),
    (_is_text, _is_text, _plainly),
    (_is_bytes, _is_bytes, _plainly),
    (pa.types.is_date, pa.types.is_date, _there_and_back),
    (pa.types.is_date, _is_local, _there_and_back),
    (_is_local, pa.types.is_date, _there_and_back),
    (_is_local, _is_local, _plainly),
    (_is_instant, _is_instant, _plainly),
    (pa.types.is_time, pa.types.is_time, _plainly),
    (pa.types.is_duration, pa.types.is_duration, _plainly),
)
