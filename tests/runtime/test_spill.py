"""Frames on disk: in their order, never torn, and gone from disk once nobody needs them."""

from __future__ import annotations

import errno
import gc
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minirt.config import Limits
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.errors import StorageError
from minirt.graph.execution import Link
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.partitionings import Rebalance
from minirt.protocol.barriers import Barrier
from minirt.protocol.manifest import ManifestKey
from minirt.runtime.channels import spill as spill_module
from minirt.runtime.channels.batches import data_frame
from minirt.runtime.channels.buffers import ChannelBuffer, Outlet
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import Frame, Kind, barrier_frame, watermark_frame
from minirt.runtime.channels.output import Overtaken
from minirt.runtime.channels.spill import Spill, SpilledFrame
from minirt.runtime.input.in_flight import Capture, stored_frames
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.runtime.processes import needs_proc

LARGE = 1 << 30
BARRIER = barrier_frame(Barrier(3, "unaligned", 0.0))


def frame(number: int, size: int = 1000) -> Frame:
    return Frame(Kind.ROWS, bytes([number]) * size, number)


def spilling_channel(spill: Spill, memory: int = 0) -> OutputChannel:
    """A channel that holds `memory` bytes, beyond a full queue of one byte, before it spills."""
    return OutputChannel(1, LARGE, memory, spill)


def sent(channel: OutputChannel) -> list[Frame]:
    frames = []
    while (next_frame := channel.poll()) is not None:
        frames.append(next_frame)
    return frames


def open_spill_files() -> int:
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue  # That of the listing itself.
    return sum("/spill-" in target for target in targets)


def test_frames_come_back_whole_and_in_order_from_memory_and_disk(tmp_path: Path) -> None:
    channel = spilling_channel(Spill(str(tmp_path), LARGE), memory=2500)
    frames = [frame(1), frame(2), watermark_frame(7), frame(3, 5000), frame(4, 10), frame(5)]
    held = [channel.put(each) for each in frames]
    assert [isinstance(each, SpilledFrame) for each in held] == [
        False, False, False, True, False, True,
    ]  # fmt: skip
    assert [each.size for each in held] == [each.size for each in frames]
    assert channel.queued_bytes == sum(each.size for each in frames)
    assert sent(channel) == frames
    assert channel.queued_bytes == 0


def test_room_in_memory_is_used_again(tmp_path: Path) -> None:
    channel = spilling_channel(Spill(str(tmp_path), LARGE), memory=1500)
    assert isinstance(channel.put(frame(1)), Frame)
    assert isinstance(channel.put(frame(2)), SpilledFrame)
    assert channel.poll() == frame(1)
    assert isinstance(channel.put(frame(3)), Frame)
    assert sent(channel) == [frame(2), frame(3)]
    assert isinstance(channel.put(frame(4)), Frame)
    assert isinstance(channel.put(frame(5)), SpilledFrame)


def test_spilled_frames_wait_for_credit_like_others(tmp_path: Path) -> None:
    channel = OutputChannel(1, 1500, 0, Spill(str(tmp_path), LARGE))
    channel.put(frame(1))
    channel.put(frame(2))
    assert sent(channel) == [frame(1)]
    channel.on_credit(frame(1).size, 1500)
    assert sent(channel) == [frame(2)]


@needs_proc
def test_files_have_no_name_and_are_closed_once_their_frames_are_gone(tmp_path: Path) -> None:
    gc.collect()
    before = open_spill_files()
    spill = Spill(str(tmp_path), LARGE)
    channel = spilling_channel(spill)
    for number in range(5):
        channel.put(frame(number))
    assert open_spill_files() == before + 1
    assert list(tmp_path.iterdir()) == []
    captured = channel.overtake(BARRIER)
    sent(channel)
    assert spill.used_bytes == 5 * frame(0).size
    assert [each.load() for each in captured if isinstance(each, SpilledFrame)] == [
        frame(number) for number in range(5)
    ]
    captured.clear()
    assert spill.used_bytes == 0
    assert open_spill_files() == before


def test_a_full_segment_gives_back_its_space_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "_SEGMENT_BYTES", 2500)
    spill = Spill(str(tmp_path), LARGE)
    channel = spilling_channel(spill)
    for number in range(9):
        channel.put(frame(number))
    assert spill.used_bytes == 9 * frame(0).size
    for number in range(3):
        assert channel.poll() == frame(number)
    assert spill.used_bytes == 6 * frame(0).size
    assert sent(channel) == [frame(number) for number in range(3, 9)]


