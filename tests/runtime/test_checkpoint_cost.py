"""What a checkpoint costs a subtask: bounded by channels and data, whatever checkpoints came before.

Counted in operations of Python, in every mode, also where nobody reads the queues in between.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.modes.at_least_once import AtLeastOnce
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.subtask_commands import AbortCheckpoint
from minirt.runtime.channels.batches import data_frame
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import (
    Frame,
    Kind,
    barrier_frame,
    barrier_of,
    mark_frame,
    watermark_frame,
)
from minirt.runtime.channels.output import Outputs
from minirt.runtime.channels.queue import FrameQueue
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.testing.clock import HeldClock
from tests.counting_operations import operations

CODEC = RowCodec()
AT_ONCE = AlignedWithTimeout(timeout="1ms")
"""Its barriers overtake as soon as they come: they are older than that."""
EVERY_MODE = [*MODES, "aligned_with_timeout at once"]
OVERTAKING = ("unaligned", "uncoordinated", "communication_induced", "aligned_with_timeout at once")
"""Their checkpoints end although nobody reads."""


class Middle:
    """source > map > sink: the subtask in the middle, with many channels on either side."""

    def __init__(self, mode: str, channels: int) -> None:
        env = rt.Environment()
        numbers = env.source(rt.SequenceSource.endless(), parallelism=channels)
        same = numbers.rebalance().map(lambda n: n, parallelism=1)
        same.rebalance().sink(rt.DiscardSink(), parallelism=channels)
        self.now_s, self.mode = 1000.0, mode.removesuffix(" at once")
        graph = cloudpickle.dumps(build_execution_graph(env.graph()))
        modes = {**MODES, AT_ONCE.name: AT_ONCE} if mode.endswith("at once") else MODES
        self.uploads: list[SnapshotUpload] = []
        built = assemble(
            JobPackage(graph, rt.Options(buffer_timeout=0), modes, None),
            Deployment(1),
            SubtaskId(1, 0),
            LocalPorts(self, self.uploads.append, lambda subtask: None),
            TimedPacer(60.0),
            lambda channel: None,
        )
        self.subtask = built.subtask
        self.inputs: list[InputChannel] = [end for _, end in built.inputs.values()]
        self.outputs: list[OutputChannel] = list(built.outputs.values())
        assert len(self.inputs) == len(self.outputs) == channels

    def monotonic(self) -> float:
        return self.now_s

    def now(self) -> float:
        return self.now_s

    def put(self, frame: Frame) -> None:
        for channel in range(len(self.inputs)):
            self.subtask.on_frame(channel, frame)

    def barriers(self, checkpoint_id: int) -> None:
        """One comes through each channel."""
        self.put(barrier_frame(Barrier(checkpoint_id, self.mode, 0.0)))

    def work(self) -> None:
        while self.subtask.runnable:
            self.subtask.run_slice()
        self.subtask.on_time()

    def send(self) -> None:
        for output in self.outputs:
            while output.poll() is not None:
                pass

    @property
    def queues(self) -> list[FrameQueue]:
        return [*(end.frames for end in self.inputs), *(end._frames for end in self.outputs)]

    @property
    def most_barriers(self) -> int:
        return max(queue.barriers for queue in self.queues)


def rows(*records: Any) -> Frame:
    return data_frame(Rows(list(records), None), CODEC)


def costs_unread(mode: str, channels: int, frames: int, checkpoints: int) -> list[int]:
    """Of each checkpoint that overtakes what lies unread in each channel, ahead of it and of older ones."""
    middle, costs = Middle(mode, channels), list[int]()
    for number in range(frames):
        middle.put(rows(number))
    for id in range(1, checkpoints + 1):
        costs.append(operations(lambda id=id: middle.barriers(id)))  # type: ignore[misc]
        assert middle.most_barriers <= 1
    assert len(middle.uploads) == checkpoints
    return costs


def costs_read(mode: str, channels: int, checkpoints: int) -> list[int]:
    """Of each checkpoint with a record in each channel ahead of it, where all is read and sent."""
    middle, costs = Middle(mode, channels), list[int]()
    for id in range(1, checkpoints + 1):
        middle.put(rows(id))

        def take(id: int = id) -> None:
            middle.barriers(id)
            middle.work()

        costs.append(operations(take))
        middle.send()
        assert middle.most_barriers == 0
    assert len(middle.uploads) == checkpoints
    return costs


@pytest.mark.parametrize("mode", OVERTAKING)
def test_each_checkpoint_costs_as_much_as_the_one_before_where_nobody_reads(mode: str) -> None:
    _, second, *later = costs_unread(mode, channels=10, frames=3, checkpoints=40)
    assert max(later) <= 1.02 * second


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_each_checkpoint_costs_as_much_as_the_one_before_where_all_is_read(mode: str) -> None:
    _, second, *later = costs_read(mode, channels=10, checkpoints=20)
    assert max(later) <= 1.25 * second  # How many records make a piece is still being learned.


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_the_cost_is_at_most_linear_in_channels(mode: str) -> None:
    few, many = (min(costs_read(mode, channels, 4)[1:]) for channels in (20, 80))
    assert many <= 4.4 * few
    if mode in OVERTAKING:
        few, many = (min(costs_unread(mode, channels, 2, 4)[1:]) for channels in (20, 80))
        assert many <= 4.4 * few


@pytest.mark.parametrize("mode", OVERTAKING)
def test_control_frames_that_wait_cost_nothing(mode: str) -> None:
    costs = []
    for waiting in (0, 50):
        middle = Middle(mode, 5)
        for number in range(waiting):
            middle.put(watermark_frame(number))
        costs.append(operations(lambda middle=middle: middle.barriers(1)))  # type: ignore[misc]
    assert costs[1] <= 1.02 * costs[0]


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_barriers_of_checkpoints_that_were_given_up_do_not_stay(mode: str) -> None:
    """Where barriers wait behind data that nobody reads, the coordinator gives one up after the other."""
    middle = Middle(mode, 4)
    middle.put(rows(0))
    for id in range(1, 30):
        middle.barriers(id)
        assert middle.most_barriers <= 1
        middle.subtask.obey(AbortCheckpoint(1, id))
        assert middle.most_barriers == 0
    middle.work()
    middle.barriers(30)
    middle.work()
    assert [upload.checkpoint_id for upload in middle.uploads][-1] == 30


def test_barriers_that_lead_to_nothing_end_no_slice() -> None:
    middle = Middle("aligned", 30)
    middle.barriers(1)
    middle.put(rows(5))
    middle.subtask.run_slice()
    assert len(middle.uploads) == 1
    assert middle.subtask.metrics.records_in == 0  # The snapshot has ended it.
    at_least_once = Middle(AtLeastOnce.name, 30)
    for channel in range(29):
        at_least_once.subtask.on_frame(channel, barrier_frame(Barrier(1, "at_least_once", 0.0)))
    at_least_once.put(rows(5))
    at_least_once.subtask.run_slice()
    assert at_least_once.subtask.metrics.records_in == 30


def test_marks_do_not_wait_in_input_queues() -> None:
    middle = Middle("uncoordinated", 3)
    middle.put(rows(1))
    for number in range(100):
        for end in middle.inputs:
            end.put(mark_frame(number))
    assert [len(end.frames) for end in middle.inputs] == [1, 1, 1]


# The queue itself.


class PlainQueue:
    """What a queue says, found by looking through all of it."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.over_below = 0

    def ids(self) -> list[int]:
        return [barrier_of(one).checkpoint_id for one in self.frames if one.kind == Kind.BARRIER]

    def enter(self, index: int, frame: Frame) -> None:
        barrier = barrier_of(frame)
        if barrier.checkpoint_id < self.over_below or barrier.checkpoint_id in self.ids():
            return
        self.frames.insert(index, frame)
        oldest_id = barrier.oldest_id or barrier.checkpoint_id
        self.over_below = max(self.over_below, oldest_id)
        self.drop(lambda id: id < self.over_below)

    def drop(self, is_over: Any) -> None:
        self.frames = [
            one
            for one in self.frames
            if one.kind != Kind.BARRIER or not is_over(barrier_of(one).checkpoint_id)
        ]

    def data_ahead(self, id: int) -> list[Frame]:
        ahead = []
        for one in self.frames:
            if one.kind == Kind.BARRIER and barrier_of(one).checkpoint_id == id:
                break
            ahead.append(one)
        return [one for one in ahead if one.is_data]

    @property
    def marks(self) -> int:
        for index, one in enumerate(self.frames):
            if one.kind != Kind.MARK:
                return index
        return len(self.frames)


