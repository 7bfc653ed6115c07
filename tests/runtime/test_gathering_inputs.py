"""Gathering for an operator with two inputs that takes batches piece by piece, as a join does."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link
from minirt.graph.operator_spec import Gathering
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Rebalance
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.frames import barrier_frame, watermark_frame
from minirt.runtime.channels.logged import CountedInput
from minirt.runtime.input.elements import Advance, Data, Origin, Reached
from minirt.runtime.input.gate_input import Incoming
from minirt.runtime.input.gathering import GatheringInput
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.recovered import RestoredInput

CODEC = RowCodec()
LARGE = 1 << 20
BARRIER = Barrier(1, "unaligned", 0.0)
INPUTS = (0, 1, 0, 1)
"""By channel, the input that it feeds."""

Said = str | int
"""A letter for each record, or a watermark."""


class Reader:
    """Reads what channels have brought; records are letters, and each channel has its own."""

    def __init__(self, size: int) -> None:
        links = {f"in {i}": Link(0, 0, "a", 1, i, Rebalance(), None, 1, 1, 128) for i in (0, 1)}
        self.ends = [CountedInput(LARGE) for _ in INPUTS]
        incoming = [
            Incoming(end, Origin(f"in {index}", place), index)
            for place, (end, index) in enumerate(zip(self.ends, INPUTS, strict=True))
        ]
        parts = InputParts(links, CODEC, SubtaskMetrics(), RestoredInput())
        self.input = GatheringInput(incoming, parts, None, Gathering(size), lambda: 0.0)

    def put(self, channel: int, *said: Said) -> Reader:
        for one in said:
            is_time = isinstance(one, int)
            frame = watermark_frame(one) if is_time else data_frame(Rows([*one]), CODEC)
            self.input.put(channel, frame)
        return self

    def barrier(self) -> Reader:
        for channel in range(len(INPUTS)):
            self.input.put(channel, barrier_frame(BARRIER))
        return self

    def read(self, piece: int | None = None) -> Iterator[object]:
        """Pieces with the input that they are of, watermarks, and the channels of barriers."""
        while self.input.has_input:
            work = self.input.in_work
            if work is not None:
                count = min(work.left, piece or work.left)
                letters = "".join(work.piece(count).rows().records)
                self.input.consumed(count)
                yield work.data.input_index, letters
                continue
            match self.input.poll():
                case Advance(watermark):
                    yield watermark
                case Reached(channel):
                    yield f"barrier {channel}"
                case Data():
                    pass
                case None:
                    return

    def captured(self) -> str:
        """What a barrier that overtakes finds before the operator."""
        frames = (f for _, all in self.input.in_flight(BARRIER, range(len(INPUTS))) for f in all)
        return "".join(
            letter for frame in frames for letter in batch_of(frame, CODEC).rows().records
        )


def test_each_input_has_batches_of_its_own_and_the_oldest_records_come_first() -> None:
    reader = Reader(100).put(1, "x").put(0, "ab", "c").put(3, "y").put(2, "d")
    assert [*reader.read()] == [(1, "xy"), (0, "abdc")]


def test_a_batch_holds_no_more_than_was_asked_for() -> None:
    reader = Reader(3).put(0, "abcd", "e").put(2, "fgh")
    assert [*reader.read()] == [(0, "abc"), (0, "dfg"), (0, "he")]


def test_event_time_stays_behind_the_records_before_it() -> None:
    reader = Reader(100).put(0, "a", 5).put(1, "x", 6).put(2, "b", 7).put(3, "y", 4)
    reader.put(0, "c")
    assert [*reader.read()] == [(0, "abc"), (1, "xy"), 4]


def test_a_barrier_comes_behind_all_records_before_it() -> None:
    reader = Reader(100).put(0, "a", 5).put(1, "x", 5).put(2, 5).put(3, 5)
    first, second, time, *barriers, last = reader.barrier().put(0, "b").read()
    assert (first, second, time, last) == ((0, "a"), (1, "x"), 5, (0, "b"))
    assert sorted(map(str, barriers)) == [f"barrier {channel}" for channel in range(4)]


def test_what_is_left_of_a_batch_is_in_flight_and_the_rest_is_counted() -> None:
    reader = Reader(100).put(0, "abc").put(2, "de").put(1, "x")
    pieces = reader.read(piece=4)
    assert (reader.captured(), next(pieces)) == ("abcxde", (0, "abcd"))
    assert reader.captured() == "ex"
    assert [end.records for end in reader.ends] == [3, 0, 1, 0]
    assert [*pieces] == [(0, "e"), (1, "x")]
    assert [end.records for end in reader.ends] == [3, 1, 2, 0]


@pytest.mark.parametrize("seed", range(60))
def test_at_any_time_each_record_is_processed_or_in_flight(seed: int) -> None:
    random = Random(seed)
    reader = Reader(random.randint(1, 12))
    sent = ["" for _ in INPUTS]
    seen = ""
    times: list[object] = []
    for step in range(60):
        channel = random.randrange(len(INPUTS))
        if random.random() < 0.3:
            reader.put(channel, step)
        else:
            letters = "".join(chr(0x100 * (channel + 1) + len(sent[channel]) + i) for i in range(3))
            reader.put(channel, letters)
            sent[channel] += letters
        for found in reader.read(piece=random.randint(1, 5)):
            if isinstance(found, tuple):
                assert {INPUTS[ord(one) // 0x100 - 1] for one in found[1]} == {found[0]}
                seen += found[1]
            else:
                times.append(found)
            assert sorted(seen + reader.captured()) == sorted("".join(sent))
            if random.random() < 0.5:
                break
    seen += "".join(found[1] for found in reader.read() if isinstance(found, tuple))
    for channel, letters in enumerate(sent):
        assert "".join(one for one in seen if ord(one) // 0x100 - 1 == channel) == letters
    assert times == sorted(times)  # type: ignore[type-var]
