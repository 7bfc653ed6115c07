"""The log of the order in which a subtask reads its channels, and the input that goes by it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from minirt.data.codec import RowCodec
from minirt.errors import ProtocolError, StorageError
from minirt.graph.execution import Link
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.service_order import (
    Determinant,
    Fired,
    InputOver,
    Passed,
    Read,
    Served,
)
from minirt.runtime.channels.frames import ACTIVE_FRAME, END_FRAME, IDLE_FRAME
from minirt.runtime.channels.logged import CountedInput
from minirt.runtime.input.elements import Advance, Data, Due, End, Origin
from minirt.runtime.input.gate_input import Incoming
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.logged_clock import LoggedClock
from minirt.runtime.input.ordered_input import OrderedInput, ServiceOrder
from minirt.runtime.input.recovered import RestoredInput
from minirt.runtime.input.service_log import ENTRY_BYTES, FolderFiles, LogFiles, ServiceLog
from minirt.testing.memory_files import MemoryFiles
from tests.runtime.test_logged_channels import Said, frame_of

ID = SubtaskId(1, 0)
PLENTY = 1 << 20


def log_in(files: LogFiles, generation: int = 1, bytes_max: int = PLENTY) -> ServiceLog:
    return ServiceLog(files, generation, ID, "count-1", bytes_max)


def filled(files: LogFiles, bytes_max: int = PLENTY) -> ServiceLog:
    """A log with two snapshots."""
    log = log_in(files, bytes_max=bytes_max)
    log.served(0, 9)  # Ahead of the first snapshot, so nobody asks for it.
    log.begin_segment(1, [])
    log.served(0, 3)
    log.add(Passed(-5, True))
    log.begin_segment(2, [Passed(-5, True)])
    log.add(Passed(None, False))
    log.served(1, 2)
    return log


SINCE_1 = (Served(0, 3), Passed(-5, True), Passed(None, False), Served(1, 2))
SINCE_2 = (Passed(-5, True), Passed(None, False), Served(1, 2))


@pytest.fixture(params=["memory", "folder"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> LogFiles:
    return MemoryFiles() if request.param == "memory" else FolderFiles(str(tmp_path))


def test_another_life_reads_what_the_one_before_did_and_goes_on(files: LogFiles) -> None:
    filled(files)
    assert log_in(files).go_on(1) == SINCE_1
    second = log_in(files)
    assert second.go_on(2) == SINCE_2
    second.add(InputOver())
    assert log_in(files).go_on(1) == (*SINCE_1, InputOver())


def test_an_entry_that_was_not_written_to_its_end_counts_for_nothing(files: LogFiles) -> None:
    filled(files)
    name = next(name for name in files.names() if name.endswith("n2"))
    files.open(name, len(files.read(name))).append(b"\x01" * (ENTRY_BYTES - 1))
    log = log_in(files)
    assert log.go_on(1) == SINCE_1
    log.served(0, 8)
    assert log_in(files).go_on(1) == (*SINCE_1, Served(0, 8))


def test_what_lies_behind_the_line_is_removed(files: LogFiles) -> None:
    log = filled(files)
    log.forget(2)
    assert [name[-2:] for name in files.names()] == ["n2"]
    with pytest.raises(StorageError, match=r"count-1 cannot come back alone: the order"):
        log_in(files).go_on(1)
    assert log_in(files).go_on(2) == SINCE_2


def test_a_generation_begins_without_what_others_have_left(files: LogFiles) -> None:
    filled(files)
    other = ServiceLog(files, 1, SubtaskId(1, 10), "count-11", PLENTY)
    other.begin_segment(1, [])
    with pytest.raises(StorageError):
        log_in(files, generation=2).go_on(1)
    log_in(files, generation=2).begin()
    assert files.names() == ["order-v1-s10-g1-n1"]


def test_a_log_that_is_too_long_is_given_up_until_the_next_snapshot(
    files: LogFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(files, bytes_max=10 * ENTRY_BYTES)
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            log.served(0, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "count-1 cannot come back alone before the next checkpoint: the order in which it reads its "
        "channels cannot be kept (it holds 160 bytes: see the limit order_log_bytes)"
    ]
    for number in (1, 2):
        with pytest.raises(StorageError):
            log_in(files).go_on(number)
    log.begin_segment(3, [])
    log.served(1, 5)
    with pytest.raises(StorageError):
        log_in(files).go_on(1)
    assert log_in(files).go_on(3) == (Served(1, 5),)
    log.forget(3)
    assert [name[-2:] for name in files.names()] == ["n3"]


@pytest.mark.parametrize("room", range(0, 4 * ENTRY_BYTES, ENTRY_BYTES))
def test_a_full_disk_leaves_no_log_that_looks_whole(room: int) -> None:
    """Whichever write fails: of an entry, of the head of a segment, or of the end of the one before."""
    files = MemoryFiles()
    log = filled(files)
    files.bytes_max = sum(map(len, files.files.values())) + room
    log.begin_segment(3, [Passed(4)])
    log.served(0, 1)
    # Where only the end of the segment before has no room, the new one is written on.
    assert files.open_files == (1 if room == 32 else 0)
    for number in (1, 2):
        with pytest.raises(StorageError):
            log_in(files).go_on(number)
    files.bytes_max = None
    log.begin_segment(4, [])
    log.served(1, 7)
    assert log_in(files).go_on(4) == (Served(1, 7),)


@pytest.mark.parametrize("broken", ["names", "read", "open"])
def test_a_disk_that_fails_is_told_with_what_to_do(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = MemoryFiles()
    filled(files)

    def fail(*_: object) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(files, broken, fail)
    told = r"count-1 cannot come back alone: .*\(input/output error\)\. Look after the disk"
    with pytest.raises(StorageError, match=told):
        log_in(files).go_on(1)


def test_it_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal; from tests.runtime.test_service_log import *; "
        f"filled(FolderFiles({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=os.getcwd(), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert log_in(FolderFiles(str(tmp_path))).go_on(1) == SINCE_1


# The input.

CODEC = RowCodec(allow_pickle=False)
OVER = "over"


class Reader:
    """An input with two channels; what is read of it is shown as in the frames."""

    def __init__(self, files: LogFiles, again_since: int | None = None) -> None:
        self.ms = 0
        """What the clock shows now."""
        log = log_in(files)
        again = None if again_since is None else deque(log.go_on(again_since))
        self.heard: list[str] = []
        incoming = [Incoming(CountedInput(PLENTY), Origin("in", each), 0) for each in (0, 1)]
        parts = InputParts(_links(), CODEC, SubtaskMetrics(), RestoredInput())
        self.clock = LoggedClock(lambda: self.ms / 1000, log, again)
        order = ServiceOrder(log, again, lambda: self.heard.append(OVER), self.clock)
        self.input = OrderedInput(incoming, parts, None, order)

    def put(self, channel: int, *said: Said) -> Reader:
        for one in said:
            self.input.put(channel, frame_of(one))
        return self

    def read(self, piece: int | None = None, times: int = 1000) -> list[object]:
        """Read until nothing is left, in pieces of so many records unless the input says how many."""
        found: list[object] = []
        while times and self.input.has_input:
            times -= 1
            work = self.input.in_work
            if work is not None:
                count = self.input.piece_records or min(work.left, piece or work.left)
                batch = work.piece(count)
                found.append("".join(batch.rows().records))
                self.input.consumed(count)
                continue
            match self.input.poll():
                case Advance(watermark, idle):
                    found.append((watermark, idle))
                case End():
                    found.append("end")
                case Due(place):
                    found.append(("due", place, self.clock.read()))
                case Data():
                    pass
                case None:
                    return found
        return found


def _links() -> dict[str, Link]:
    class Uncapturable:
        capturable = True

    return {"in": Uncapturable()}  # type: ignore[dict-item]


def first_life(files: LogFiles) -> list[object]:
    reader = Reader(files)
    reader.input.on_snapshot(1)
    found = reader.put(0, "abc", 3).put(1, "xyz").read(piece=2)
    found += reader.put(1, 5, "uv", 9, IDLE_FRAME).read()
    return found + reader.put(0, "de", 7, ACTIVE_FRAME).read(piece=1)


def logged(files: LogFiles, since: int = 1) -> Sequence[Determinant]:
    return log_in(files).go_on(since)


def test_it_writes_down_which_records_came_when_and_what_came_of_watermarks() -> None:
    files = MemoryFiles()
    assert first_life(files) == [
        *("ab", "c", "xy", "z", (3, None), "uv"),
        *("d", "e", (7, None)),
    ]
    assert logged(files) == (
        *(Served(0, 2), Served(0, 1), Served(1, 2), Served(1, 1), Passed(3), Served(1, 2)),
        *(Served(0, 1), Served(0, 1), Passed(7)),
    )


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("cut", ["as before", "finer", "coarser"])
def test_it_reads_again_in_the_same_order_and_pieces(first: int, cut: str) -> None:
    files = MemoryFiles()
    before = first_life(files)
    reader = Reader(files, again_since=1)
    frames: dict[str, tuple[Sequence[Said], Sequence[Said]]] = {
        "as before": (["abc", 3, "de", 7, ACTIVE_FRAME], ["xyz", 5, "uv", 9, IDLE_FRAME]),
        "finer": (["a", "bc", 3, "d", "e", 7], ["x", "yz", 5, "u", "v", 9, IDLE_FRAME]),
        "coarser": (["abcde", 3, 7], ["xyzuv", 9, IDLE_FRAME]),
    }
    channels = frames[cut]
    found = reader.put(first, *channels[first]).read()
    assert reader.heard == []
    found += reader.put(1 - first, *channels[1 - first]).read()
    assert found == before
    assert reader.heard == [OVER]


def test_behind_the_log_the_order_is_free_and_nothing_is_left_out() -> None:
    files = MemoryFiles()
    before = first_life(files)
    reader = Reader(files, again_since=1)
    found = reader.put(0, "abcdefg", 7).put(1, "xyzuvw", 9).read()
    assert found[: len(before)] == before
    assert sorted(str(each) for each in found[len(before) :]) == ["fg", "w"]
    assert logged(files)[-2:] in [(Served(0, 2), Served(1, 1)), (Served(1, 1), Served(0, 2))]


def test_what_was_taken_of_a_frame_and_not_given_out_is_not_lost_to_a_snapshot() -> None:
    files = MemoryFiles()
    first_life(files)
    reader = Reader(files, again_since=1)
    reader.put(0, "abcdefg").read(times=2)
    held = ["".join(data.batch.rows().records) for data in reader.input.unread()]
    assert held == ["cdefg"]


def test_the_end_of_input_comes_where_it_came() -> None:
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    before = reader.put(1, 20, END_FRAME).read() + reader.put(0, "a", 10, END_FRAME).read()
    assert before == ["a", (10, None), "end"]
    again = Reader(files, again_since=1)
    found = again.put(0, "a", 10, END_FRAME).read() + again.put(1, 20, END_FRAME).read()
    assert found == before
    assert again.heard == [OVER]


def test_event_time_goes_on_from_what_was_said_and_from_what_has_come() -> None:
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    assert reader.put(0, 4).put(1, "x", 6, "y").read() == ["x", (4, None), "y"]
    again = Reader(files, again_since=1)
    assert again.put(1, "x", 6, "y").read() == ["x", (4, None), "y"]
    assert again.put(0, 4, 5, "a").read() == [(5, None), "a"]


def test_a_second_comeback_reads_what_all_lives_did() -> None:
    files = MemoryFiles()
    before = first_life(files)
    reader = Reader(files, again_since=1)
    more = reader.put(0, "abcde", 7).put(1, "xyzuv", 9).put(0, "f").read()
    assert more == [*before, "f"]
    third = Reader(files, again_since=1).put(1, "xyzuv", 9).put(0, "abcdef", 7)
    assert third.read() == [*before, "f"]


def test_a_channel_that_brings_more_ahead_of_its_end_is_told() -> None:
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    reader.put(0, "a", END_FRAME).put(1, END_FRAME).read()
    again = Reader(files, again_since=1).put(0, "ab", END_FRAME).put(1, END_FRAME)
    with pytest.raises(ProtocolError, match="channel 0 has brought more records than before"):
        again.read()


@pytest.mark.parametrize("said", [["ab", END_FRAME], [END_FRAME]])
def test_a_channel_that_ends_too_early_is_told(said: Sequence[Said]) -> None:
    files = MemoryFiles()
    first_life(files)
    reader = Reader(files, again_since=1).put(0, *said)
    with pytest.raises(ProtocolError, match="is a function not deterministic"):
        reader.read()


# The clock.


class Asking(Reader):
    """Asks for the clock twice in each piece, which takes a while; something may be due."""

    def ask(self) -> int:
        shown = self.clock.read()
        self.ms += 7
        assert self.clock.read() == shown
        return shown

    def asked(self) -> list[object]:
        """What is read, each with what the clock shows while it is done."""
        found: list[object] = []
        while self.input.has_input:
            read = self.read(piece=2, times=1)
            if read:
                found += [*read, self.ask()]
        return found

    def due(self, place: int) -> tuple[str, int, int]:
        assert not self.input.tells_due
        self.input.on_due(place)
        return "due", place, self.ask()


def first_hours(files: LogFiles) -> list[object]:
    """A life with a snapshot ahead of all."""
    reader = Asking(files)
    reader.ms = 100
    reader.input.on_snapshot(1)
    found = reader.put(0, "abc", 3).asked()
    found.append(reader.due(2))
    return found + reader.put(0, "d").asked()


def test_the_clock_is_written_down_once_for_each_piece() -> None:
    files = MemoryFiles()
    assert first_hours(files) == ["ab", 100, "c", 107, ("due", 2, 114), "d", 121]
    assert logged(files) == (
        *(Served(0, 2), Read(100), Served(0, 1), Read(107)),
        *(Fired(2, 114), Served(0, 1), Read(121)),
    )


def test_it_shows_the_same_again_and_what_was_due_is_due_there() -> None:
    files = MemoryFiles()
    before = first_hours(files)
    again = Asking(files, again_since=1)
    again.ms = 5000
    assert again.input.tells_due
    found = again.put(0, "abcdef", 3).asked()
    # What is due asks for the clock by itself in this test.
    assert [one for one in found if one != 114] == [*before, "ef", again.ms - 7]
    assert again.heard == [OVER]
    assert not again.input.tells_due
    assert logged(files)[-2:] == (Served(0, 2), Read(again.ms - 7))


def test_where_nobody_asks_nothing_is_written_down() -> None:
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    reader.put(0, "abc").read()
    assert logged(files) == (Served(0, 3),)


def test_a_snapshot_in_the_middle_of_what_is_due_says_so() -> None:
    files = MemoryFiles()
    reader = Asking(files)
    reader.ms = 40
    reader.input.on_snapshot(1)
    reader.due(1)
    reader.input.on_snapshot(2)
    assert reader.put(0, "a").asked() == ["a", 47]
    assert logged(files, since=2) == (Fired(1, 40), Served(0, 1), Read(47))


def test_a_snapshot_in_the_middle_of_a_step_of_event_time_has_what_the_clock_showed() -> None:
    files = MemoryFiles()
    reader = Asking(files)
    reader.ms = 40
    reader.input.on_snapshot(1)
    reader.put(0, 3).put(1, 4)
    assert reader.read() == [(3, None)]
    assert reader.ask() == 40
    reader.input.on_snapshot(2)
    again = Asking(files, again_since=2)
    assert again.read(times=1) == [(3, None)]
    assert again.clock.read() == 40


def test_an_answer_that_nobody_asks_for_again_is_passed_over() -> None:
    files = MemoryFiles()
    first_hours(files)
    found = Reader(files, again_since=1).put(0, "abcd").read()
    assert found == ["ab", "c", ("due", 2, 114), "d"]


def test_an_answer_that_was_not_asked_for_before_is_told() -> None:
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    reader.put(0, "a").read()
    reader.put(0, "b").read()
    again = Reader(files, again_since=1).put(0, "ab")
    assert again.read(times=2) == ["a"]
    with pytest.raises(ProtocolError, match="asks for the clock where it did not before"):
        again.clock.read()


def test_where_the_log_ends_the_clock_is_asked_anew() -> None:
    """It had been killed between what it read and its first question."""
    files = MemoryFiles()
    reader = Reader(files)
    reader.input.on_snapshot(1)
    reader.put(0, "a").read()
    again = Reader(files, again_since=1).put(0, "a")
    again.ms = 9
    assert again.read(times=2) == ["a"]
    assert again.clock.read() == 9
    assert logged(files) == (Served(0, 1), Read(9))
