"""Barriers at the outputs of a subtask: behind the data, ahead of it, or ahead of it later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.config import Limits
from minirt.data.batch import Columns, Rows
from minirt.data.codec import RowCodec
from minirt.graph.execution import Link
from minirt.graph.keys import KeySelector
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Custom, Partitioning, Rebalance
from minirt.protocol.barriers import Barrier
from minirt.runtime.channels.batches import batch_of
from minirt.runtime.channels.buffers import Outlet
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame, Kind, barrier_frame
from minirt.runtime.channels.output import LinkOutput, Outputs, Overtaken

CODEC = RowCodec()
BARRIER = Barrier(3, "any", 0.0)
IMPURE = Custom(lambda key, parallelism: 0, KeySelector(function=str), pure=False)


class Subject:
    """Two channels in turn, and one behind an impure partitioner."""

    def __init__(self) -> None:
        self.channels = [OutputChannel(1 << 20, 1 << 20) for _ in range(3)]
        metrics = SubtaskMetrics()
        outlet = Outlet("a", CODEC, Limits(), metrics, lambda channel: None)

        def output(partitioning: Partitioning, channels: Sequence[OutputChannel]) -> LinkOutput:
            receivers = len(channels)
            link = Link(0, 0, "a", 1, 0, partitioning, None, 1, receivers, 8)
            return LinkOutput(link, partitioning.__class__.__name__, 0, channels, "a", outlet)

        self.in_turn = output(Rebalance(), self.channels[:2])
        self.impure = output(IMPURE, self.channels[2:])
        self.outputs = Outputs([self.in_turn, self.impure], buffer_timeout_s=1.0)
        self.passed = 0

    def emit(self, *records: Any) -> None:
        self.in_turn.emit(Rows(list(records), None))
        self.impure.emit(Rows(list(records), None))

    def watch(self) -> None:
        def passed() -> None:
            self.passed += 1

        self.outputs.watch(BARRIER, passed)

    def sent(self, channel: int, count: int = 100) -> list[Any]:
        """What leaves a channel: records, and "|" for a barrier."""
        found: list[Any] = []
        while len(found) < count and (frame := self.channels[channel].poll()) is not None:
            found += _shown(frame)
        return found


def _shown(frame: Frame) -> list[Any]:
    return ["|"] if frame.kind == Kind.BARRIER else list(batch_of(frame, CODEC).rows().records)


def captured(parts: Sequence[Overtaken]) -> dict[tuple[str, int], list[Any]]:
    return {
        (part.link_key, part.receiver): [record for f in part.frames for record in _shown(f)]
        for part in parts
    }


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_barrier_goes_behind_what_was_emitted(subject: Subject) -> None:
    subject.emit(1, 2)
    subject.outputs.barrier(BARRIER)
    subject.emit(3, 4)
    subject.outputs.flush_due(2.0)
    assert [subject.sent(i) for i in range(3)] == [[1, "|", 3], [2, "|", 4], [1, 2, "|", 3, 4]]


def test_barrier_overtakes_everything_except_behind_an_impure_partitioner(subject: Subject) -> None:
    subject.emit(1, 2)
    overtaken = subject.outputs.overtake(BARRIER)
    assert captured(overtaken) == {("Rebalance", 0): [1], ("Rebalance", 1): [2]}
    assert [subject.sent(i) for i in range(3)] == [["|", 1], ["|", 2], [1, 2, "|"]]


def test_barrier_that_was_sent_overtakes_what_is_still_ahead_of_it(subject: Subject) -> None:
    subject.emit(1, 2)
    subject.outputs.barrier(BARRIER)
    subject.emit(3, 4)
    assert subject.sent(1, count=2) == [2, "|"]
    assert captured(subject.outputs.move_ahead(BARRIER)) == {("Rebalance", 0): [1]}
    subject.outputs.flush_due(2.0)
    assert [subject.sent(i) for i in range(3)] == [["|", 1, 3], [4], [1, 2, "|", 3, 4]]


def test_watched_barrier_has_passed_once_it_left_the_queues_where_it_could_overtake(
    subject: Subject,
) -> None:
    subject.emit(1, 2)
    subject.outputs.barrier(BARRIER)
    subject.watch()
    subject.sent(0)
    assert subject.passed == 0
    subject.sent(1)
    assert subject.passed == 1
    subject.sent(2)
    assert subject.passed == 1


def test_watched_barrier_that_has_left_already_has_passed_at_once(subject: Subject) -> None:
    subject.outputs.barrier(BARRIER)
    subject.sent(0)
    subject.sent(1)
    subject.watch()
    assert subject.passed == 1


def test_barrier_of_another_checkpoint_is_not_the_watched_one(subject: Subject) -> None:
    subject.outputs.barrier(Barrier(2, "any", 0.0))
    subject.emit(1, 2)
    subject.outputs.barrier(replace(BARRIER, oldest_id=2))  # So both are under way.
    subject.watch()
    for channel in (0, 1):
        assert subject.sent(channel, count=1) == ["|"]
    assert subject.passed == 0


def test_barrier_is_no_longer_watched_after_an_abort(subject: Subject) -> None:
    subject.outputs.barrier(BARRIER)
    subject.watch()
    subject.outputs.unwatch()
    for channel in range(3):
        subject.sent(channel)
    assert subject.passed == 0


def test_size_is_what_would_be_captured(subject: Subject) -> None:
    outputs = subject.outputs
    subject.emit(1, 2)
    before = outputs.overtakable_bytes(None)
    outputs.barrier(BARRIER)
    subject.emit(3, 4)
    assert before == outputs.overtakable_bytes(BARRIER)
    subject.sent(0, count=2)
    ahead = outputs.overtakable_bytes(BARRIER)
    moved = outputs.move_ahead(BARRIER)
    assert ahead == sum(frame.size for part in moved for frame in part.frames)
    assert 0 < ahead < before


MOVES = st.tuples(st.sampled_from(["put", "take", "credit", "overtake"]), st.integers(0, 2))


@given(moves=st.lists(st.tuples(MOVES, st.booleans()), max_size=60))
def test_how_full_the_fullest_queue_is_follows_all_that_happens(
    moves: list[tuple[tuple[str, int], bool]],
) -> None:
    subject = Subject()
    for id, ((move, number), looks) in enumerate(moves):
        channel = subject.channels[number]
        match move:
            case "put":
                channel.put(Frame(Kind.ROWS, bytes(1000 * (number + 1)), 1))
            case "take":
                channel.poll()
            case "credit":
                channel.on_credit(1 << 30, 1 << (18 + number))
            case "overtake":
                channel.overtake(barrier_frame(replace(BARRIER, checkpoint_id=id)))
        if looks:
            assert subject.outputs.fill == max(each.fill for each in subject.channels)
    assert subject.outputs.fill == max(each.fill for each in subject.channels)


def test_records_that_wait_are_sent_when_the_oldest_are_due(subject: Subject) -> None:
    assert subject.outputs.flush_at is None
    for at in (5.0, 6.0, 7.0):
        subject.outputs.begin_slice(at)
        subject.emit(at)  # In turn: to channel 0, 1 and 0; and to 2.
    assert subject.outputs.flush_at == 6.0
    subject.outputs.flush_due(5.9)
    assert [subject.sent(channel) for channel in range(3)] == [[], [], []]
    subject.outputs.flush_due(6.0)
    assert [subject.sent(channel) for channel in range(3)] == [[5.0, 7.0], [], [5.0, 6.0, 7.0]]
    assert subject.outputs.flush_at == 7.0
    subject.outputs.flush_due(7.0)
    assert subject.sent(1) == [6.0]
    assert subject.outputs.flush_at is None


def test_a_buffer_that_is_wanted_leaves_though_it_is_not_due(subject: Subject) -> None:
    assert not subject.outputs.wanted
    subject.outputs.begin_slice(5.0)
    subject.emit(1, 2)
    assert subject.outputs.wanted
    subject.outputs.flush_wanted()
    assert [subject.sent(channel) for channel in range(3)] == [[1], [2], [1, 2]]
    assert not subject.outputs.wanted
    assert subject.outputs.flush_at is None


def test_a_buffer_is_not_wanted_while_its_own_receiver_has_not_taken_what_was_sent(
    subject: Subject,
) -> None:
    """It leaves once the receiver has, or when it has waited for its timeout."""
    subject.emit(1, 2)
    subject.outputs.flush_wanted()
    sent = [subject.channels[channel].poll() for channel in range(3)]
    subject.outputs.begin_slice(5.0)
    subject.emit(3, 4)
    assert not subject.outputs.wanted
    subject.outputs.flush_wanted()
    assert [subject.sent(channel) for channel in range(3)] == [[], [], []]
    taken = sent[1]
    assert taken is not None
    subject.channels[1].on_credit(taken.size, 1 << 20)
    assert subject.outputs.wanted
    subject.outputs.flush_wanted()
    assert [subject.sent(channel) for channel in range(3)] == [[], [4], []]
    subject.outputs.flush_due(6.0)
    assert [subject.sent(channel) for channel in range(3)] == [[3], [], [3, 4]]


def test_a_buffer_is_not_wanted_while_the_frame_before_is_in_the_queue(subject: Subject) -> None:
    subject.emit(1, 2)
    subject.outputs.flush_wanted()
    subject.emit(3, 4)
    subject.outputs.flush_wanted()
    assert [subject.sent(channel) for channel in range(3)] == [[1], [2], [1, 2]]


def test_gathered_columns_are_wanted_once_all_their_receivers_wait(subject: Subject) -> None:
    columns = Columns(pa.record_batch({"n": [1, 2]}))

    def flushed() -> list[int]:
        """The bytes that leave for either receiver."""
        subject.outputs.flush_wanted()
        return [sum(f.size for f in iter(subject.channels[i].poll, None)) for i in (0, 1)]

    subject.in_turn.emit(columns)
    assert subject.outputs.wanted
    sent = flushed()
    assert all(sent)
    subject.in_turn.emit(columns)
    subject.channels[0].on_credit(sent[0], 1 << 20)
    assert not subject.outputs.wanted
    assert flushed() == [0, 0]
    subject.channels[1].on_credit(sent[1], 1 << 20)
    assert flushed() == sent
