"""What a sender does with a small window: queue, frames and pieces shrink with it."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt import Limits, Options
from minirt.data.batch import Columns, Rows
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Broadcast, Rebalance
from minirt.protocol.ids import SubtaskId
from minirt.runtime.channels.buffers import Outlet
from minirt.runtime.channels.channels import InputChannel, OutputChannel, RowRoom
from minirt.runtime.channels.frames import HEADER, Frame, Kind
from minirt.runtime.channels.output import LinkOutput
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.pacer import RoomPacer
from minirt.testing.clock import HeldClock

LARGE = 1 << 20
FRAME_BYTES = Limits().column_frame_bytes


def test_queue_of_the_sender_shrinks_with_the_window() -> None:
    channel = OutputChannel(queue_bytes_max=1000, window_bytes=4000)
    channel.put(Frame(Kind.ROWS, bytes(495)))
    assert channel.fill == 0.5
    channel.on_credit(0, 2000)
    assert channel.fill == 1
    channel.on_credit(0, 4000)
    assert channel.fill == 0.5


def link_output(channels: list[OutputChannel], partitioning: Any) -> LinkOutput:
    link = Link(0, 0, "a", 1, 0, partitioning, None, 1, len(channels), 128)
    limits = Limits(frame_bytes=6400)
    outlet = Outlet("a", RowCodec(), limits, SubtaskMetrics(), lambda channel: None)
    return LinkOutput(link, "a > b:0", 0, channels, "a", outlet)


def sent(channel: OutputChannel) -> list[Frame]:
    return [frame for frame in iter(channel.poll, None) if frame is not None]


def test_frames_shrink_with_the_window() -> None:
    channel = OutputChannel(LARGE, LARGE)
    output = link_output([channel], Rebalance())
    records = [f"{n:0100}" for n in range(1000)]
    output.emit(Rows(records[:500]))
    large = sent(channel)[-2]
    channel.on_credit(10**9, 1 << 17)
    output.emit(Rows(records[500:]))
    output.flush()
    small = sent(channel)[-2]
    assert large.size == pytest.approx(6400, rel=0.25)
    assert small.size == pytest.approx(6400 / 8, rel=0.25)


def test_frame_for_several_channels_follows_the_smallest_window() -> None:
    ends = [OutputChannel(LARGE, LARGE) for _ in range(2)]
    ends[1].on_credit(0, 1 << 17)
    output = link_output(ends, Broadcast())
    for _ in range(20):
        output.emit(Rows([f"{n:0100}" for n in range(50)]))
    assert max(frame.records for frame in sent(ends[0])[2:]) <= 8


def column_frames(channel: OutputChannel) -> list[Frame]:
    output = link_output([channel], Rebalance())
    output.emit(Columns(pa.record_batch({"n": np.arange(1 << 16)})))
    output.flush()
    return sent(channel)


def test_frames_of_columns_fit_what_a_small_window_leaves_of_the_queue() -> None:
    channel = OutputChannel(LARGE, LARGE)
    [large, *_] = column_frames(channel)
    channel.on_credit(10**9, LARGE // 16)
    [small, *_] = column_frames(channel)
    assert large.records * 8 == pytest.approx(FRAME_BYTES, rel=0.1)
    assert small.records * 8 == pytest.approx(LARGE / 16, rel=0.1)


@pytest.mark.parametrize("queue_bytes", [8192, 64 * 1024])
def test_frame_is_no_larger_than_a_small_queue(queue_bytes: int) -> None:
    [first, *_] = column_frames(OutputChannel(queue_bytes, LARGE))
    assert first.records * 8 == pytest.approx(queue_bytes, rel=0.1)


def test_columns_stay_held_only_until_they_fill_small_frames() -> None:
    channel = OutputChannel(4096, LARGE)
    link_output([channel], Rebalance()).emit(Columns(pa.record_batch({"n": np.arange(600)})))
    assert channel.queued_bytes >= 4096


def test_piece_doubles_while_its_output_fits() -> None:
    pacer, pieces = RoomPacer(), []
    for _ in range(5):
        pieces.append(pacer.piece)
        pacer.done(pacer.piece, fill=0.5)
    assert pieces == [1, 2, 4, 8, 16]


def test_piece_whose_output_overfills_a_queue_becomes_half_of_what_would_fill_it() -> None:
    pacer = RoomPacer()
    while pacer.piece < 2048:
        pacer.done(pacer.piece, fill=0.0)
    pacer.done(2048, fill=32.0)
    assert pacer.piece == 32
    pacer.done(32, fill=1.4)
    assert pacer.piece == 32
    pacer.done(1, fill=100.0)
    assert pacer.piece == 1


def test_batch_that_was_shorter_than_a_piece_says_nothing_of_larger_ones() -> None:
    pacer = RoomPacer()
    pacer.done(1, fill=0.0)
    pacer.done(1, fill=0.0)
    pacer.done(0, fill=9.0)
    assert pacer.piece == 2


class Hasty:
    """A pacer for which everything is fast."""

    def begin(self) -> None:
        pass

    def piece(self, *, columns: bool) -> int:
        return 4096

    def done(self, records: int, *, columns: bool) -> bool:
        return False


def test_subtask_does_not_flood_the_small_queue_of_a_slow_receiver() -> None:
    env, source = rt.Environment(), rt.SequenceSource.endless(splits=1)
    env.source(source).map(lambda n: f"{n:0100}").rebalance().sink(rt.DiscardSink())
    graph = build_execution_graph(env.graph())
    options = Options(debloat="1s", buffer_timeout=0)
    package = JobPackage(cloudpickle.dumps(graph), options, MODES["aligned"], None)
    first = SubtaskId(0, 0)
    deployment = Deployment(1, splits={first: list(enumerate(source.plan_splits(1)))})
    ports = LocalPorts(HeldClock(), lambda upload: None, lambda subtask: None)
    built = assemble(package, deployment, first, ports, Hasty(), lambda channel: None)
    (channel,) = built.outputs.values()
    channel.on_credit(0, 16 * 1024)
    consumed, fills = 0, []
    for _ in range(100):
        built.subtask.run_slice()
        fills.append(channel.fill)
        consumed += sum(frame.size for frame in sent(channel) if frame.is_data)
        channel.on_credit(consumed, 16 * 1024)
    assert max(fills) < 4


ROWS = RowRoom(queue_bytes=1000, window_bytes=2000)


def rows(size: int) -> Frame:
    return Frame(Kind.ROWS, bytes(size - HEADER.size))


def columns(size: int) -> Frame:
    return Frame(Kind.COLUMNS, bytes(size - HEADER.size))


def test_rows_fill_a_smaller_part_of_a_queue_than_columns() -> None:
    channel = OutputChannel(LARGE, LARGE, rows=ROWS)
    channel.put(columns(1000))
    assert channel.fill < 0.01
    channel.put(rows(1000))
    assert channel.fill == 2
    channel.on_credit(0, 1)  # Debloating may ask for less still.
    assert channel.fill > 1000


def test_rows_have_less_under_way_than_columns() -> None:
    channel = OutputChannel(LARGE, LARGE, rows=ROWS)
    for _ in range(3):
        channel.put(rows(1000))
    assert len(sent(channel)) == 2
    channel.on_credit(1000, LARGE)
    assert len(sent(channel)) == 1
    for _ in range(3):
        channel.put(columns(1000))
    assert len(sent(channel)) == 3


def test_credit_for_rows_comes_before_their_sender_has_to_wait() -> None:
    """By the window of columns, it would come once four frames were taken, and two are under way."""
    channel, granted = InputChannel(LARGE, None, ROWS.window_bytes), list[int]()
    channel.grant = lambda consumed, window: granted.append(consumed)
    for _ in range(2):
        channel.put(rows(1000))
    assert channel.room_bytes == ROWS.window_bytes
    channel.take()
    assert granted == [1000]
    channel.put(columns(1000))
    assert channel.room_bytes == LARGE


def test_frames_of_rows_fit_their_part_of_a_queue() -> None:
    channel = OutputChannel(LARGE, LARGE, rows=ROWS)
    link_output([channel], Rebalance()).emit(Rows([f"{n:0100}" for n in range(500)]))
    assert sent(channel)[-1].size == pytest.approx(ROWS.queue_bytes, rel=0.25)
    [first, *_] = column_frames(OutputChannel(LARGE, LARGE, rows=ROWS))
    assert first.records * 8 == pytest.approx(FRAME_BYTES, rel=0.1)
