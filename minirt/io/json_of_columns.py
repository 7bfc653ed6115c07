"""Columns straight into lines of JSON: no Python object for most values, and the same text as of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.column_keys import pieces
from minirt.data.simple_columns import in_microseconds

Encode = Callable[[Any], str]
"""Writes one value as JSON."""

Texts = tuple[pa.LargeStringArray, bool]
"""What JSON has for each value of a column, null for null; and whether that lacks its quotation marks."""

_TEXT = pa.large_string()
_SPACE, _QUOTE, _BACKSLASH = b' "\\'
_PLAIN_FLOATS = 1e-4, 1e10
"""From the one up to the other, Arrow writes the digits that Python does, without an exponent."""
_DAYS = -719_162, 2_932_896
_MICROSECONDS = _DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1
"""The first and the last of the years 1 to 9999, which are all that Python has, counted from 1970."""


def lines_of(table: pa.RecordBatch, encode: Encode) -> memoryview | None:
    """A line for each record, in UTF-8; None if only the records themselves tell their fields.

    Raises ArrowException, or what `encode` raises, for a value that has no form in JSON, or none in Python.
    """
    names = table.schema.names
    if not names or len(set(names)) < len(names):
        return None
    parts: list[Any] = []
    between = "{"
    for name, column in zip(names, table.columns, strict=True):
        texts, bare = _texts(column, encode)
        if bare and texts.null_count:
            texts, bare = _joined(_scalar('"'), texts, _scalar('"')), False
        quote = '"' if bare else ""
        parts += [_scalar(f"{between}{encode(name)}:{quote}"), texts]
        between = f"{quote},"
    parts.append(_scalar(between.removesuffix(",") + "}\n"))
    characters, bounds = pieces(_joined(*parts, null_handling="replace", null_replacement="null"))
    return characters[bounds[0] : bounds[-1]].data


def _texts(array: pa.Array, encode: Encode) -> Texts:
    kind = array.type
    if pa.types.is_dictionary(kind):
        if len(array.dictionary) > len(array):
            return _texts(array.dictionary_decode(), encode)
        texts, bare = _texts(array.dictionary, encode)
        return texts.take(array.indices), bare
    if any(check(kind) for check in _WRITTEN_ALIKE):
        return array.cast(_TEXT), False
    if any(check(kind) for check in _TEXT_TYPES):
        return _escaped(array.cast(_TEXT), encode), True
    if kind in (pa.float32(), pa.float64()):
        return _floats(array.cast(pa.float64()), encode), False
    if pa.types.is_timestamp(kind) and kind.tz in (None, "UTC"):
        return _timestamps(array), True
    if pa.types.is_date32(kind):
        _check_years(array.view(pa.int32()), *_DAYS)
        return array.cast(_TEXT), True
    if pa.types.is_decimal(kind):
        return array.cast(_TEXT), True
    values = in_microseconds(array).to_pylist()
    return pa.array([None if value is None else encode(value) for value in values], _TEXT), False


_WRITTEN_ALIKE = pa.types.is_null, pa.types.is_boolean, pa.types.is_integer
_TEXT_TYPES = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view


def _escaped(texts: pa.LargeStringArray, encode: Encode) -> pa.LargeStringArray:
    """Raises ArrowInvalid for what is not UTF-8."""
    texts.validate(full=True)
    characters, bounds = pieces(texts)
    characters = characters[bounds[0] : bounds[-1]]
    special = (characters < _SPACE) | (characters == _QUOTE) | (characters == _BACKSLASH)
    # The backslash comes first: what stands for the others has it, too.
    for code in np.unique(characters[special])[::-1].tolist():
        texts = pc.replace_substring(texts, chr(code), encode(chr(code))[1:-1])
    return texts


def _floats(array: pa.DoubleArray, encode: Encode) -> pa.LargeStringArray:
    texts, numbers = array.cast(_TEXT), array.to_numpy(zero_copy_only=False)
    is_whole = numbers == np.trunc(numbers)
    if is_whole.any():
        texts = pc.if_else(pa.array(is_whole), _joined(texts, _scalar(".0")), texts)
    least, end = _PLAIN_FLOATS
    size = np.abs(numbers)
    others = ~((size == 0) | (size >= least) & (size < end))
    if array.null_count:
        others &= array.is_valid().to_numpy(zero_copy_only=False)
    if others.any():
        written = pa.array(map(encode, numbers[others].tolist()), _TEXT)
        texts = pc.replace_with_mask(texts, pa.array(others), written)
    return texts


def _timestamps(array: pa.TimestampArray) -> pa.LargeStringArray:
    """As `datetime.isoformat`: fractions of a second only where there are any."""
    aware = array.type.tz is not None
    array = in_microseconds(array).cast(pa.timestamp("us", array.type.tz))
    array = array.view(pa.timestamp("us"))
    _check_years(array.view(pa.int64()), *_MICROSECONDS)
    texts = pc.binary_replace_slice(array.cast(pa.string()), 10, 11, "T")
    is_whole = pc.equal(pc.subsecond(array), 0)
    if pc.any(is_whole).as_py():
        seconds = pc.binary_slice(texts.cast(pa.binary()), 0, 19).cast(pa.string())
        texts = pc.if_else(is_whole, seconds, texts)
    texts = texts.cast(_TEXT)
    return _joined(texts, _scalar("+00:00")) if aware else texts


def _check_years(counts: pa.Array, first: int, last: int) -> None:
    """Raises ArrowInvalid for times that Python does not have."""
    found = pc.min_max(counts)
    if found["min"].is_valid and not first <= found["min"].as_py() <= found["max"].as_py() <= last:
        raise pa.ArrowInvalid("Python has no such time")


def _joined(*parts: Any, **options: str) -> pa.LargeStringArray:
    return pc.binary_join_element_wise(*parts, _scalar(""), **options)


def _scalar(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, _TEXT)
