"""What a sender keeps for a receiver that may come back, and what it sends it again."""

from __future__ import annotations

import selectors
import socket
import time
from random import Random

import pyarrow as pa
import pytest

from minirt.config import Limits
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.errors import ProtocolError
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.channels import InputChannel
from minirt.runtime.channels.frames import (
    ACTIVE_FRAME,
    END_FRAME,
    IDLE_FRAME,
    Frame,
    Kind,
    barrier_frame,
    mark_frame,
    mark_of,
    watermark_frame,
    watermark_of,
)
from minirt.runtime.channels.logged import CountedInput, LoggedOutput, SentLog
from minirt.runtime.network.sockets import Network
from minirt.runtime.worker.wiring import Wiring

CODEC = RowCodec(allow_pickle=False)
ID = ChannelId(0, 0, 0)
BARRIER = barrier_frame(Barrier(7, "unaligned", 0.0))
Said = str | int | Frame
"""Texts stand for a frame with a record for each letter, numbers for watermarks."""


def frame_of(said: Said) -> Frame:
    if isinstance(said, Frame):
        return said
    return (
        watermark_frame(said) if isinstance(said, int) else data_frame(Rows([*said], None), CODEC)
    )


def shown(frames: list[Frame]) -> list[str]:
    names = {Kind.IDLE: "idle", Kind.ACTIVE: "active", Kind.END: "end", Kind.BARRIER: "barrier"}
    found = []
    for frame in frames:
        if frame.is_data:
            found.append("".join(map(str, batch_of(frame, CODEC).rows().records)))
            assert frame.records == len(found[-1])
        elif frame.kind == Kind.WATERMARK:
            found.append(f"w{watermark_of(frame)}")
        else:
            found.append(
                f"m{mark_of(frame)}" if frame.kind == Kind.MARK else names[Kind(frame.kind)]
            )
    return found


def log_of(*said: Said) -> SentLog:
    log = SentLog(CODEC)
    for one in said:
        log.add(frame_of(one))
    return log


@pytest.mark.parametrize(
    ("records", "again"),
    [
        (0, ["abc", "w5", "m1", "de", "end"]),
        (1, ["bc", "w5", "m1", "de", "end"]),
        (3, ["w5", "m1", "de", "end"]),
        (4, ["w5", "e", "end"]),
        (5, ["w5", "end"]),
    ],
)
def test_what_follows_is_sent_again_behind_the_event_time_of_its_place(
    records: int, again: list[str]
) -> None:
    assert shown(log_of("abc", 5, mark_frame(1), "de", END_FRAME).since(records)) == again


def test_columns_are_cut_within_a_frame() -> None:
    batch: Batch = Columns(pa.record_batch({"n": [1, 2, 3]}))
    [again] = log_of(data_frame(batch, CODEC)).since(2)
    assert batch_of(again, CODEC).rows().records == [{"n": 3}]


def test_the_newest_event_time_before_a_place_is_sent_once() -> None:
    log = log_of("a", 1, IDLE_FRAME, ACTIVE_FRAME, 2, "b", "c")
    assert shown(log.since(2)) == ["active", "w2", "c"]


def test_barriers_are_not_kept() -> None:
    assert shown(log_of("a", BARRIER, "b").since(0)) == ["a", "b"]


def test_what_is_forgotten_is_refused_and_event_time_stays() -> None:
    log = log_of("abc", 5, "de", 6, "f")
    log.forget(4)
    log.forget(2)
    assert shown(log.since(4)) == ["w5", "e", "w6", "f"]
    for records in (3, 7):
        with pytest.raises(ProtocolError, match="those from 4 to 6 are known"):
            log.since(records)


def test_whatever_was_forgotten_makes_no_difference() -> None:
    random = Random(1)
    for _ in range(300):
        said: list[Said] = [
            random.choice(["a", "bc", "def", 1, 2, 3, IDLE_FRAME, ACTIVE_FRAME, mark_frame(1)])
            for _ in range(random.randint(1, 12))
        ]
        whole, cut = log_of(*said), log_of(*said)
        count = sum(len(one) for one in said if isinstance(one, str))
        place = random.randint(0, count)
        cut.forget(random.randint(0, place))
        assert shown(cut.since(place)) == shown(whole.since(place))


