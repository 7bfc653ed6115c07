"""Channels whose sender does again what its receiver has had."""

from __future__ import annotations

import pytest

from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.errors import ProtocolError
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.frames import (
    END_FRAME,
    IDLE_FRAME,
    Frame,
    Kind,
    barrier_frame,
    mark_frame,
    mark_of,
    watermark_frame,
)
from minirt.runtime.channels.numbered import (
    NumberedInput,
    NumberedLoggedOutput,
    NumberedOutput,
    Repetition,
)
from minirt.runtime.subtask.local_snapshots import ChannelLog

ID, CODEC = ChannelId(1, 0, 0), RowCodec()
LARGE = 10_000
BARRIER = barrier_frame(Barrier(1, "aligned", 0.0))


def rows(*records: int) -> Frame:
    return data_frame(Rows(list(records), None), CODEC)


def told(frames: list[Frame]) -> list[object]:
    """Records by themselves, control frames by their kind."""
    return [
        one
        for frame in frames
        for one in (batch_of(frame, CODEC).records if frame.is_data else [Kind(frame.kind).name])  # type: ignore[union-attr]
    ]


def drain(output: NumberedOutput) -> list[object]:
    frames = []
    while (frame := output.poll()) is not None:
        frames.append(frame)
    return told(frames)


class Sender:
    def __init__(
        self, sent: int = 0, had: int = 0, logged: bool = False, ended: bool = False
    ) -> None:
        self.over = 0
        self.repetition = Repetition(self.on_over)
        sizes = (LARGE, LARGE)
        named = {"id": ID, "codec": CODEC, "repetition": self.repetition}
        if logged:
            self.output: NumberedOutput = NumberedLoggedOutput(*sizes, **named, log_bytes=LARGE)  # type: ignore[arg-type]
        else:
            self.output = NumberedOutput(*sizes, **named)  # type: ignore[arg-type]
        self.output.begin_at(sent, had, mark=5, ended=ended)

    def on_over(self) -> None:
        self.over += 1

    def put(self, *frames: Frame) -> list[object]:
        for frame in frames:
            self.output.put(frame)
        return drain(self.output)


def test_what_the_receiver_has_had_does_not_come_again() -> None:
    sender = Sender(sent=2, had=6)
    assert not sender.repetition.is_over
    assert sender.put(rows(3, 4), watermark_frame(4), IDLE_FRAME) == []
    assert sender.put(rows(5, 6, 7), rows(8)) == [7, 8]
    assert (sender.over, sender.repetition.is_over, sender.output.sent) == (1, True, 8)


def test_frames_may_be_cut_in_any_other_way() -> None:
    for cuts in range(2**7):
        sender, got = Sender(sent=0, had=4), list[object]()
        piece: list[int] = []
        for record in range(1, 9):
            piece.append(record)
            if record == 8 or cuts >> (record - 1) & 1:
                got += sender.put(rows(*piece))
                piece = []
        assert got == [5, 6, 7, 8]
        assert sender.over == 1


def test_event_time_behind_the_last_record_that_was_had_comes_again() -> None:
    sender = Sender(sent=0, had=2)
    assert sender.put(rows(1), watermark_frame(1), rows(2), watermark_frame(2)) == ["WATERMARK"]


def test_the_end_has_a_number_of_its_own() -> None:
    assert Sender(sent=0, had=2).put(rows(1, 2), END_FRAME) == ["END"]
    ended = Sender(sent=0, had=3)
    assert ended.put(rows(1, 2), END_FRAME) == []
    assert ended.over == 1


def test_an_end_that_comes_too_early_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="is a function not deterministic"):
        Sender(sent=0, had=4).put(rows(1, 2), END_FRAME)


def test_behind_the_end_nothing_leaves_but_barriers() -> None:
    sender = Sender(sent=3, had=3, ended=True)
    assert sender.repetition.is_over
    assert sender.put(watermark_frame(9), IDLE_FRAME, END_FRAME, BARRIER) == ["BARRIER"]
    assert (sender.output.sent, sender.repetition.ended) == (3, True)
    with pytest.raises(ProtocolError, match="behind its end sends records"):
        sender.put(rows(3))