def test_at_the_limit_a_channel_is_overdrawn_until_space_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "_SEGMENT_BYTES", 1)
    spill = Spill(str(tmp_path), 2500)
    channel = spilling_channel(spill)
    numbers = range(4)
    overdrawn = []
    for number in numbers:
        channel.put(frame(number))
        overdrawn.append(channel.overdrawn)
    assert overdrawn == [False, False, True, True]
    assert "spill_bytes_max (2500)" in spill.refusal
    assert str(tmp_path) in spill.refusal
    assert channel.poll() == frame(0)
    assert not channel.overdrawn
    assert isinstance(channel.put(frame(4)), SpilledFrame)
    assert sent(channel) == [frame(number) for number in (1, 2, 3, 4)]


def test_a_channel_without_spill_is_overdrawn_by_what_memory_should_not_hold() -> None:
    channel = OutputChannel(1, LARGE, 1500)
    channel.put(frame(1))
    assert not channel.overdrawn
    channel.put(frame(2))
    assert channel.overdrawn
    assert channel.poll() == frame(1)
    assert not channel.overdrawn


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a frame is written before the disk refuses; it must not be taken for one."""
    pwrite, room = os.pwrite, [1500]

    def write(descriptor: int, data: Any, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = pwrite(descriptor, data[: room[0]], offset)
        room[0] -= count
        return count

    monkeypatch.setattr(spill_module.os, "pwrite", write)
    spill = Spill(str(tmp_path), LARGE)
    channel = spilling_channel(spill)
    held = [channel.put(frame(number)) for number in range(3)]
    assert [isinstance(each, SpilledFrame) for each in held] == [True, False, False]
    assert channel.overdrawn
    assert "No space left" in spill.refusal
    assert spill.used_bytes == frame(0).size
    room[0] = LARGE
    assert isinstance(channel.put(frame(3)), SpilledFrame)
    assert not channel.overdrawn
    assert sent(channel) == [frame(number) for number in range(4)]


def test_a_spill_file_that_cannot_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = spilling_channel(Spill(str(tmp_path), LARGE))
    channel.put(frame(1))
    monkeypatch.setattr(spill_module.os, "pread", lambda *args: b"")
    with pytest.raises(StorageError, match=rf"cannot read a spill file .*: {tmp_path}"):
        channel.poll()


class Reads:
    """Counts what is read from spill files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread = os.pread

        def read(descriptor: int, count: int, offset: int) -> bytes:
            self.bytes += count
            return pread(descriptor, count, offset)

        monkeypatch.setattr(spill_module.os, "pread", read)


def test_captured_frames_are_read_when_they_are_stored_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec, reads = RowCodec(), Reads(monkeypatch)
    channel = spilling_channel(Spill(str(tmp_path), LARGE), memory=3000)
    frames = [data_frame(Rows([f"{number}" * 1000]), codec) for number in range(8)]
    for each in frames:
        channel.put(each)
    edge = Link(0, 0, "a", 1, 0, Rebalance(), None, 1, 1, 128)
    capture = Capture([Overtaken(edge, "a > b:0", 0, channel.overtake(BARRIER))])
    channels = capture.channels(0, {})
    assert reads.bytes == 0
    assert channels[0][0].bytes == sum(each.size for each in frames)
    assert _sent_data(channel) == frames
    storage = CheckpointStorage(ObjectStore(str(tmp_path / "storage")), inline_bytes_max=10)
    stored = storage.write_in_flight(1, 1, 1, 0, channels).stored
    sections = storage.read_snapshot(stored, ManifestKey(1, 1))
    assert [each.payload for each in stored_frames(io.BytesIO(sections["0"]), "here")] == [
        each.payload for each in frames
    ]


def _sent_data(channel: OutputChannel) -> Sequence[Frame]:
    return [each for each in sent(channel) if each.is_data]


def test_receivers_of_a_broadcast_share_what_is_on_disk(tmp_path: Path) -> None:
    spill, asked_for_room = Spill(str(tmp_path), LARGE), list[OutputChannel]()
    metrics = SubtaskMetrics()
    outlet = Outlet("a", RowCodec(), Limits(), metrics, asked_for_room.append)
    channels = [spilling_channel(spill, memory=1500), spilling_channel(spill)]
    buffer = ChannelBuffer(channels, outlet, {}, [0], 0)
    buffer.put(frame(1))
    buffer.put(frame(2))
    assert spill.used_bytes == metrics.spilled_bytes == 2 * frame(0).size
    assert asked_for_room == [channels[1], *channels]
    for channel in channels:
        assert sent(channel) == [frame(1), frame(2)]
