"""Writes records as lines of JSON: the form of each type of value, and the values that have none."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from json import encoder as json_encoder
from typing import Any, BinaryIO, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa

from minirt.data.batch import Batch, Columns
from minirt.errors import SinkDataError
from minirt.io.encoder import Encoder
from minirt.io.json_of_columns import lines_of

OnNan = Literal["error", "null"]

_MICROSECOND = dt.timedelta(microseconds=1)
_ERRORS = (TypeError, ValueError, RecursionError)


class JsonlEncoder(Encoder):
    """Columns become text a column at a time. Of rows, the C encoder takes a batch in one pass; Python
    handles only the records that it refuses.
    """

    def __init__(self, stream: BinaryIO, operator: str, nan: OnNan) -> None:
        self._stream = stream
        self._operator = operator
        self._nan = nan

    def write(self, batch: Batch) -> None:
        lines = self._of_columns(batch.table) if isinstance(batch, Columns) else None
        self._stream.write(self._of_rows(batch.rows().records) if lines is None else lines)

    def finish(self) -> None:
        """Nothing is held back."""

    def abandon(self) -> None:
        """Nothing to release."""

    def _of_columns(self, table: pa.RecordBatch) -> memoryview | None:
        """None where a value has no form: the rows tell which record it is in."""
        try:
            return lines_of(table, self._encode_value)
        except (*_ERRORS, ArithmeticError, pa.ArrowException):
            return None

    def _of_rows(self, records: list[Any]) -> bytes:
        try:
            lines = list(map(_encode, records))
        except _ERRORS:
            lines = list(map(self._encode_record, records))
        # Within the texts of JSON, this form of a lone surrogate is that of JSON.
        return "\n".join([*lines, ""]).encode(errors="backslashreplace")

    def _encode_value(self, value: Any) -> str:
        try:
            return _encode(value)
        except _ERRORS:
            return _encode(_settled(value, self._nan))

    def _encode_record(self, record: Any) -> str:
        try:
            return self._encode_value(record)
        except _ERRORS as error:
            raise SinkDataError(
                f"{self._operator}: a record cannot be written as JSON ({error}): {record!r:.500}"
            ) from None


def _settled(value: Any, nan: OnNan) -> Any:
    """The value, with keys and numbers that the encoder refuses replaced."""
    if isinstance(value, dict):
        return {_key(key, nan): _settled(item, nan) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_settled(item, nan) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _settled(_plain(value), nan)
    if isinstance(value, float) and not math.isfinite(value):
        if nan == "error":
            raise ValueError(
                f'{value} has no form in JSON; give the sink nan="null", or replace it before'
            )
        return None
    return value


def _key(key: Any, nan: OnNan) -> str | int | None:
    """Keys of JSON are texts: those of other types are what they are as values, as a text."""
    plain = key if isinstance(key, str | int) or key is None else _settled(_plain_key(key), nan)
    return plain if isinstance(plain, str | int) or plain is None else _encode(plain)


def _plain_key(key: Any) -> Any:
    return key if isinstance(key, float | tuple | frozenset) else _plain(key)


def _plain(value: Any) -> Any:
    """The form in JSON of a value of a type that JSON does not know."""
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return _duration(value // _MICROSECOND * 1000)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case set() | frozenset():
            return list(value)
        case Decimal() | UUID():
            return str(value)
        case np.datetime64() | np.timedelta64():
            return _numpy_time(value)
        case complex() | np.complexfloating():
            return [float(value.real), float(value.imag)]
        case np.floating():
            return float(value)
        case np.generic():
            return value.item()
        case np.ndarray():
            return list(value) if value.ndim else value[()]
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _duration(nanoseconds: int) -> str:
    """ISO 8601, as days and seconds: `P1DT2.5S`; what is negative has its sign in front."""
    seconds, fraction = divmod(abs(nanoseconds), 10**9)
    digits = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"{'-' if nanoseconds < 0 else ''}P{seconds // 86400}DT{seconds % 86400}{digits}S"


def _numpy_time(value: np.datetime64 | np.timedelta64) -> Any:
    """With all its digits, which Python's own times do not have; null if it is no time."""
    if np.isnat(value):
        return None
    if isinstance(value, np.timedelta64):
        exact: Any = value.item()
        if isinstance(exact, dt.timedelta):
            return _plain(exact)
        if np.datetime_data(value)[0] == "ns":
            return _duration(exact)
    return str(value)


def _line_encoder() -> Callable[[Any], str]:
    """A function that writes one value as JSON, set up once instead of for every record."""
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )
    make = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    chunks = make(
        None, encoder.default, json_encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(chunks(value, 0))


_encode = _line_encoder()