def test_an_end_is_known_as_soon_as_it_was_put() -> None:
    sender = Sender()
    sender.put(rows(1))
    assert not sender.repetition.ended
    sender.put(END_FRAME)
    assert sender.repetition.ended


def test_a_receiver_that_comes_back_gets_the_end_of_a_sender_that_came_back_behind_it() -> None:
    output = Sender(sent=3, had=3, logged=True, ended=True).output
    assert isinstance(output, NumberedLoggedOutput)
    output.park()
    output.resume(2)
    assert drain(output) == ["END", "MARK"]
    output.park()
    with pytest.raises(ProtocolError, match="those from 2 to 2 are known"):
        output.resume(1)


def test_one_that_has_nothing_to_do_again_sends_at_once() -> None:
    sender = Sender(sent=4, had=4)
    assert sender.put(rows(5)) == [5]
    assert (sender.over, sender.output.sent) == (0, 5)


def test_a_full_queue_does_not_hold_up_what_is_done_again() -> None:
    both = Sender(sent=0, had=0)
    other = NumberedOutput(
        LARGE, LARGE, id=ChannelId(1, 0, 1), codec=CODEC, repetition=both.repetition
    )
    other.begin_at(0, 1, mark=5)
    changed: list[float] = []
    both.output.changed = lambda: changed.append(both.output.fill)
    both.output.queue_bytes_max = 1
    both.output.put(rows(1))
    assert changed == [0.0]
    other.put(rows(1))
    assert changed[-1] > 1


def test_a_receiver_that_comes_back_gets_what_the_sender_did_again() -> None:
    sender = Sender(sent=2, had=4, logged=True)
    assert sender.put(rows(3, 4, 5), watermark_frame(5), rows(6)) == [5, "WATERMARK", 6]
    output = sender.output
    assert isinstance(output, NumberedLoggedOutput)
    output.park()
    output.resume(2)
    assert drain(output) == ["MARK", 3, 4, 5, "WATERMARK", 6]
    output.park()
    with pytest.raises(ProtocolError, match="those from 2 to 6 are known"):
        output.resume(1)


def test_the_mark_of_the_snapshot_is_in_the_log() -> None:
    output = Sender(sent=2, had=2, logged=True).output
    assert isinstance(output, NumberedLoggedOutput)
    [mark] = output._log.since(2)
    assert mark_of(mark) == 5


def test_the_receiver_counts_what_arrives() -> None:
    channel = NumberedInput(LARGE)
    for frame in (rows(1, 2), watermark_frame(3), END_FRAME):
        channel.put(Frame(frame.kind, frame.payload))  # As it comes from a wire.
    assert channel.had == 3


def test_a_new_sender_gets_no_credit_for_what_it_did_not_send() -> None:
    channel, granted = NumberedInput(LARGE), list[tuple[int, int]]()
    channel.grant = lambda consumed, window: granted.append((consumed, window))
    old, new = rows(1, 2, 3), rows(4)
    channel.put(old)
    channel.begin_anew()
    channel.put(new)
    channel.take()
    channel.take()
    assert granted == [(0, LARGE), (new.size, LARGE)]


def log_of(*frames: Frame) -> ChannelLog:
    log = ChannelLog()
    for frame in frames:
        log.add(frame)
    return log


def test_a_mark_moves_behind_what_it_had_overtaken() -> None:
    log = log_of(mark_frame(1), rows(1, 2), rows(3), mark_frame(2), rows(4))
    log.move_mark(1, 2)
    assert told(log.slice(0, 1)) == [1, 2]
    assert not log.has_mark(2)
    assert [log.need(taken) for taken in range(4)] == [0, 1, 2, 2]
    log.add(mark_frame(7))
    assert told(log.slice(0, 7)) == [1, 2, 3, 4]


def test_a_mark_that_moves_to_the_end_and_to_the_beginning() -> None:
    for elements, records in ((0, [1, 2]), (2, [])):
        log = log_of(rows(1), rows(2))
        log.move_mark(3, elements)
        assert told(log.slice(0, 3)) == records
        assert log.need(2) == (3 if not elements else 4)


@pytest.mark.parametrize("elements", [1, 4])
def test_a_mark_lies_between_two_frames(elements: int) -> None:
    with pytest.raises(ProtocolError, match="does not lie between two frames that are known"):
        log_of(rows(1), rows(2, 3)).move_mark(1, elements)
