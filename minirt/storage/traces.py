"""The stored form of traces: events as short rows, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minirt.data.errors import MalformedDataError
from minirt.data.plain import pack_plain, unpack_plain
from minirt.errors import CorruptCheckpointError
from minirt.protocol import plain
from minirt.protocol.trace import (
    TRACE_EVENT_KINDS,
    CheckpointTrace,
    SubtaskTrace,
    TraceEvent,
)
from minirt.storage.parts import decode_part, encode_part

_KIND_PLACES = {kind: place for place, kind in enumerate(TRACE_EVENT_KINDS)}
_TRACE_BYTES_MAX = 1 << 28
"""What a trace may take in memory; a larger one is refused."""


def encode_trace(trace: CheckpointTrace) -> list[bytes]:
    """In chunks. An event is [time, kind, channel, bytes], a kind its place among all kinds."""
    value = plain.to_plain(replace(trace, subtasks=()))
    value["subtasks"] = [_packed(part) for part in trace.subtasks]
    return encode_part({"trace": zlib.compress(pack_plain(value), 1)})


def decode_trace(data: bytes, path: str) -> CheckpointTrace:
    """What `encode_trace` has made. Raises CorruptCheckpointError for anything else."""
    sections = decode_part(data, path)
    try:
        value = unpack_plain(_inflated(sections["trace"]))
        trace = plain.from_plain(CheckpointTrace, {**value, "subtasks": []})
        return replace(trace, subtasks=tuple(_part(part) for part in value["subtasks"]))
    except (KeyError, TypeError, ValueError, IndexError, zlib.error, MalformedDataError) as error:
        raise CorruptCheckpointError(f"not the trace of a checkpoint ({error})", path) from error


def _inflated(data: bytes) -> bytes:
    inflate = zlib.decompressobj()
    inflated = inflate.decompress(data, _TRACE_BYTES_MAX)
    if inflate.unconsumed_tail:
        raise ValueError(f"it has more than {_TRACE_BYTES_MAX} bytes")
    return inflated


def _packed(part: SubtaskTrace) -> dict[str, Any]:
    value: dict[str, Any] = plain.to_plain(replace(part, events=()))
    value["events"] = [[e.at, _KIND_PLACES[e.kind], e.channel, e.bytes] for e in part.events]
    return value


def _part(value: dict[str, Any]) -> SubtaskTrace:
    part = plain.from_plain(SubtaskTrace, {**value, "events": []})
    return replace(part, events=tuple(_event(row) for row in value["events"]))


def _event(row: Sequence[Any]) -> TraceEvent:
    at, kind, channel, bytes = row
    if not (type(at) is float and type(channel) is int and type(bytes) is int and kind >= 0):
        raise ValueError(f"{row!r} is no event")
    return TraceEvent(at, TRACE_EVENT_KINDS[kind], channel, bytes)
