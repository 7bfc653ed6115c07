"""Packets of many channels on one trunk: what goes in comes out, in order, however it is cut on the way."""

from __future__ import annotations

import secrets
import struct
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt import ProtocolError
from minirt.runtime.channels.frames import END_FRAME, Frame, Kind
from minirt.runtime.network.packets import (
    BEGINS,
    COMPRESSED,
    HEADER,
    MORE,
    PAYLOAD_BYTES_MAX,
    SIZE,
    PacketDecoder,
    Piece,
    cut,
    unsent,
)

CHANNELS = 3
FRAME_BYTES_MAX = 5 * PAYLOAD_BYTES_MAX

SIZES = st.sampled_from(
    [0, 1, 100, PAYLOAD_BYTES_MAX - 1, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 200_000]
)
KINDS = st.sampled_from([Kind.ROWS, Kind.COLUMNS, Kind.WATERMARK])
FRAMES = st.lists(st.tuples(st.integers(0, CHANNELS - 1), KINDS, SIZES), max_size=12)


def packets_of(frame: Frame, number: int, compress: bool = False) -> list[bytes]:
    pieces: list[list[Piece]] = []
    rest: Piece | None = frame.payload
    while rest is not None:
        pieces.append([])
        rest = cut(number, frame.kind, rest, pieces[-1], compress, begins=rest is frame.payload)
    return [b"".join(map(bytes, packet)) for packet in pieces]


def decoded(
    wire: bytes, cuts: Sequence[int], channels: int = CHANNELS, bytes_max: int = FRAME_BYTES_MAX
) -> list[tuple[int, Frame]]:
    decoder, found = PacketDecoder(channels, bytes_max), []
    places = [0, *sorted(place % (len(wire) + 1) for place in cuts), len(wire)]
    for start, stop in pairwise(places):
        arrived = bytearray(wire[start:stop])
        found += decoder.feed(memoryview(arrived))
        arrived[:] = bytes(len(arrived))  # The buffer is filled again.
    return found


@given(drawn=FRAMES, compress=st.booleans(), data=st.data())
def test_frames_of_each_channel_come_in_order_however_packets_are_mixed_and_reads_cut(
    drawn, compress, data
):
    sent: defaultdict[int, list[Frame]] = defaultdict(list)
    waiting: defaultdict[int, list[bytes]] = defaultdict(list)
    for number, kind, size in drawn:
        content = data.draw(st.sampled_from([secrets.token_bytes, bytes]))
        frame = Frame(kind, content(size))
        sent[number].append(frame)
        waiting[number] += packets_of(frame, number, compress)
    wire = b""
    while any(waiting.values()):
        number = data.draw(st.sampled_from([each for each in waiting if waiting[each]]))
        wire += waiting[number].pop(0)
    cuts = data.draw(st.lists(st.integers(0, 1 << 20), max_size=8))
    came: defaultdict[int, list[Frame]] = defaultdict(list)
    for number, frame in decoded(wire, cuts):
        came[number].append(frame)
    assert came == sent


def test_reads_of_single_bytes_give_the_same_frames() -> None:
    frames = [Frame(Kind.ROWS, b"abc"), END_FRAME, Frame(Kind.WATERMARK, bytes(8))]
    wire = b"".join(packet for frame in frames for packet in packets_of(frame, 1))
    assert decoded(wire, range(len(wire))) == [(1, frame) for frame in frames]


def test_a_frame_that_is_not_whole_is_not_delivered_whatever_comes_on_other_channels() -> None:
    large = packets_of(Frame(Kind.COLUMNS, bytes(3 * PAYLOAD_BYTES_MAX)), 0)
    small = packets_of(Frame(Kind.ROWS, b"x"), 1)
    assert len(large) == 3
    found = decoded(b"".join([large[0], *small, large[1], *small]), [])
    assert found == [(1, Frame(Kind.ROWS, b"x"))] * 2


