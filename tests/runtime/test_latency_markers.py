"""Latency markers: in channels, past everything that captures or repeats, and in a job."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import minirt as rt
from minirt.config import Limits
from minirt.data.batch import Columns, Rows
from minirt.data.codec import RowCodec
from minirt.errors import ConfigurationError
from minirt.graph.execution import Link
from minirt.graph.operator_spec import Gathering
from minirt.monitoring.latency import LatencyHistogram, together
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Broadcast, Partitioning, Rebalance
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import ChannelId
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.buffers import Outlet
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import (
    Frame,
    Kind,
    barrier_frame,
    latency_frame,
    latency_marker_of,
    mark_frame,
)
from minirt.runtime.channels.latency_marker import LatencyMarker
from minirt.runtime.channels.logged import LoggedOutput
from minirt.runtime.channels.numbered import NumberedInput, NumberedOutput, Repetition
from minirt.runtime.channels.output import LinkOutput, Outputs
from minirt.runtime.input.elements import Data, Origin, Reached
from minirt.runtime.input.gate_input import GateInput, Incoming
from minirt.runtime.input.gathering import GatheringInput
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.latency_timer import LatencyTimer
from minirt.runtime.input.recovered import RestoredInput
from minirt.runtime.network.transit import Transit, departing
from minirt.runtime.subtask.local_snapshots import ChannelLog
from tests.runtime.jobs import Numbers
from tests.runtime.processes import wait_until

CODEC = RowCodec()
ID = ChannelId(0, 0, 0)
MARKER = LatencyMarker("numbers", 5.0)
BARRIER = Barrier(3, "unaligned", 0.0)
LARGE = 1 << 20


def rows(*records: int) -> Frame:
    return data_frame(Rows([*records], None), CODEC)


def told(frames: list[Frame]) -> list[object]:
    """Records by themselves, control frames by their kind."""
    return [
        one
        for frame in frames
        for one in (batch_of(frame, CODEC).rows().records if frame.is_data else [frame.kind])
    ]


def drain(channel: OutputChannel) -> list[object]:
    frames = []
    while (frame := channel.poll()) is not None:
        frames.append(frame)
    return told(frames)


# At the outputs.


class Sender:
    def __init__(self, partitioning: Partitioning, receivers: int) -> None:
        self.channels = [OutputChannel(LARGE, LARGE) for _ in range(receivers)]
        outlet = Outlet("a", CODEC, Limits(), SubtaskMetrics(), lambda channel: None)
        link = Link(0, 0, "a", 1, 0, partitioning, None, 1, receivers, 8)
        self.link = LinkOutput(link, "link", 0, self.channels, "a", outlet)
        self.outputs = Outputs([self.link], buffer_timeout_s=1.0, on_demand=True)

    def emit(self, *records: int) -> None:
        self.link.emit(Rows([*records], None))

    def left(self) -> list[list[object]]:
        return [drain(channel) for channel in self.channels]


def test_a_marker_waits_for_the_timeout_of_the_buffer_as_the_records_before_it_do() -> None:
    sender = Sender(Rebalance(), 1)
    sender.outputs.begin_slice(10.0)
    sender.emit(1, 2)
    sender.outputs.latency(MARKER)
    assert sender.left() == [[]]
    assert sender.outputs.flush_at == 11.0
    sender.outputs.flush_due(11.0)
    assert sender.left() == [[1, 2, Kind.LATENCY]]
    assert sender.outputs.flush_at is None


def test_a_marker_alone_waits_as_well_and_leaves_on_demand() -> None:
    sender = Sender(Rebalance(), 1)
    sender.outputs.begin_slice(10.0)
    sender.outputs.latency(MARKER)
    assert sender.outputs.flush_at == 11.0
    assert sender.outputs.wanted
    sender.outputs.flush_wanted()
    assert sender.left() == [[Kind.LATENCY]]
    sender.outputs.flush_wanted()
    assert sender.left() == [[]]


def test_columns_that_are_gathered_stay_ahead_of_a_marker() -> None:
    """One of the receivers waits for more, the other has not taken all: what is gathered stays here."""
    sender = Sender(Rebalance(), 2)
    sender.channels[1].put(rows(0))
    assert sender.left() == [[], [0]]
    sender.link.emit(Columns(pa.record_batch({"n": [1, 2]})))
    sender.outputs.latency(MARKER)
    sender.outputs.flush_wanted()
    assert sender.left() == [[], []]
    sender.link.flush()
    assert sender.left() == [[{"n": 1}, Kind.LATENCY], [{"n": 2}]]


def test_each_receiver_has_its_turn_and_all_get_what_is_broadcast() -> None:
    sender = Sender(Rebalance(), 3)
    for _ in range(4):
        sender.outputs.latency(MARKER)
    sender.link.flush()
    assert [len(each) for each in sender.left()] == [2, 1, 1]
    sender = Sender(Broadcast(), 3)
    sender.outputs.latency(MARKER)
    sender.link.flush()
    assert [len(each) for each in sender.left()] == [1, 1, 1]


def test_a_barrier_overtakes_a_marker_and_captures_records_only() -> None:
    sender = Sender(Rebalance(), 1)
    sender.emit(1)
    sender.outputs.latency(MARKER)
    sender.emit(2)
    [overtaken] = sender.outputs.overtake(BARRIER)
    assert told([*overtaken.frames]) == [1, 2]  # type: ignore[list-item]
    assert sender.left() == [[Kind.BARRIER, 1, 2, Kind.LATENCY]]


# At the inputs.


def reader(gathering: Gathering | None = None) -> tuple[GateInput, InputChannel]:
    channel = InputChannel(LARGE)
    link = Link(0, 0, "a", 1, 0, Rebalance(), None, 1, 1, 8)
    parts = InputParts({"in": link}, CODEC, SubtaskMetrics(), RestoredInput())
    incoming = [Incoming(channel, Origin("in", 0), 0)]
    if gathering is None:
        return GateInput(incoming, parts), channel
    return GatheringInput(incoming, parts, None, gathering, lambda: 0.0), channel


def read(input: GateInput) -> Iterator[object]:
    while (element := input.poll()) is not None:
        if isinstance(element, Data):
            yield from element.batch.rows().records
            input.consumed(len(element.batch))
        else:
            yield element


def test_a_marker_is_read_behind_the_records_before_it_and_not_captured() -> None:
    input, _ = reader()
    for frame in (rows(1), latency_frame(MARKER), rows(2), barrier_frame(BARRIER)):
        input.put(0, frame)
    [(_, ahead)] = [*input.in_flight(BARRIER, [0])]
    assert told([*ahead]) == [1, 2]  # type: ignore[list-item]
    assert [*read(input)] == [1, MARKER, 2, Reached(0, BARRIER)]


def test_a_marker_waits_for_the_records_that_are_gathered_before_it() -> None:
    input, _ = reader(Gathering(3, 1.0))
    for frame in (rows(1, 2), latency_frame(MARKER)):
        input.put(0, frame)
    assert [*read(input)] == []
    assert [data.batch.rows().records for data in input.held()] == [[1, 2]]
    for frame in (rows(3), rows(4, 5, 6)):
        input.put(0, frame)
    assert [*read(input)] == [1, 2, 3, MARKER, 4, 5, 6]


# What is repeated.


def test_a_receiver_that_comes_back_gets_no_marker_again() -> None:
    channel = LoggedOutput(LARGE, LARGE, id=ID, codec=CODEC, log_bytes=LARGE)
    for frame in (rows(1), latency_frame(MARKER), rows(2)):
        channel.put(frame)
    assert drain(channel) == [1, Kind.LATENCY, 2]
    channel.park()
    channel.resume(0)
    assert drain(channel) == [1, 2]


@pytest.mark.parametrize("marked", [False, True])
def test_a_sender_that_comes_back_sends_the_same_records_with_and_without_markers(
    marked: bool,
) -> None:
    repetition = Repetition(lambda: None)
    channel = NumberedOutput(LARGE, LARGE, id=ID, codec=CODEC, repetition=repetition)
    channel.begin_at(2, 5, mark=1)
    markers = [latency_frame(MARKER)] if marked else []
    for frame in (*markers, rows(2, 3), *markers, rows(4, 5, 6), *markers):
        channel.put(frame)
    assert channel.sent == 7
    assert repetition.is_over
    assert drain(channel) == [5, 6, *[Kind.LATENCY] * marked]


def test_numbers_and_the_places_of_local_snapshots_pass_over_markers() -> None:
    channel, log = NumberedInput(LARGE), ChannelLog()
    for frame in (rows(1, 2), latency_frame(MARKER), mark_frame(1), rows(3), latency_frame(MARKER)):
        channel.put(frame)
        log.add(frame)
    assert channel.had == 3
    assert told(log.slice(0, 1)) == [1, 2]
    log.move_mark(2, 1)
    assert told(log.slice(0, 2)) == [1, 2]


# Time.


def test_a_marker_is_as_old_in_another_process_whatever_its_clock_shows() -> None:
    transit, apart = Transit(), 3600.0
    for sent_at, way_s in ((10.0, 0.001), (11.0, 0.201)):
        marker = LatencyMarker("numbers", sent_at - 0.5)
        arrived = sent_at + apart + way_s
        [frame] = [transit.frame(departing(latency_frame(marker), sent_at), arrived)]
        age_s = arrived - latency_marker_of(frame).emitted_at
        assert age_s == pytest.approx(0.5 + way_s, abs=0.002)


def test_many_markers_do_not_push_out_what_is_known_of_barriers() -> None:
    """If they did, what the last of them took on their way would not count."""
    transit = Transit()
    transit.note(0.0, 100.0)
    for count in range(1000):
        transit.frame(departing(latency_frame(MARKER), 1.0), 103.0 + count)
    assert transit.barrier(Barrier(1, "aligned", 1.0), 1.0, 1103.0).created_at == 101.0


def test_a_marker_that_is_late_is_not_made_up_for() -> None:
    timer = LatencyTimer("numbers", 2.0, 10.0)
    assert timer.due_at == 12.0
    assert timer.emit(11.0) is None
    assert timer.emit(19.0) == LatencyMarker("numbers", 19.0)
    assert timer.due_at == 21.0


def test_a_source_reads_between_two_markers_though_reading_takes_longer_than_their_interval() -> (
    None
):
    timer = LatencyTimer("numbers", 2.0, 10.0)
    emitted = [timer.emit(now) is not None for now in (20.0, 30.0, 40.0, 50.0)]
    assert emitted == [True, False, True, False]


@pytest.mark.parametrize("interval", [0, "0.5ms", -1, "soon"])
def test_an_interval_that_cannot_work_is_refused(interval) -> None:
    with pytest.raises(ConfigurationError, match="latency_interval"):
        rt.Options(latency_interval=interval)


# In a job.

SLOW_S = 0.03


def _slow(number: int) -> int:
    time.sleep(SLOW_S)
    return number


def job(interval: str | None) -> rt.Job:
    """A hundred records a second are read, and thirty come through: the others queue."""
    env = rt.Environment("marked", parallelism=1)
    (
        env.source(Numbers(None, per_second=100), uid="numbers")
        .rebalance()
        .map(_slow, uid="slow")
        .rebalance()
        .sink(rt.DiscardSink(), uid="out")
    )
    return env.start(options=rt.Options(latency_interval=interval, buffer_timeout="1ms"))


def latencies(job: rt.Job, operator: str) -> LatencyHistogram:
    own = [one for one in job.figures.subtasks if one.operator == operator]
    return together(each for one in own for each in one.totals.latency.values())


@pytest.mark.processes
def test_a_function_that_sleeps_shows_up_behind_it_as_the_queue_in_front_of_it() -> None:
    running = job("20ms")

    def worst() -> list[float]:
        return [latencies(running, name).share_s(1.0) or 0 for name in ("slow", "out")]

    try:
        wait_until(lambda: min(worst()) > 0.2, "markers have waited in the queue", 60)
    finally:
        running.cancel()
        running.wait()
    assert (latencies(running, "slow").share_s(0.5) or 0) > SLOW_S
    assert max(worst()) < 30
    assert {*job_sources(running)} == {"numbers"}


def job_sources(job: rt.Job) -> Iterator[str]:
    for one in job.figures.subtasks:
        yield from one.totals.latency


@pytest.mark.processes
def test_without_the_option_there_are_no_markers() -> None:
    running = job(None)
    try:
        wait_until(
            lambda: any(
                one.operator == "out" and one.totals.records_in > 2
                for one in running.figures.subtasks
            ),
            "records reach the sink",
            60,
        )
        assert [*job_sources(running)] == []
    finally:
        running.cancel()
        running.wait()