MOVES = st.sampled_from(
    ["data", "data", "watermark", "mark", "barrier", "ahead", "move", "take", "take", "drop"]
)


@given(moves=st.lists(st.tuples(MOVES, st.integers(0, 6), st.none() | st.integers(0, 6))))
def test_a_queue_knows_where_everything_lies(
    moves: list[tuple[str, int, int | None]],
) -> None:
    queue, plain = FrameQueue(), PlainQueue()
    for move, id, oldest_id in moves:
        barrier = barrier_frame(Barrier(id, "any", 0.0, oldest_id=oldest_id and min(id, oldest_id)))
        waits = queue.holds_barrier(id)
        match move:
            case "data":
                queue.append(frame := rows(*range(id)))
                plain.frames.append(frame)
            case "watermark":
                queue.append(frame := watermark_frame(id))
                plain.frames.append(frame)
            case "mark":
                at = plain.marks
                queue.overtake(frame := mark_frame(id))
                plain.frames.insert(at, frame)
            case "barrier" if not waits:
                queue.append_barrier(barrier)
                plain.enter(len(plain.frames), barrier)
            case "ahead" if not waits:
                at = plain.marks
                queue.overtake(barrier)
                plain.enter(at, barrier)
            case "move" if waits:
                queue.move_ahead(id)
                place = next(
                    place
                    for place, one in enumerate(plain.frames)
                    if one.kind == Kind.BARRIER and barrier_of(one).checkpoint_id == id
                )
                plain.frames.insert(0, plain.frames.pop(place))
            case "take" if queue:
                assert queue.popleft() is plain.frames.pop(0)
            case "drop":
                queue.drop(lambda one, id=id: one <= id)  # type: ignore[misc]
                plain.drop(lambda one, id=id: one <= id)
        assert [*map(builtins_id, queue)] == [*map(builtins_id, plain.frames)]
        assert queue.barriers == len(plain.ids())
        for known in range(7):
            ahead = queue.data_ahead(known)
            assert [*map(builtins_id, ahead)] == [*map(builtins_id, plain.data_ahead(known))]
            assert queue.bytes_ahead(known) == sum(one.size for one in ahead)


