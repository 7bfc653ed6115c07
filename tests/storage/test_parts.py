"""The frame of stored parts: everything comes back, and no damage goes unnoticed."""

from __future__ import annotations

import struct
import zlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import CorruptCheckpointError
from minirt.storage.parts import decode_part, encode_part, part_checksum

SECTIONS = {"state": b"s" * 50, "empty": b"", "in-flight": bytes(range(40))}
PART = b"".join(encode_part(SECTIONS))


@given(st.dictionaries(st.text(), st.binary()))
def test_sections_come_back_in_order(sections: dict[str, bytes]) -> None:
    decoded = decode_part(b"".join(encode_part(sections)), "p")
    assert list(decoded.items()) == list(sections.items())


def test_sections_are_not_copied() -> None:
    assert encode_part(SECTIONS)[1] is SECTIONS["state"]


def test_every_flipped_bit_is_noticed() -> None:
    for position in range(len(PART)):
        for bit in range(8):
            damaged = bytearray(PART)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptCheckpointError, match=r"p$"):
                decode_part(bytes(damaged), "p")


def test_every_truncation_is_noticed() -> None:
    for length in range(len(PART)):
        with pytest.raises(CorruptCheckpointError):
            decode_part(PART[:length], "p")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_part(data, "p")


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "header is cut short, 0 bytes"),
        (b"PAR1" + PART, "not a file of minirt"),
        (PART[:20], "index of its sections is cut short"),
        (PART[:-41], "section 'state' is cut short, 49 of 50 bytes"),
        (PART[:-3], "section 'in-flight' is cut short"),
        (PART[:-1] + b"\0", "section 'in-flight' fails its checksum"),
        (PART + b"tail", "4 bytes follow the last section"),
    ],
)
def test_message_names_the_damage(damaged: bytes, message: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=f"{message}.*: s3://b/x") as caught:
        decode_part(damaged, "s3://b/x")
    assert caught.value.path == "s3://b/x"


def framed(index: bytes, version: int = 1) -> bytes:
    checksum = zlib.crc32(bytes([version]) + index)
    return struct.pack("<8sBII", PART[:8], version, len(index), checksum) + index


def test_future_version_is_told_from_damage() -> None:
    with pytest.raises(CorruptCheckpointError, match="format version 2, this minirt reads"):
        decode_part(framed(msgpack.packb([]), version=2), "p")


@pytest.mark.parametrize("index", [7, [1], [["a", -1, 0]], [["a", 0, 0], ["a", 0, 0]], [[1, 0, 0]]])
def test_malformed_index_with_a_good_checksum_is_refused(index: object) -> None:
    with pytest.raises(CorruptCheckpointError, match="malformed"):
        decode_part(framed(msgpack.packb(index)), "p")


def test_checksum_of_a_part_depends_on_every_section() -> None:
    other = encode_part({**SECTIONS, "state": b"t" * 50})[0]
    assert part_checksum(other) != part_checksum(PART)
