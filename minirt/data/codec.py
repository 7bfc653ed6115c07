"""Batches as bytes, for the wire and for storage: rows by msgpack, columns by Arrow IPC.

Both begin with a head of 8 bytes (format, version, whether there are timestamps, their number) and
the timestamps as int64, little endian. The length of the head keeps Arrow's buffers aligned.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns, Rows
from minirt.data.errors import MalformedDataError, UnsupportedRecordError
from minirt.data.layout import count_values, pack_values, unpack_values
from minirt.data.values import Pickled, pack_value, unpack_value
from minirt.errors import ProtocolError

__all__ = [
    "RowCodec",
    "encode_columns",
    "decode_columns",
    "count_records",
    "count_values",
    "pack_values",
    "unpack_values",
    "pack_value",
    "unpack_value",
    "Pickled",
]

_HEAD = struct.Struct("<BBBxI")
_VERSION = 1
_ROWS, _COLUMNS = b"RC"
_END_OF_STREAM_BYTES = 8


class RowCodec:
    """Encodes and decodes row batches; every record comes back equal and of the same types.

    `allow_pickle` lets values of other types travel as pickles, both ways. With `opaque_pickles`, pickles
    are decoded as they are, as Pickled.
    """

    def __init__(self, *, allow_pickle: bool = False, opaque_pickles: bool = False) -> None:
        self._allow_pickle = allow_pickle
        self._opaque_pickles = opaque_pickles

    def encode(self, batch: Rows) -> bytes:
        """Raises UnsupportedRecordError for values of types that cannot be sent."""
        body = pack_values(batch.records, allow_pickle=self._allow_pickle)
        times = batch.timestamps
        if times is None:
            return _HEAD.pack(_ROWS, _VERSION, 0, 0) + body
        _check_lengths(len(times), len(batch.records))
        try:
            packed_times = struct.pack(f"<{len(times)}q", *times)
        except struct.error:
            raise UnsupportedRecordError(
                "timestamps must be ints of milliseconds within 64 bits, got "
                f"{next(time for time in times if not _is_timestamp(time))!r}"
            ) from None
        return b"".join((_HEAD.pack(_ROWS, _VERSION, 1, len(times)), packed_times, body))

    def decode(self, payload: bytes | memoryview) -> Rows:
        """Raises MalformedDataError for anything that `encode` did not write."""
        timed, count, start = _read_head(payload, _ROWS)
        records = unpack_values(
            memoryview(payload)[start:],
            allow_pickle=self._allow_pickle,
            opaque_pickles=self._opaque_pickles,
        )
        if not timed:
            return Rows(records)
        if count != len(records):
            raise MalformedDataError(f"{count} timestamps for {len(records)} records")
        return Rows(records, list(struct.unpack_from(f"<{count}q", payload, _HEAD.size)))


def encode_columns(batch: Columns) -> memoryview:
    """A column batch as bytes that nobody changes any more, with its schema."""
    times, schema = batch.timestamps, batch.table.schema
    if times is None:
        before: tuple[Any, ...] = (_HEAD.pack(_COLUMNS, _VERSION, 0, 0),)
    else:
        _check_lengths(len(times), len(batch))
        head = _HEAD.pack(_COLUMNS, _VERSION, 1, len(times))
        before = head, np.ascontiguousarray(times, dtype="<i8")
    size = _HEAD.size + (0 if times is None else 8 * len(times)) + _END_OF_STREAM_BYTES
    size += schema.serialize().size + pa.ipc.get_record_batch_size(batch.table)
    room = np.empty(size, np.uint8)
    try:
        written = _write_columns(pa.FixedSizeBufferWriter(pa.py_buffer(room)), before, batch)
    except OSError:  # Nobody foretells how large dictionaries are.
        sink = pa.BufferOutputStream()
        written = _write_columns(sink, before, batch)
        room = np.frombuffer(sink.getvalue(), np.uint8)
    return room.data[:written].toreadonly()


def _write_columns(sink: pa.NativeFile, before: Iterable[Any], batch: Columns) -> int:
    """Returns how many bytes there are."""
    for part in before:
        sink.write(part)
    with pa.ipc.new_stream(sink, batch.table.schema) as writer:
        writer.write_batch(batch.table)
    return int(sink.tell())


def decode_columns(payload: bytes | memoryview, *, trusted: bool = False) -> Columns:
    """Return the batch, whose columns and timestamps are read-only views of the payload.

    A payload that is not `trusted`, as one from storage, is checked as a whole: a forged offset would have
    Arrow read memory that is not its own. Frames of workers that have proved who they are need no such
    look at each value. Raises MalformedDataError for anything that `encode_columns` did not write.
    """
    timed, count, start = _read_head(payload, _COLUMNS)
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)[start:]) as reader:
            table = reader.read_next_batch()
        table.validate(full=not trusted)
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise MalformedDataError(f"columns cannot be decoded ({error})") from error
    if not timed:
        return Columns(table)
    if count != table.num_rows:
        raise MalformedDataError(f"{count} timestamps for {table.num_rows} records")
    times: npt.NDArray[np.int64] = np.frombuffer(payload, "<i8", count, _HEAD.size)
    return Columns(table, times)


def count_records(payload: bytes | memoryview) -> int:
    """How many records an encoded batch holds, without decoding them. Raises MalformedDataError."""
    if bytes(payload[:1]) == b"C":
        # Their buffers stay where they are, and no value is looked at.
        return len(decode_columns(payload, trusted=True))
    _, _, start = _read_head(payload, _ROWS)
    return count_values(memoryview(payload)[start:])


def _read_head(payload: bytes | memoryview, form: int) -> tuple[bool, int, int]:
    """Whether there are timestamps, how many, and where the body begins."""
    if len(payload) < _HEAD.size:
        raise MalformedDataError(f"{len(payload)} bytes are too few for a batch")
    found, version, timed, count = _HEAD.unpack_from(payload)
    if found != form:
        raise MalformedDataError(f"a batch of {chr(form)!r} form was expected, not {chr(found)!r}")
    if version != _VERSION or timed > 1:
        raise MalformedDataError(
            f"a batch of format version {version} cannot be read; this is version {_VERSION}"
        )
    start = _HEAD.size + 8 * count
    if start > len(payload):
        raise MalformedDataError(f"{count} timestamps announced in {len(payload)} bytes")
    return bool(timed), count, start


def _is_timestamp(time: object) -> bool:
    return isinstance(time, int) and -(2**63) <= time < 2**63


def _check_lengths(timestamps: int, records: int) -> None:
    if timestamps != records:
        raise ProtocolError(f"a batch has {records} records but {timestamps} timestamps")