builtins_id = id


def test_the_bytes_of_a_queue_are_those_of_its_frames() -> None:
    output, left = OutputChannel(1000, 1000), list[int]()
    output.barrier_left = left.append
    frames = [rows(1), *(barrier_frame(Barrier(id, "any", 0.0)) for id in (1, 2, 1)), rows(2)]
    for frame in frames:
        output.put(frame)
    assert left == [1]
    assert output.queued_bytes == frames[0].size + frames[2].size + frames[4].size
    assert output.drop_barriers(lambda id: True) == 1
    assert left == [1, 2]
    assert output.queued_bytes == frames[0].size + frames[4].size


def test_costs_differ_where_there_is_more_to_do() -> None:
    """Else nothing here would measure anything."""
    costs = [costs_unread("unaligned", 5, frames, 3)[-1] for frames in (10, 20, 40)]
    assert all(before < after for before, after in pairwise(costs))


@pytest.mark.parametrize("partitioning", ["rebalance", "key_by", "partition_custom"])
def test_a_record_costs_the_same_however_many_receivers_there_are(partitioning: str) -> None:
    costs = []
    for receivers in (10, 120):
        env = rt.Environment()
        numbers: Any = env.source(rt.SequenceSource.endless())
        dealt = {
            "rebalance": numbers.rebalance,
            "key_by": lambda numbers=numbers: numbers.key_by(abs),
            "partition_custom": lambda numbers=numbers: numbers.partition_custom(
                lambda key, count: key % count, abs
            ),
        }[partitioning]()
        dealt.map(lambda n: n, parallelism=receivers).sink(rt.DiscardSink())
        link = outputs_of(env).links[0]
        link.emit(Rows([7], None))
        link.flush()
        costs.append(operations(lambda link=link: link.emit(Rows([7], None))))  # type: ignore[misc]
    assert costs[0] == costs[1]


def outputs_of(env: rt.Environment) -> Outputs:
    """The outgoing side of the first subtask of a job."""
    graph = cloudpickle.dumps(build_execution_graph(env.graph()))
    built = assemble(
        JobPackage(graph, rt.Options(), MODES, None),
        Deployment(1),
        SubtaskId(0, 0),
        LocalPorts(HeldClock(), lambda upload: None, lambda subtask: None),
        TimedPacer(60.0),
        lambda channel: None,
    )
    return built.subtask.outputs
