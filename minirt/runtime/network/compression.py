"""LZ4 for packets that go to another host: fewer bytes on the wire, for CPU time on both sides.

A compressed payload is `length before (u32 LE) | one LZ4 block`. Each packet stands for itself, so that
whoever receives one needs to know nothing of the others.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from minirt.errors import ProtocolError

COMPRESSED_FROM_BYTES = 256
"""Smaller payloads go as they are."""

_LENGTH = struct.Struct("<I")
_CODEC = "lz4_raw"


def compressed(payload: bytes | memoryview) -> bytes | None:
    """None if that is no shorter."""
    packed: bytes = pa.Codec(_CODEC).compress(payload, asbytes=True)
    if _LENGTH.size + len(packed) >= len(payload):
        return None
    return _LENGTH.pack(len(payload)) + packed


def decompressed(packed: memoryview | bytearray, bytes_max: int) -> bytes:
    """Raises ProtocolError for what nobody has compressed, or what is larger than `bytes_max`."""
    try:
        (length,) = _LENGTH.unpack_from(packed)
        if length > bytes_max:
            raise ProtocolError(f"a compressed packet of {length} bytes: {bytes_max} are allowed")
        block = memoryview(packed)[_LENGTH.size :]
        whole: bytes = pa.Codec(_CODEC).decompress(block, length, asbytes=True)
        return whole
    except (struct.error, OSError, pa.ArrowException) as error:
        raise ProtocolError(f"a packet cannot be decompressed: {error}") from None
