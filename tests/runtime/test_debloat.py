"""Debloating: windows follow the throughput of their channel, and senders follow the windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import minirt as rt
from minirt import ConfigurationError, Limits, Options
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Rebalance
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.buffers import ChannelBuffer, Outlet
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.debloat import Debloater
from minirt.runtime.channels.frames import (
    END_FRAME,
    Frame,
    Kind,
    barrier_frame,
    barrier_of,
    watermark_frame,
)
from minirt.runtime.input.elements import Advance, Data, Origin
from minirt.runtime.input.gate_input import GateInput, Incoming
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.recovered import RestoredInput

LIMITS = Limits(input_queue_bytes=65_536, output_queue_bytes=32_768, debloat_period_s=0.25)
EXACT = replace(LIMITS, debloat_threshold=0.0)
"""Every change is told."""
TARGET_S = 1.5
"""Two thirds of it for the input queue: a window is as many bytes as are consumed in a second."""
WEIGHT = 2 / 21
CODEC = RowCodec()


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Consumer:
    """Works off one channel, each record as a frame of its own."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.time = Time()
        self.debloater = Debloater(TARGET_S, limits, self.time)

    @property
    def window(self) -> int:
        return self.debloater.window_bytes

    def consume(self, frame_bytes: int, seconds: float, times: int = 1) -> None:
        for _ in range(times):
            self.debloater.begin(frame_bytes, 1)
            self.time.now += seconds
            self.debloater.processed(1)

    def idle(self, seconds: float) -> None:
        self.time.now += seconds
        self.debloater.resume()

    def settled(self, rate: int) -> Consumer:
        """Itself, after 100 seconds at so many bytes a second (a multiple of 16), between samples."""
        self.consume(rate // 16, 1 / 16, times=1600)
        self.idle(1)
        self.consume(rate // 16, 1 / 16)
        return self


# One channel


def test_window_doubles_from_the_smallest_to_the_largest_while_each_is_consumed_quickly() -> None:
    consumer, seen = Consumer(), []
    while consumer.window < LIMITS.input_queue_bytes:
        seen.append(consumer.window)
        consumer.consume(consumer.window, 0.001)
    assert seen == [256 << step for step in range(8)]
    consumer.consume(consumer.window, 0.001, times=1000)
    assert consumer.window == LIMITS.input_queue_bytes


def test_start_ends_where_the_pace_asks_for_no_more() -> None:
    consumer = Consumer()
    consumer.consume(125, 0.125, times=2)
    # 250 bytes in 0.25 s ask for 1000.
    assert consumer.window == round(256 + WEIGHT * (1000 - 256)) == 327
    consumer.consume(10_000, 0.001)
    assert consumer.window == 327


@pytest.mark.parametrize("rate", [480, 1600, 16_000, 64_000])
def test_steady_throughput_times_reach_is_the_window(rate: int) -> None:
    assert Consumer(EXACT).settled(rate).window == pytest.approx(rate, rel=0.01)
    assert Consumer().settled(rate).window == pytest.approx(rate, rel=0.25)


def test_throughput_beyond_the_largest_window_and_below_the_smallest_is_cut_off() -> None:
    assert Consumer(EXACT).settled(16_000_000).window == 65_536
    assert Consumer(EXACT).settled(160).window == 256


def test_sample_has_the_weight_of_one_in_twenty() -> None:
    consumer, expected, seen = Consumer(EXACT).settled(16_000), 16_000.0, []
    for _ in range(5):
        consumer.consume(2500, 0.25)
        expected += WEIGHT * (10_000 - expected)
        seen.append((consumer.window, round(expected)))
    assert all(window == pytest.approx(wanted, abs=1) for window, wanted in seen)


def test_a_rate_that_has_fallen_is_believed_within_two_periods() -> None:
    consumer, seen = Consumer(EXACT).settled(16_000), []
    for _ in range(2):
        consumer.consume(200, 0.25)
        seen.append(consumer.window)
    assert seen == [pytest.approx(4600, rel=0.01), pytest.approx(1750, rel=0.01)]


def test_a_rate_that_has_risen_is_averaged() -> None:
    consumer = Consumer(EXACT).settled(1600)
    consumer.consume(800, 0.25)
    assert consumer.window == pytest.approx(1600 + WEIGHT * 1600, rel=0.01)


def test_sender_is_told_once_the_window_has_changed_by_a_quarter() -> None:
    consumer, seen = Consumer().settled(16_000), []
    before = consumer.window
    for _ in range(60):
        consumer.consume(2100, 0.25)
        seen.append(consumer.window)
    told = sorted(set(seen), reverse=True)
    assert seen[0] == before
    assert all(new <= 0.75 * old for old, new in pairwise(told))
    assert len(told) >= 2


def test_sample_of_many_periods_has_the_weight_of_as_many() -> None:
    consumer = Consumer(EXACT).settled(16_000)
    consumer.consume(100_000, 10)
    assert consumer.window == pytest.approx(10_000 + 6000 * (1 - WEIGHT) ** 40, abs=1)


def test_window_at_most_doubles_in_a_period_once_it_has_started() -> None:
    consumer, seen = Consumer(EXACT).settled(1600), []
    for _ in range(2):
        consumer.consume(1_000_000, 0.25)
        seen.append(consumer.window)
    assert seen == [3200, 6400]


def test_bursts_and_pauses_average_to_what_lasts_for_the_target() -> None:
    consumer = Consumer()
    for _ in range(10):
        consumer.consume(100, 0.0001, times=500)
        consumer.consume(100, 10)
    assert consumer.window == pytest.approx(50_100 / 10, rel=0.25)


def test_time_without_data_does_not_count() -> None:
    busy, idle = Consumer(), Consumer()
    busy.consume(1000, 0.1, times=300)
    for _ in range(300):
        idle.consume(1000, 0.1)
        idle.idle(5)
    assert idle.window == pytest.approx(busy.window, rel=0.25)


def test_waiting_for_data_does_not_end_the_start() -> None:
    consumer = Consumer()
    for _ in range(8):
        consumer.idle(5)
        consumer.consume(100_000, 0.0001)
    assert consumer.window == 65_536


def test_data_that_comes_while_the_last_frame_is_in_work_hides_none_of_the_work() -> None:
    consumer = Consumer()
    for _ in range(100):
        consumer.debloater.begin(1000, 2)
        consumer.time.now += 0.5
        consumer.debloater.processed(1)
        consumer.time.now += 0.5
        consumer.debloater.resume()
        consumer.debloater.processed(1)
    assert consumer.window == pytest.approx(1000, rel=0.25)


def test_clock_that_stands_still_is_no_error() -> None:
    consumer = Consumer()
    consumer.consume(100, 0, times=100_000)
    assert consumer.window == LIMITS.input_queue_bytes


def test_smallest_window_is_no_larger_than_the_queue() -> None:
    assert Consumer(replace(LIMITS, input_queue_bytes=100)).window == 100


# The channels of a subtask


class Gate:
    """Channels whose records are 100 bytes and take 10 ms each."""

    def __init__(self, channels: int, restored: int | None = None) -> None:
        self.time = Time()
        debloaters = [Debloater(TARGET_S, LIMITS, self.time) for _ in range(channels)]
        self.channels = [InputChannel(65_536, debloater) for debloater in debloaters]
        incoming = [
            Incoming(channel, Origin("a > b:0", sender), 0)
            for sender, channel in enumerate(self.channels)
        ]
        links = {"a > b:0": Link(0, 0, "a", 1, 0, Rebalance(), None, channels, 1, 128)}
        self.input = GateInput(
            incoming, InputParts(links, CODEC, SubtaskMetrics(), RestoredInput(restored))
        )

    @property
    def windows(self) -> list[int]:
        return [channel.window_bytes for channel in self.channels]

    def work(self) -> bool:
        element = self.input.poll()
        if not isinstance(element, Data):
            return element is not None
        for _ in range(len(element.batch)):
            self.time.now += 0.01
            self.input.consumed(1)
        return True


def text(records: int) -> Frame:
    """So many records in a frame of about 100 bytes each."""
    return data_frame(Rows([f"{n:0100}" for n in range(records)]), CODEC)


def test_each_channel_of_a_gate_has_a_window_of_its_own() -> None:
    """In the fast one records wait all the time, in the slow one a single record comes each second."""
    gate = Gate(2)
    due = gate.time.now
    for _ in range(2000):
        while len(gate.channels[0].frames) < 2:
            gate.input.put(0, text(10))
        if gate.time.now >= due:
            gate.input.put(1, text(1))
            due += 1
        gate.work()
    fast, slow = gate.windows
    assert fast == pytest.approx(10_000, rel=0.3)
    # It waits for up to ten records of the other one, and is worked on for one.
    assert 100 / 0.11 < slow < 100 / 0.01


def test_time_of_a_blocked_channel_does_not_count() -> None:
    gate = Gate(1)
    for _ in range(500):
        gate.input.put(0, text(10))
        gate.input.put(0, barrier_frame(Barrier(1, "aligned", 0.0)))
        gate.input.put(0, text(10))
        gate.work()
        gate.work()
        gate.input.block(0)
        gate.time.now += 60
        gate.input.unblock_all()
        gate.work()
    assert gate.windows[0] == pytest.approx(10_000, rel=0.3)


def test_time_between_control_frames_does_not_count() -> None:
    gate = Gate(1)
    for _ in range(500):
        gate.input.put(0, text(10))
        gate.input.put(0, watermark_frame(1))
        while gate.work():
            pass
        gate.time.now += 60
    assert gate.windows[0] == pytest.approx(10_000, rel=0.3)


def test_time_that_queued_data_waits_for_room_in_the_output_counts() -> None:
    gate = Gate(1)
    gate.input.put(0, text(10))
    for _ in range(500):
        gate.time.now += 0.45
        gate.input.put(0, text(10))
        gate.time.now += 0.45
        gate.work()
    assert gate.windows[0] == pytest.approx(1000, rel=0.3)


def test_time_before_recovered_data_is_consumed_does_not_count() -> None:
    gate = Gate(1, restored=7)
    gate.input.put(0, text(10))
    gate.time.now += 60
    assert gate.input.poll() == Advance(7, None)
    gate.work()
    gate.input.put(0, text(10))
    gate.work()
    # With a minute in the sample it would be 256 still.
    assert gate.windows[0] > 1000


def test_new_window_travels_with_the_next_credit() -> None:
    gate, granted = Gate(1), []
    gate.channels[0].grant = lambda consumed, window: granted.append(window)
    for _ in range(200):
        gate.input.put(0, text(10))
        gate.work()
    assert granted[0] == 256
    assert granted[-1] == gate.windows[0] > 5000


# Both ends


def test_sender_is_told_of_a_smaller_window_while_a_frame_is_in_work() -> None:
    gate, granted = Gate(1), []
    for _ in range(200):
        gate.input.put(0, text(10))
        gate.work()
    gate.channels[0].grant = lambda consumed, window: granted.append(window)
    gate.input.put(0, text(100))
    gate.input.poll()
    granted.clear()
    gate.time.now += 10
    gate.input.consumed(1)
    assert granted == gate.windows


@pytest.mark.parametrize(
    ("queue_bytes", "window_bytes_max", "window_bytes", "share"),
    [
        (256 << 10, 512 << 10, 512 << 10, 1.0),
        (256 << 10, 512 << 10, 128 << 10, 0.25),
        (256 << 10, 16 << 20, 1 << 20, 1.0),  # A window that is large for the queue is enough.
        (256 << 10, 16 << 20, 256 << 10, 0.25),
        (8 << 20, 16 << 20, 4 << 20, 0.25),
    ],
)
def test_a_sender_shrinks_its_queue_only_below_a_window_that_fits_it(
    queue_bytes: int, window_bytes_max: int, window_bytes: int, share: float
) -> None:
    output = OutputChannel(queue_bytes, window_bytes_max)
    output.on_credit(0, window_bytes)
    assert output.share == share


@pytest.mark.parametrize(
    ("queue_bytes", "window_bytes_max", "window_bytes"),
    [
        (256 << 10, 512 << 10, 512 << 10),
        (256 << 10, 16 << 20, 1 << 20),
        (8 << 20, 16 << 20, 1 << 20),
    ],
)
def test_frames_of_columns_are_full_where_the_senders_queue_has_room_for_one(
    queue_bytes: int, window_bytes_max: int, window_bytes: int
) -> None:
    output = OutputChannel(queue_bytes, window_bytes_max)
    outlet = Outlet("a", CODEC, Limits(), SubtaskMetrics(), lambda channel: None)
    buffer = ChannelBuffer([output], outlet, {}, [0], 0)
    output.on_credit(0, window_bytes)
    assert buffer.column_frame_bytes == Limits().column_frame_bytes
    output.on_credit(0, window_bytes // 8)
    assert buffer.column_frame_bytes <= queue_bytes * output.share


def test_the_target_holds_for_both_queues_together() -> None:
    """At the windows at which the sender's queue is largest beside them."""
    limits = replace(LIMITS, input_queue_bytes=1 << 30, output_queue_bytes=1 << 29)
    for sizes in (limits, replace(limits, output_queue_bytes=1 << 20)):
        consumer = Consumer(replace(sizes, debloat_threshold=0.0))
        for _ in range(2000):
            consumer.consume(100, 0.1)
        output = OutputChannel(sizes.output_queue_bytes, sizes.input_queue_bytes)
        output.on_credit(0, consumer.window)
        held = consumer.window + output.share * sizes.output_queue_bytes
        assert held == pytest.approx(1000 * TARGET_S, rel=0.05)


class Pipe:
    """A sender that always has more, and a consumer that is fast for a while and slow for a while."""

    RECORD_BYTES = 8

    def __init__(self, debloat_s: float | None, fast: float, slow: float, phase_s: float) -> None:
        self.time, self.limits = Time(), Limits()
        self.time.now = 0.0
        self._costs, self._phase_s = (fast, slow), phase_s
        debloater = None if debloat_s is None else Debloater(debloat_s, self.limits, self.time)
        self.input = InputChannel(self.limits.input_queue_bytes, debloater)
        self.output = OutputChannel(self.limits.output_queue_bytes, self.limits.input_queue_bytes)
        self.output.on_credit(0, self.input.window_bytes)
        self.input.grant = self.output.on_credit
        self.sent: list[float] = []
        self.waits: list[float] = []

    def run(self, seconds: float) -> list[float]:
        """How long each of two barriers a second waited behind the data ahead of it."""
        while self.time.now < seconds:
            self._send()
            frame = self.input.take()
            if frame.is_data:
                self._consume(frame)
            else:
                self.waits.append(self.time.now - self.sent[barrier_of(frame).checkpoint_id])
        return self.waits

    def _send(self) -> None:
        while len(self.sent) <= 2 * self.time.now:
            self.output.put(barrier_frame(Barrier(len(self.sent), "aligned", 0.0, oldest_id=0)))
            self.sent.append(self.time.now)
        while self.output.fill < 1:
            size = max(1, int(self.limits.frame_bytes * self.output.share))
            records = min(self.limits.frame_records, 1 + size // self.RECORD_BYTES)
            self.output.put(Frame(Kind.ROWS, b"x" * records * self.RECORD_BYTES, records))
        while (frame := self.output.poll()) is not None:
            self.input.put(frame)

    def _consume(self, frame: Frame) -> None:
        self.input.begin(frame.size, frame.records)
        left = frame.records
        while left:
            cost = self._costs[int(self.time.now / self._phase_s) % 2]
            piece = max(1, min(left, int(0.002 / cost)))
            self.time.now += piece * cost
            left -= piece
            self.input.processed(piece)
            self._send()


@pytest.mark.parametrize("phase_s", [1.0, 5.0])
@pytest.mark.parametrize(("fast", "slow"), [(1e-5, 1e-3), (1e-4, 1e-3), (1e-5, 5e-3)])
def test_no_barrier_waits_longer_than_without_where_a_consumer_has_slow_peaks(
    fast: float, slow: float, phase_s: float
) -> None:
    """Records that pack well: a full queue is many seconds of work in a peak."""
    without, with_it = (Pipe(target, fast, slow, phase_s).run(20.0) for target in (None, 1.0))
    assert max(with_it) <= max(without)
    assert sum(with_it) / len(with_it) < 0.9 * sum(without) / len(without)


def test_records_larger_than_the_window_arrive_one_by_one() -> None:
    """Both ends together: whatever the window becomes, everything arrives, and in order."""
    gate = Gate(1)
    output = OutputChannel(LIMITS.output_queue_bytes, LIMITS.input_queue_bytes)
    output.on_credit(0, gate.windows[0])
    gate.channels[0].grant = output.on_credit
    records = [[f"{n:0{size}}"] for n, size in enumerate([10, 5000, 300, 20_000, 1] * 40)]
    for each in records:
        output.put(data_frame(Rows(each), CODEC))
    output.put(END_FRAME)
    arrived: list[Any] = []
    while (frame := output.poll()) is not None:
        gate.input.put(0, frame)
        if frame.is_data:
            arrived.append(batch_of(frame, CODEC).rows().records)
        if not output.sendable:
            gate.time.now += 0.3
            while gate.work():
                pass
    assert arrived == records


@pytest.mark.parametrize("target", ["1ms", "10s"])
def test_inline_job_with_tiny_windows_ends(target: str) -> None:
    env, sink = rt.Environment(parallelism=2), rt.CollectSink()
    texts = env.source(rt.SequenceSource(3000)).map(lambda n: f"{n:0100}")
    texts.key_by(lambda text: text).map(int).sink(sink)
    limits = Limits(debloat_window_bytes_min=1, debloat_period_s=0.001)
    env.execute(runner="inline", options=Options(debloat=target, limits=limits))
    assert sorted(sink.rows) == list(range(3000))


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debloat": 0}, "debloat must be positive"),
        ({"debloat": "soon"}, "debloat: cannot read 'soon'"),
        ({"debloat": 1, "limits": Limits(debloat_samples=0)}, "debloat_samples"),
        ({"debloat": 1, "limits": Limits(debloat_window_bytes_min=0)}, "debloat_window_bytes_min"),
        ({"debloat": 1, "limits": Limits(debloat_period_s=0)}, "debloat_period_s must be above 0"),
        ({"debloat": 1, "limits": Limits(debloat_threshold=-1)}, "debloat_threshold not negative"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Options(**options)
