"""Turns of the channels of a trunk: nobody waits for long, and nobody sends above its credit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import Frame, Kind, barrier_frame, watermark_frame
from minirt.runtime.network.packets import (
    BEGINS,
    HEADER,
    MORE,
    PAYLOAD_BYTES_MAX,
    SIZE,
    PacketDecoder,
)
from minirt.runtime.network.transit import Transit
from minirt.runtime.network.turns import BATCH_BYTES, BATCH_PIECES, TURN_BYTES, Turns

FRAME_BYTES_MAX = 1 << 24
WINDOW = 200_000

SIZES = st.sampled_from([1, 50, 3_000, TURN_BYTES, PAYLOAD_BYTES_MAX + 1, 190_000, 700_000])
PUTS = st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=25)


class Trunk:
    """Channels of both ends, and what goes from one to the other in batches; nothing is lost on the way."""

    def __init__(self, channels: int = 4, window: int = WINDOW) -> None:
        self.outputs = [OutputChannel(1 << 30, window) for _ in range(channels)]
        self.inputs = [InputChannel(window) for _ in range(channels)]
        self.woken = 0
        self.turns = Turns(self.outputs, self._on_woken, lambda: 7.0)
        self.came: defaultdict[int, list[Frame]] = defaultdict(list)
        self._transit = Transit()
        self._decoder = PacketDecoder(channels, FRAME_BYTES_MAX)
        for output, input in zip(self.outputs, self.inputs, strict=True):
            input.grant = output.on_credit

    def _on_woken(self) -> None:
        self.woken += 1

    def carry(self) -> list[tuple[int, int, bool]]:
        """One batch: channel, length and whether it is data, packet by packet; frames wait to be taken."""
        batch = b"".join(map(bytes, self.turns.batch()))
        for number, frame in self._decoder.feed(memoryview(batch)):
            self.came[number].append(frame)
            self.inputs[number].put(self._transit.frame(frame, 7.0))
        return packets_in(batch)

    def take(self, number: int) -> None:
        while self.inputs[number].frames:
            self.inputs[number].take()

    def carry_all(self, after: Callable[[], None] = lambda: None) -> None:
        while self.carry():
            after()


def packets_in(batch: bytes) -> list[tuple[int, int, bool]]:
    found, place = [], 0
    while place < len(batch):
        length, number, kind = HEADER.unpack_from(batch, place)
        found.append((number, length, kind & ~(MORE | BEGINS) <= Kind.COLUMNS))
        place += HEADER.size + length + (SIZE.size if kind & BEGINS else 0)
    return found


def data(size: int, tag: int = 0) -> Frame:
    return Frame(Kind.ROWS, tag.to_bytes(4, "little") + bytes(size), 1)


@given(puts=PUTS, draw=st.data())
def test_all_frames_arrive_in_order_and_never_above_credit(puts, draw):
    trunk, sent = Trunk(), defaultdict(list)

    def check() -> None:
        for input in trunk.inputs:
            alone = len(input.frames) <= 1
            assert alone or input.queued_bytes <= WINDOW

    def step() -> None:
        trunk.carry()
        check()
        if draw.draw(st.booleans()):
            trunk.take(draw.draw(st.integers(0, 3)))

    for tag, (number, size) in enumerate(puts):
        frame = data(size, tag)
        trunk.outputs[number].put(frame)
        sent[number].append(frame)
        if draw.draw(st.booleans()):
            step()
    for _ in range(len(puts) + 1):
        trunk.carry_all(check)
        for number in range(4):
            trunk.take(number)
    assert {
        number: [frame.payload for frame in frames] for number, frames in trunk.came.items()
    } == {number: [frame.payload for frame in frames] for number, frames in sent.items()}


@given(counts=st.lists(st.tuples(st.integers(0, 30), SIZES), min_size=4, max_size=4))
def test_between_two_turns_of_a_channel_each_other_one_has_at_most_one(counts):
    trunk = Trunk(window=1 << 30)
    for number, (count, size) in enumerate(counts):
        for _ in range(count):
            trunk.outputs[number].put(data(size))
            trunk.outputs[number].on_credit(
                0, 1 << 30
            )  # Wakes it once more: that gives it no second place.
    packets: list[tuple[int, int, bool]] = []
    while batch := trunk.carry():
        assert sum(length + HEADER.size for _, length, _ in batch) <= (
            BATCH_BYTES + TURN_BYTES + PAYLOAD_BYTES_MAX + 2 * HEADER.size
        )
        packets += batch
    turn_max = TURN_BYTES + PAYLOAD_BYTES_MAX + HEADER.size
    for number in range(4):
        places = [place for place, packet in enumerate(packets) if packet[0] == number]
        for earlier, later in pairwise(places):
            between: defaultdict[int, int] = defaultdict(int)
            for other, length, _ in packets[earlier + 1 : later]:
                between[other] += length
            assert all(size <= turn_max for size in between.values())


def test_a_channel_without_credit_holds_up_no_other() -> None:
    trunk = Trunk(channels=2, window=1000)
    for _ in range(50):
        trunk.outputs[0].put(data(400))
        trunk.outputs[1].put(data(400))
    trunk.carry_all(lambda: trunk.take(1))
    assert [len(trunk.came[number]) for number in (0, 1)] == [2, 50]
    trunk.carry_all(lambda: trunk.take(0))
    trunk.take(0)
    trunk.carry_all(lambda: trunk.take(0))
    assert len(trunk.came[0]) == 50


def test_a_large_frame_lets_others_pass_between_its_packets() -> None:
    trunk = Trunk(channels=2, window=1 << 30)
    trunk.outputs[0].put(data(8 * PAYLOAD_BYTES_MAX))
    trunk.outputs[1].put(data(10))
    first = trunk.carry()
    assert [number for number, _, _ in first[:2]] == [0, 1]
    assert [len(trunk.came[number]) for number in (0, 1)] == [0, 1]
    trunk.carry_all()
    assert [len(trunk.came[number]) for number in (0, 1)] == [1, 1]


def test_a_barrier_overtakes_the_queue_of_its_channel_and_the_data_of_all_others() -> None:
    trunk = Trunk(channels=3, window=1 << 30)
    for number in range(3):
        for _ in range(20):
            trunk.outputs[number].put(data(TURN_BYTES))
    trunk.outputs[2].overtake(barrier_frame(Barrier(1, "unaligned", 5.0)))
    number, _, is_data = trunk.carry()[0]
    assert (number, is_data) == (2, False)
    assert [frame.kind for frame in trunk.came[2]][:1] == [Kind.BARRIER]


def test_a_barrier_waits_for_the_frame_of_its_channel_that_has_begun() -> None:
    trunk = Trunk(channels=1, window=1 << 30)
    trunk.outputs[0].put(data(10 * PAYLOAD_BYTES_MAX))
    trunk.outputs[0].put(data(5))
    trunk.carry()
    assert trunk.came[0] == []
    overtaken = trunk.outputs[0].overtake(barrier_frame(Barrier(1, "unaligned", 5.0)))
    assert [frame.size for frame in overtaken] == [data(5).size]
    trunk.carry_all()
    assert [frame.kind for frame in trunk.came[0]] == [Kind.ROWS, Kind.BARRIER, Kind.ROWS]


def test_a_barrier_needs_no_credit() -> None:
    trunk = Trunk(channels=1, window=1000)
    for _ in range(5):
        trunk.outputs[0].put(data(900))
    trunk.carry_all()
    trunk.outputs[0].overtake(barrier_frame(Barrier(1, "unaligned", 5.0)))
    trunk.carry_all()
    assert [frame.kind for frame in trunk.came[0]] == [Kind.ROWS, Kind.BARRIER]


def test_tiny_frames_are_as_many_as_one_call_takes() -> None:
    trunk = Trunk(channels=2, window=1 << 30)
    for _ in range(3 * BATCH_PIECES):
        for output in trunk.outputs:
            output.put(data(1))
    while pieces := trunk.turns.batch():
        assert len(pieces) <= BATCH_PIECES + 1


def test_each_barrier_says_when_it_was_sent_and_who_may_send_is_told_of() -> None:
    trunk = Trunk(channels=1)
    assert trunk.woken == 0
    trunk.outputs[0].put(barrier_frame(Barrier(1, "aligned", 5.0)))
    trunk.outputs[0].put(watermark_frame(3))
    assert trunk.woken == 1
    trunk.carry_all()
    barrier, watermark = trunk.came[0]
    assert len(barrier.payload) == len(barrier_frame(Barrier(1, "aligned", 5.0)).payload) + 8
    assert watermark == watermark_frame(3)


def test_what_was_put_before_there_was_a_trunk_is_sent() -> None:
    output = OutputChannel(1000, 1000)
    output.put(data(5))
    woken: list[bool] = []
    turns = Turns([output], lambda: woken.append(True))
    assert woken == [True]
    assert turns.batch()