def channel(
    queue_bytes: int = 100, window_bytes: int = 1000, log_bytes: int = 1000
) -> LoggedOutput:
    return LoggedOutput(queue_bytes, window_bytes, id=ID, codec=CODEC, log_bytes=log_bytes)


def sent(output: LoggedOutput) -> list[str]:
    frames = []
    while (frame := output.poll()) is not None:
        frames.append(frame)
    return shown(frames)


def test_a_receiver_that_is_back_gets_what_it_lacks_and_then_what_has_waited() -> None:
    output = channel()
    for said in ("ab", 3, "cd"):
        output.put(frame_of(said))
    assert sent(output) == ["ab", "w3", "cd"]
    output.park()
    output.put(frame_of("ef"))
    output.overtake(mark_frame(1))
    assert (sent(output), output.sendable, output.control_is_next) == ([], False, False)
    output.resume(3)
    assert sent(output) == ["w3", "d", "m1", "ef"]
    output.park()
    output.resume(6)
    assert sent(output) == ["w3"]


def test_its_credit_begins_anew() -> None:
    size = frame_of("ab").size
    output = channel(window_bytes=2 * size)
    for said in ("ab", "cd", "ef"):
        output.put(frame_of(said))
    assert sent(output) == ["ab", "cd"]
    output.park()
    output.resume(0)
    assert sent(output) == ["ab", "cd"]
    woken = []
    output.wake = lambda: woken.append(True)
    output.on_credit(size, 2 * size)
    assert (woken, sent(output)) == ([True], ["ef"])


def test_it_waits_for_nothing_more_only_once_it_has_caught_up() -> None:
    """So no buffer is sent on demand to a receiver that is away, or has much to do."""
    size = frame_of("ab").size
    output = channel()
    assert output.taken
    output.put(frame_of("ab"))
    sent(output)
    assert not output.taken
    output.on_credit(size, 1 << 20)
    assert output.taken
    output.park()
    assert not output.taken
    output.resume(0)
    assert not output.taken
    sent(output)
    assert not output.taken
    output.on_credit(size, 1 << 20)
    assert output.taken


def test_barriers_that_wait_for_it_are_dropped() -> None:
    output, left = channel(), []
    output.barrier_left = left.append
    output.put(frame_of("ab"))
    queued_bytes = output.queued_bytes
    output.overtake(BARRIER)
    output.park()
    assert (output.queued_bytes, left) == (queued_bytes, [7])
    output.resume(0)
    assert sent(output) == ["ab"]


def test_its_sender_goes_on_until_the_log_is_full_or_it_has_caught_up() -> None:
    size = frame_of("ab").size
    output = channel(queue_bytes=2 * size, window_bytes=100 * size, log_bytes=8 * size)
    changes = []
    output.changed = lambda: changes.append(output.fill)
    output.park()
    for _ in range(8):
        assert output.fill < 1
        output.put(frame_of("ab"))
    assert output.fill == 1
    output.resume(0)
    assert output.fill == 1
    for left in (7, 6, 5, 4, 3, 2):
        output.poll()
        assert output.fill == left / 8
    output.poll()
    assert output.fill == 0.5, "its queue counts as that of every channel again"
    assert changes[-1] == 0.5


def test_a_trunk_that_is_parked_in_the_turn_in_which_its_end_shows() -> None:
    """The order of the coordinator and the end of the connection are ready together."""
    own, other = socket.socketpair()
    own.setblocking(False)
    with selectors.DefaultSelector() as selector:
        wiring = Wiring(selector, Limits(), Network(b"", ""), 1, time.monotonic, [])
        output = channel()
        wiring._outgoing = {7: {ID: output}}
        wiring._open_sender(7, own)
        other.close()
        [(key, mask)] = selector.select(5)
        wiring.park(7)
        wiring.on_ready(key, mask)
        wiring.check_trunks()
        assert not selector.get_map()
        output.put(frame_of("ab"))
        assert not output.sendable


def test_a_channel_counts_what_was_processed_of_it() -> None:
    counted = CountedInput(1000)
    counted.records = 5
    counted.put(frame_of("abc"))
    counted.take()
    counted.begin(10, 3)
    assert counted.records == 5
    counted.processed(2)
    assert counted.records == 7
    assert not hasattr(InputChannel(1000), "records")
