"""Overtaking, capturing and giving captured records out again."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minirt.data.batch import Columns, Rows
from minirt.data.codec import RowCodec
from minirt.data.keys import key_group, subtask_of_group
from minirt.errors import CorruptCheckpointError, ProtocolError, UserCodeError
from minirt.graph.execution import Link
from minirt.graph.keys import KeySelector
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Custom, Hash, Partitioning, Rebalance
from minirt.protocol.barriers import Barrier
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.redistribution import RecoveredChannel
from minirt.runtime.channels.batches import batch_of, data_frame
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import END_FRAME, Frame, barrier_frame, watermark_frame
from minirt.runtime.channels.output import Overtaken
from minirt.runtime.channels.spill import Room, Spill, SpilledFrame
from minirt.runtime.input.elements import Advance, Origin
from minirt.runtime.input.gate_input import GateInput, Incoming
from minirt.runtime.input.in_flight import Capture, stored_frames
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.recovered import InFlightSource, RecoveredChannels, RestoredInput
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

CODEC = RowCodec()
BARRIER = Barrier(3, "unaligned", 0.0)
LARGE = 1 << 20


def frame(*records: Any) -> Frame:
    return data_frame(Rows(list(records)), CODEC)


def records(frames: Iterable[Frame | SpilledFrame]) -> list[Any]:
    loaded = [each.load() if isinstance(each, SpilledFrame) else each for each in frames]
    return [record for each in loaded for record in batch_of(each, CODEC).rows().records]


def link(partitioning: Partitioning, receivers: int = 1) -> Link:
    return Link(0, 0, "a", 1, 0, partitioning, None, 1, receivers, 128)


def test_barrier_overtakes_data_and_nothing_is_lost_from_the_queue() -> None:
    channel = OutputChannel(LARGE, LARGE)
    for queued in (frame(1), watermark_frame(5), frame(2)):
        channel.put(queued)
    overtaken = channel.overtake(barrier_frame(BARRIER))
    assert records(overtaken) == [1, 2]
    sent = [channel.poll() for _ in range(4)]
    assert sent[0] == barrier_frame(BARRIER)
    assert records([each for each in sent if each is not None and each.is_data]) == [1, 2]
    assert channel.poll() is None


def test_barrier_that_is_queued_already_overtakes_only_what_is_ahead_of_it() -> None:
    channel, barrier = OutputChannel(LARGE, LARGE), barrier_frame(BARRIER)
    for queued in (frame(1), watermark_frame(5), frame(2), barrier, frame(3)):
        channel.put(queued)
    before = channel.queued_bytes
    assert records(channel.move_ahead(barrier)) == [1, 2]
    assert channel.queued_bytes == before
    sent = [channel.poll() for _ in range(5)]
    assert sent[0] == barrier
    assert records([each for each in sent if each is not None and each.is_data]) == [1, 2, 3]
    assert (channel.poll(), channel.queued_bytes) == (None, 0)


def test_barrier_that_has_left_the_queue_is_no_longer_held() -> None:
    channel, barrier = OutputChannel(LARGE, LARGE), barrier_frame(BARRIER)
    left: list[tuple[int, int]] = []
    channel.barrier_left = lambda checkpoint_id: left.append((checkpoint_id, channel.queued_bytes))
    for queued in (frame(1), barrier, frame(2)):
        channel.put(queued)
    assert channel.holds(barrier)
    channel.poll()
    assert left == []
    channel.poll()
    # Whoever hears of it finds the barrier gone.
    assert left == [(BARRIER.checkpoint_id, frame(2).size)]
    assert not channel.holds(barrier)


def test_barrier_goes_out_although_all_credit_is_used() -> None:
    channel = OutputChannel(LARGE, window_bytes=1)
    channel.put(frame("first"))
    channel.put(frame("second"))
    assert channel.poll() == frame("first")
    assert channel.poll() is None
    channel.overtake(barrier_frame(BARRIER))
    assert channel.poll() == barrier_frame(BARRIER)
    assert channel.poll() is None


def gate(channels: int) -> GateInput:
    incoming = [
        Incoming(InputChannel(LARGE), Origin("a > b:0", sender), 0) for sender in range(channels)
    ]
    links = {"a > b:0": link(Rebalance())}
    return GateInput(incoming, InputParts(links, CODEC, SubtaskMetrics(), RestoredInput()))


def test_a_channel_ends_once() -> None:
    inputs = gate(2)
    for _ in range(2):
        inputs.put(0, END_FRAME)
    with pytest.raises(ProtocolError, match="channel 0 has ended twice"):
        inputs.poll()


def test_only_data_ahead_of_this_barrier_is_in_flight() -> None:
    inputs = gate(2)
    stale = barrier_frame(Barrier(2, "unaligned", 0.0))
    for arrived in (frame("before"), stale, watermark_frame(1), frame("also"), END_FRAME):
        inputs.put(0, arrived)
    inputs.put(0, barrier_frame(BARRIER))
    inputs.put(0, frame("behind"))
    inputs.put(1, frame("no barrier yet"))
    queued = dict(inputs.ahead(BARRIER, {0, 1}))
    assert records(queued[Origin("a > b:0", 0)]) == ["before", "also"]
    assert records(queued[Origin("a > b:0", 1)]) == ["no barrier yet"]
    assert inputs.ahead_bytes(BARRIER, {0, 1}) == sum(
        each.size for frames in queued.values() for each in frames
    )
    assert list(inputs.ahead(BARRIER, {1})) == [(Origin("a > b:0", 1), [frame("no barrier yet")])]
    assert inputs.ahead_bytes(BARRIER, {1}) == frame("no barrier yet").size


def test_captured_channels_are_stored_by_side_with_their_bytes() -> None:
    edge = link(Rebalance(), receivers=4)
    capture = Capture(
        [Overtaken(edge, "b > c:0", 2, [frame(1)]), Overtaken(edge, "b > c:0", 3, [])]
    )
    # What came from another process does not say how many records it holds.
    received = [Frame(each.kind, each.payload) for each in (frame(2), frame(3))]
    capture.add(Origin("a > b:0", 5), received)
    capture.add(Origin("a > b:0", 6), [])
    stored = capture.channels(1, {"a > b:0": edge})
    assert [(data.link, data.sender, data.receiver, data.side) for data, _ in stored] == [
        ("b > c:0", 1, 2, "out"),
        ("a > b:0", 5, 1, "in"),
    ]
    sections = [b"".join(chunks) for _, chunks in stored]
    assert [data.bytes for data, _ in stored] == [len(section) for section in sections]
    assert [data.records for data, _ in stored] == [1, 2]
    assert records(list(stored_frames(io.BytesIO(sections[1]), "here"))) == [2, 3]


def test_torn_section_names_where_it_is() -> None:
    data = frame("whole").wire() + frame("torn").wire()[:-1]
    with pytest.raises(CorruptCheckpointError, match=r"middle of a frame: x\.in-flight"):
        list(stored_frames(io.BytesIO(data), "x.in-flight"))


def recovered(
    partitioning: Partitioning,
    receiver: int,
    receivers: int,
    sections: list[list[Frame]],
    again: bool,
    room: Room | None = None,
) -> RecoveredChannels:
    """Channels that an old job captured, one for each old sender, as `receiver` recovers them."""
    edge = link(partitioning, receivers)
    storage = CheckpointStorage(ObjectStore("memory://in-flight"), inline_bytes_max=LARGE)
    capture = Capture([])
    for sender, frames in enumerate(sections):
        capture.add(Origin("a > b:0", sender), frames)
    written = storage.write_in_flight(1, 1, 1, 0, capture.channels(0, {"a > b:0": edge}))
    channels = [
        RecoveredChannel(data, written.stored, str(place), again)
        for place, data in enumerate(written.channels)
    ]
    source = InFlightSource(storage, ManifestKey(1, 1))
    room = room or Room(LARGE, Spill(None, 0))
    return RecoveredChannels(channels, {"a > b:0": edge}, receiver, source, CODEC, room)


def test_recovered_records_come_in_order_behind_the_restored_watermark() -> None:
    channels = recovered(Rebalance(), 0, 1, [[frame(1), frame(2)], [frame(3)]], again=False)
    restored = RestoredInput(7, channels)
    first, *elements = iter(restored.poll, None)
    assert first == Advance(7, None)
    assert [r for element in elements for r in element.batch.rows().records] == [1, 2, 3]  # type: ignore[union-attr]
    assert not restored.pending


def test_a_recovered_record_that_a_partitioner_sends_nowhere_is_refused() -> None:
    key = KeySelector(function=lambda record: record)
    everywhere = Custom(lambda key, parallelism: key, key)
    assert recovered(everywhere, 0, 3, [[frame(0, 1, 2)]], again=True).next() is not None
    with pytest.raises(UserCodeError, match="returned 3; it must return an index from 0 to 2"):
        recovered(everywhere, 0, 3, [[frame(0, 3)]], again=True)
    table = Columns(pa.RecordBatch.from_pylist([{"k": 0}, {"k": 3}]))
    columns = Custom(lambda key, parallelism: key, KeySelector(("k",)))
    with pytest.raises(UserCodeError, match="returned 3; it must return an index from 0 to 2"):
        recovered(columns, 0, 3, [[data_frame(table, CODEC)]], again=True)


def test_each_record_with_a_key_falls_to_the_owner_of_its_key_group() -> None:
    key = KeySelector(function=lambda record: record)
    everything = list(range(60))
    found = []
    for receiver in range(3):
        channels = recovered(Hash(key), receiver, 3, [[frame(*everything)]], again=True)
        while (data := channels.next()) is not None:
            own = data.batch.rows().records
            owners = {subtask_of_group(key_group(record, 128), 3, 128) for record in own}
            assert owners == {receiver}
            found += own
    assert sorted(found) == everything


def test_what_is_left_of_recovered_records_can_be_captured_again() -> None:
    key = KeySelector(function=lambda record: record)
    mine = [r for r in range(40) if subtask_of_group(key_group(r, 128), 2, 128) == 0]
    frames = [[frame(*range(20)), frame(*range(20, 40))], [frame("late")]]
    channels = recovered(Hash(key), 0, 2, frames, again=True)
    data = channels.next()
    assert data is not None
    left = channels.remaining()
    late = ["late"] if subtask_of_group(key_group("late", 128), 2, 128) == 0 else []
    assert data.batch.rows().records == [record for record in mine if record < 20]
    assert records(left[0][1]) == [record for record in mine if record >= 20]
    assert [(origin.sender, origin.recoveries) for origin, _ in left] == [(0, 1), (1, 1)]
    assert records(left[1][1]) == late


def all_records(channels: RecoveredChannels) -> list[Any]:
    return [r for data in iter(channels.next, None) for r in data.batch.rows().records]


@pytest.mark.parametrize("again", [False, True])
def test_recovered_records_that_memory_has_no_room_for_wait_on_disk(
    tmp_path: Path, again: bool
) -> None:
    key = KeySelector(function=lambda record: record)
    sections = [[frame(*range(n, n + 10)) for n in range(0, 50, 10)], [frame("late")]]
    spill = Spill(str(tmp_path), LARGE)
    room = Room(2 * frame(*range(10)).size, spill)
    channels = recovered(Hash(key), 0, 1, sections, again, room)
    left = [frame for _, frames in channels.remaining() for frame in frames]
    kept = [frame for frame in left if isinstance(frame, Frame)]
    assert 0 < sum(frame.size for frame in kept) <= 2 * frame(*range(10)).size
    assert len(kept) < len(left) == 6
    assert spill.used_bytes > 0
    assert all_records(channels) == [*range(50), "late"]


def test_recovered_records_come_back_even_if_the_disk_takes_none(tmp_path: Path) -> None:
    room = Room(10, Spill(str(tmp_path), 10))
    channels = recovered(Rebalance(), 0, 1, [[frame(*range(100))]], again=False, room=room)
    assert all_records(channels) == list(range(100))


def test_recovered_records_are_stored_apart_from_what_the_same_sender_has_sent_since() -> None:
    edge = link(Rebalance())
    channels = recovered(Rebalance(), 0, 1, [[frame("old")]], again=False)
    inputs = gate(1)
    inputs.put(0, frame("new"))
    capture = Capture([])
    for origin, frames in [*channels.remaining(), *inputs.ahead(BARRIER, frozenset({0}))]:
        capture.add(origin, frames)
    stored = capture.channels(0, {"a > b:0": edge})
    assert [(data.sender, data.recoveries) for data, _ in stored] == [(0, 1), (0, 0)]