@given(sizes=st.lists(SIZES, max_size=5))
def test_no_packet_is_larger_than_one_may_be(sizes):
    for size in sizes:
        packets = packets_of(Frame(Kind.COLUMNS, bytes(size)), 0)
        assert len(packets) == max(1, -(-size // PAYLOAD_BYTES_MAX))
        assert all(len(packet) <= HEADER.size + SIZE.size + PAYLOAD_BYTES_MAX for packet in packets)


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (HEADER.pack(PAYLOAD_BYTES_MAX + 1, 0, Kind.ROWS), "a packet of 65537 bytes"),
        (HEADER.pack(1, CHANNELS, Kind.ROWS), "channel 3 of a trunk that has 3"),
        (b"GET / HTTP/1.0\r\n\r\n", "a packet of"),
        (HEADER.pack(1, 0, Kind.ROWS | MORE), "a frame goes on that has not begun"),
        (
            (HEADER.pack(0, 0, Kind.ROWS | MORE | BEGINS) + SIZE.pack(1)) * 2,
            "a frame begins within another one",
        ),
    ],
)
@pytest.mark.parametrize("cuts", [[], [4]])
def test_what_no_sender_sends_is_refused_at_its_header(wire, says, cuts):
    with pytest.raises(ProtocolError, match=says):
        decoded(wire, cuts)


def test_a_frame_above_its_limit_is_refused_before_any_of_it_has_come() -> None:
    head = HEADER.pack(PAYLOAD_BYTES_MAX, 0, Kind.ROWS | MORE | BEGINS)
    assert decoded(head + SIZE.pack(FRAME_BYTES_MAX), []) == []
    with pytest.raises(ProtocolError, match=r"a frame of 327681 bytes .* frame_bytes_max"):
        decoded(head + SIZE.pack(FRAME_BYTES_MAX + 1), [])


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("cuts", [[], [70_000]])
@pytest.mark.parametrize(("said", "says"), [(-1, "of which 34463 are missing"), (1, "1 bytes are")])
def test_a_frame_that_is_not_as_large_as_it_has_said_is_refused(compress, cuts, said, says):
    first, last = packets_of(Frame(Kind.ROWS, bytes(100_000)), 0, compress)
    wrong = first.replace(SIZE.pack(100_000), SIZE.pack(100_000 + said), 1)
    assert wrong != first
    with pytest.raises(ProtocolError, match=says):
        decoded(wrong + last, cuts)


@given(pieces=st.lists(st.binary(max_size=5), max_size=6), data=st.data())
def test_what_a_call_did_not_send_is_what_is_left(pieces, data):
    whole = b"".join(pieces)
    sent = data.draw(st.integers(0, len(whole)))
    left = unsent(list(pieces), sent)
    assert b"".join(map(bytes, left)) == whole[sent:]
    assert bool(left) == (sent < len(whole))


def test_compressed_packets_are_shorter_and_others_go_as_they_are() -> None:
    text = b"one record is much like another, " * 3000
    for content, shorter in (
        (text, True),
        (secrets.token_bytes(50_000), False),
        (bytes(100), False),
    ):
        frame = Frame(Kind.ROWS, content)
        plain, packed = (b"".join(packets_of(frame, 0, compress)) for compress in (False, True))
        assert (len(packed) < len(plain) / 10) == shorter
        assert shorter or packed == plain
        assert decoded(packed, [7]) == [(0, frame)]


def test_what_nobody_has_compressed_is_refused() -> None:
    [packet] = packets_of(Frame(Kind.ROWS, bytes(1000)), 0, compress=True)
    payload = packet[HEADER.size :]
    length = struct.pack("<I", 1000)
    for wrong in (
        *(b"", b"abc", length, length + secrets.token_bytes(20), payload[:-3]),
        struct.pack("<I", 999) + payload[4:],
        struct.pack("<I", PAYLOAD_BYTES_MAX + 1) + payload[4:],
    ):
        forged = HEADER.pack(len(wrong), 0, Kind.ROWS | COMPRESSED) + wrong
        with pytest.raises(ProtocolError, match="packet"):
            decoded(forged, [])
