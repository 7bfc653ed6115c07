"""JSON objects straight into columns, by the reader of Arrow: no Python object for most values."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from minirt.data.simple_columns import is_list, with_values
from minirt.errors import ConfigurationError
from minirt.io.schemas import given_schema


def read_objects(
    text: bytes, rows: int, schema: pa.Schema, *, one_a_line: bool = False
) -> pa.RecordBatch:
    """The columns of `schema` of so many JSON objects; fields that it does not name are left out.

    Timestamps, dates, times of day and durations are texts as `JsonlSink` writes them, or numbers: days,
    or counts of the unit of their type; those of one column must be alike. Without `one_a_line` an object
    may go over several lines. Raises ArrowInvalid unless the text has as many objects, and all fit.
    """
    if not text.isascii():
        _check_encoding(text)
    clocks = _clock_paths(schema)
    counted = _last_counted.get(schema, frozenset())
    for _ in range(2 * len(clocks) + 1):
        try:
            batch = _read(text, rows, schema, counted, one_a_line)
        except pa.ArrowInvalid as error:
            # The reader has stopped at the first number where a text should be, so that cost little.
            changed = _CHANGED.search(str(error))
            if (
                changed is None
                or changed[1] not in clocks
                or changed[3] not in ("number", "string")
            ):
                raise
            counted ^= {changed[1]}
        else:
            if clocks:
                _last_counted[schema] = counted
            return batch
    raise pa.ArrowInvalid("a time is a text in one object and a number in another")


def explained(text: bytes, schema: pa.Schema, error: Exception) -> str:
    """What is wrong with an object that `read_objects` refuses, with the column and its type."""
    for field in schema:
        try:
            read_objects(text, 1, pa.schema([field]))
        except pa.ArrowException as own:
            said = str(own)
            if changed := _CHANGED.search(said):
                inside = changed[1].removeprefix(f"/{field.name}").replace("/", ".")
                where = f", inside in {field.name}{inside}" if inside else ""
                said = f"a JSON {changed[3]}, where a {changed[2]} is needed{where}"
            return f"column {field.name!r} of type {field.type}: {said}"
    return str(error)


_CHANGED = re.compile(r"Column\((.*)\) changed from (\w+) to (\w+) in row")

_last_counted: dict[pa.Schema, frozenset[str]] = {}
"""By schema, the places whose times were numbers in the last text: so they are likely to be in the next."""


def _check_encoding(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the text is no UTF-8: {error}") from error


def _read(
    text: bytes, rows: int, schema: pa.Schema, counted: frozenset[str], one_a_line: bool
) -> pa.RecordBatch:
    table = pa_json.read_json(
        pa.BufferReader(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=_read_as(schema, counted),
            unexpected_field_behavior="ignore",
            newlines_in_values=not one_a_line,
        ),
    )
    if table.num_rows != rows:
        raise pa.ArrowInvalid(f"{table.num_rows} JSON objects instead of {rows}")
    [batch] = table.combine_chunks().to_batches()
    columns = [_into(batch.column(field.name), field.type) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name!r} must not be null")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_CLOCK_TYPES = (
    *(pa.types.is_date, pa.types.is_time),
    *(pa.types.is_timestamp, pa.types.is_duration),
)
_BYTES_TYPES = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)


@lru_cache
def _clock_paths(schema: pa.Schema) -> frozenset[str]:
    """Where times are, as the reader of Arrow names the places."""
    found: set[str] = set()

    def look(type: pa.DataType, path: str) -> pa.DataType:
        if any(check(type) for check in _CLOCK_TYPES):
            found.add(path)
        return type

    for field in schema:
        _read_type(field.type, f"/{field.name}", look)
    return frozenset(found)


@lru_cache
def _read_as(schema: pa.Schema, counted: frozenset[str]) -> pa.Schema:
    """What the reader of Arrow is told: times are texts, and numbers at the places that are counted."""

    def told(type: pa.DataType, path: str) -> pa.DataType:
        if path not in counted:
            return pa.string()
        return pa.int64() if pa.types.is_timestamp(type) or pa.types.is_duration(type) else type

    return pa.schema(
        [field.with_type(_read_type(field.type, f"/{field.name}", told)) for field in schema]
    )


def _read_type(
    type: pa.DataType, path: str, clock_type: Callable[[pa.DataType, str], pa.DataType]
) -> pa.DataType:
    """A type that the reader knows, and `_into` turns into this one."""
    if pa.types.is_dictionary(type):
        return _read_type(type.value_type, path, clock_type)
    if pa.types.is_struct(type):
        return pa.struct(
            [f.with_type(_read_type(f.type, f"{path}/{f.name}", clock_type)) for f in type]
        )
    if is_list(type):
        values = type.value_field
        return pa.list_(values.with_type(_read_type(values.type, f"{path}/[]", clock_type)))
    if any(check(type) for check in _CLOCK_TYPES):
        return clock_type(type, path)
    if any(check(type) for check in _BYTES_TYPES):
        return pa.string()
    return pa.float64() if type in _NARROW_FLOATS else type


_NARROW_FLOATS = (pa.float16(), pa.float32())


def _into(array: pa.Array, type: pa.DataType) -> pa.Array:
    """What was read as a `_read_type`, as the type itself. Raises ArrowInvalid for what does not fit."""
    if array.type == type:
        return array
    if pa.types.is_dictionary(type):
        return _into(array, type.value_type).dictionary_encode().cast(type)
    if pa.types.is_struct(type):
        parts = [_into(array.field(place), field.type) for place, field in enumerate(type)]
        return pa.StructArray.from_arrays(parts, fields=list(type), mask=array.is_null())
    if is_list(type):
        values = _into(array.values, type.value_type)
        return with_values(array, pa.list_(type.value_field), values).cast(type)
    if any(check(type) for check in _BYTES_TYPES):
        return _bytes(array, type)
    if type in _NARROW_FLOATS:
        return _narrow(array, type)
    if pa.types.is_timestamp(type) and pa.types.is_string(array.type):
        # A cast takes no more digits than its type has, even if they are zeros: hence two.
        unit = "ns" if type.unit == "ns" else "us"
        return array.cast(pa.timestamp(unit, type.tz)).cast(type)
    if not pa.types.is_string(array.type):
        return array.cast(type)
    if pa.types.is_duration(type):
        return _durations(array).cast(type)
    if pa.types.is_date(type):
        return array.cast(pa.date32()).cast(type)
    # Arrow reads no text as a time alone.
    moments = pc.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp("ns"))
    return moments.cast(pa.time64("ns")).cast(type)


def _narrow(array: pa.DoubleArray, type: pa.DataType) -> pa.Array:
    """The nearest numbers of the type, as of any text; none becomes infinite, or nothing."""
    result = array.cast(type, safe=False)
    back = result.cast(pa.float64())
    infinite = pc.and_(pc.is_inf(back), pc.is_finite(array))
    nothing = pc.and_(pc.equal(back, 0), pc.not_equal(array, 0))
    lost = pc.fill_null(pc.or_(infinite, nothing), False)
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid(f"{array.filter(lost)[0]} is beyond the range of {type}")
    return result


def _bytes(array: pa.StringArray, type: pa.DataType) -> pa.Array:
    try:
        values = [
            None if text is None else base64.b64decode(text, validate=True)
            for text in array.to_pylist()
        ]
    except ValueError as error:
        raise pa.ArrowInvalid(f"bytes are written in base64: {error}") from error
    return pa.array(values, type)


_DURATION = (
    r"^(?P<sign>-?)P(?P<days>[0-9]{1,6})DT(?P<seconds>[0-9]{1,10})(?:\.(?P<fraction>[0-9]{1,9}))?S$"
)


def _durations(array: pa.StringArray) -> pa.DurationArray:
    """Of the form in ISO 8601 that `JsonlSink` writes: `P1DT2.5S`, or with a sign in front."""
    parts = pc.extract_regex(array, _DURATION)
    if parts.null_count != array.null_count:
        wrong = array.filter(pc.and_(parts.is_null(), array.is_valid()))[0]
        raise pa.ArrowInvalid(f"{wrong.as_py()!r:.100} is no duration like P1DT2.5S")
    sign, days, seconds, fraction = parts.flatten()
    nanoseconds = pc.add_checked(
        pc.multiply_checked(
            pc.add(pc.multiply(days.cast(pa.int64()), 86_400), seconds.cast(pa.int64())), 10**9
        ),
        pc.utf8_rpad(fraction, 9, "0").cast(pa.int64()),
    )
    signed = pc.if_else(pc.equal(sign, "-"), pc.negate(nanoseconds), nanoseconds)
    return signed.cast(pa.duration("ns"))


def read_lines(text: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` of lines. Raises ArrowInvalid unless every line is one object that fits."""
    data = np.frombuffer(text, np.uint8)
    starts = np.flatnonzero(data[:-1] == ord("\n")) + 1
    # Where each line begins an object there is one for each, or more: as many means one each.
    if data[0] != ord("{") or not (data[starts] == ord("{")).all():
        raise pa.ArrowInvalid("there is no JSON object")
    return read_objects(text, len(starts) + 1, schema, one_a_line=True)


def checked_schema(schema: object) -> pa.Schema:
    """A schema that objects can be read by. Raises ConfigurationError for any other."""
    checked = given_schema(schema)
    for field in checked:
        try:
            read_objects(b"{}", 1, pa.schema([field.with_nullable(True)]))
        except pa.ArrowException as error:
            raise ConfigurationError(
                f"schema: column {field.name!r} cannot be read from JSON as {field.type}: {error}"
            ) from error
    return checked
