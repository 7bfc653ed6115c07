"""The frame of stored parts: everything comes back, and no damage goes unnoticed."""

from __future__ import annotations

import struct
import zlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import CorruptCheckpointError
from minirt.storage.parts import (
    PART_VERSION,
    PartIndex,
    decode_part,
    encode_part,
    part_checksum,
    read_index,
)

SECTIONS = {"state": b"s" * 50, "empty": b"", "in-flight": bytes(range(40))}
PART = b"".join(encode_part(SECTIONS))
_HEADER_BYTES = 17


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


def index_of(part: bytes) -> PartIndex:
    """Read as from storage: in ranges, none of which reaches into a section."""

    def read(start: int, length: int) -> bytes:
        assert start + length <= _HEADER_BYTES + struct.unpack_from("<I", part, 9)[0]
        return part[start : start + length]

    return read_index(read, "p")


def framed(index: bytes, version: int = PART_VERSION) -> bytes:
    checksum = zlib.crc32(bytes([version]) + index)
    return struct.pack("<8sBII", PART[:8], version, len(index), checksum) + index


def test_future_version_is_told_from_damage() -> None:
    with pytest.raises(CorruptCheckpointError, match="format version 3, this minirt reads up to"):
        decode_part(framed(msgpack.packb([]), version=3), "p")


def test_parts_of_version_1_can_be_read() -> None:
    index = msgpack.packb([["a", 2, zlib.crc32(b"AA")], ["b", 1, zlib.crc32(b"B")]])
    part = framed(index, version=1) + b"AAB"
    assert decode_part(part, "p") == {"a": b"AA", "b": b"B"}
    assert [section.entries for section in index_of(part).sections] == [None, None]


def test_the_index_tells_of_each_section_where_it_is_and_how_many_entries_it_has() -> None:
    part = b"".join(encode_part(SECTIONS, {"state": 7, "in-flight": None}))
    index = index_of(part)
    assert [(section.name, section.entries) for section in index.sections] == [
        ("state", 7),
        ("empty", None),
        ("in-flight", None),
    ]
    assert [part[s.start : s.end] for s in index.sections] == [*SECTIONS.values()]
    assert index.bytes == len(part)
    assert index.checksum == part_checksum(part)


@pytest.mark.parametrize(
    "index",
    [
        7,
        {},
        [1],
        [["a", 0, 0]],
        [["a", -1, 0, 0]],
        [["a", 0, 0, -1]],
        [["a", 0, 0, "many"]],
        [["a", 0, 0, 0], ["a", 0, 0, 0]],
        [[1, 0, 0, 0]],
    ],
)
def test_malformed_index_with_a_good_checksum_is_refused(index: object) -> None:
    with pytest.raises(CorruptCheckpointError, match="malformed"):
        decode_part(framed(msgpack.packb(index)), "p")


BOMBS = {
    "nested without end": b"\x91" * 100_000,
    "long arrays in long arrays": b"\xdd\x00\x10\x00\x00" * 1000,
    "a text of 4 GB": b"\xdb\xff\xff\xff\xff",
    "an extension": msgpack.packb([msgpack.ExtType(12, b"pickle")]),
    "a time": msgpack.packb([msgpack.Timestamp(1)]),
    "a list as key": b"\x81\x90\xc0",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_an_index_crafted_to_exhaust_its_reader_is_refused(bomb: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="malformed"):
        decode_part(framed(bomb), "p")


def test_checksum_of_a_part_depends_on_every_section() -> None:
    other = encode_part({**SECTIONS, "state": b"t" * 50})[0]
    assert part_checksum(other) != part_checksum(PART)
