"""What a subtask keeps for its local snapshots: which part of a channel belongs to which line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.channels.frames import (
    END_FRAME,
    Frame,
    Kind,
    barrier_frame,
    index_of,
    mark_frame,
    mark_of,
    watermark_frame,
)
from minirt.runtime.subtask.local_snapshots import ChannelLog, LocalLog
from minirt.testing.clock import HeldClock


def data(name: str) -> Frame:
    return Frame(Kind.ROWS, name.encode(), 1)


def log_of(*elements: str | int | Frame) -> ChannelLog:
    """Of texts, which stand for data, of numbers, which stand for marks, and of other frames."""
    log = ChannelLog()
    for element in elements:
        if isinstance(element, Frame):
            log.add(element)
        else:
            log.add(mark_frame(element) if isinstance(element, int) else data(element))
    return log


def slice_of(log: ChannelLog, start: int, number: int) -> str:
    return "".join(frame.payload.decode() for frame in log.slice(start, number))


@pytest.mark.parametrize(("taken", "need"), [(0, 0), (1, 1), (2, 2), (3, 4)])
def test_what_was_taken_needs_the_first_mark_behind_it(taken: int, need: int) -> None:
    assert log_of("a", 1, "b", 2, 3, "c", 4).need(taken) == need


def test_frames_of_control_count_as_well() -> None:
    log = log_of("a", 1, watermark_frame(5), 2)
    assert [log.need(taken) for taken in range(3)] == [0, 1, 2]


def test_barriers_do_not_count() -> None:
    barrier = barrier_frame(Barrier(1, "unaligned", 0.0))
    log = log_of("a", barrier, 1, "b", barrier)
    assert [log.need(taken) for taken in range(3)] == [0, 1, 2]
    assert (log.arrived, slice_of(log, 0, 1)) == (2, "a")


def test_a_slice_is_the_data_from_the_snapshot_to_the_mark() -> None:
    log = log_of("a", "b", 1, watermark_frame(5), "c", 2, "d", END_FRAME)
    assert slice_of(log, 0, 1) == "ab"
    assert slice_of(log, 1, 2) == "bc"
    assert slice_of(log, 3, 2) == "c"
    assert slice_of(log, 6, 2) == ""
    assert slice_of(log, 6, 1) == ""


def test_what_lies_before_the_line_is_forgotten() -> None:
    log = log_of("a", "b", 1, "c", 2)
    log.forget(start=1, number=1)
    assert slice_of(log, 1, 2) == "bc"
    assert (log.need(1), log.need(3)) == (1, 2)
    log.forget(start=3, number=3)
    assert not log.has_mark(3)
    log.add(data("d"))
    log.add(mark_frame(3))
    assert log.need(3) == 2
    assert slice_of(log, 3, 3) == "d"


def test_marks_keep_their_order_where_they_overtake() -> None:
    channel = OutputChannel(1000, 1000)
    channel.put(data("a"))
    assert channel.overtake(mark_frame(1)) == [data("a")]
    channel.put(data("b"))
    assert channel.overtake(mark_frame(2)) == [data("a"), data("b")]
    frames = [channel.poll() for _ in range(4)]
    assert frames == [mark_frame(1), mark_frame(2), data("a"), data("b")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jitter": 1.5}, "jitter is a number from 0 to 1, not 1.5"),
        ({"jitter": True}, "jitter is a number"),
        ({"log_bytes": 0}, "log_bytes must be a whole number above 0"),
        ({"log_bytes": 100}, "log_bytes must be at least 1024"),
        ({"stagger": 0}, "stagger must be positive"),
        ({"stagger": "soon"}, "stagger"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Uncoordinated(**options)  # type: ignore[arg-type]


def test_a_stagger_of_more_than_an_interval_is_refused(tmp_path: Path) -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(4), uid="numbers").sink(rt.DiscardSink(), uid="out")
    checkpointing = rt.Checkpointing(tmp_path, interval="1s", mode=Uncoordinated(stagger="2s"))
    with pytest.raises(ConfigurationError, match=r"stagger \(2 s\) must be at most the interval"):
        env.execute(checkpointing=checkpointing)


def test_a_job_whose_logs_are_small_runs_to_its_end(tmp_path: Path) -> None:
    sink = rt.CollectSink()
    env = rt.Environment(parallelism=2)
    stream = env.source(rt.SequenceSource(20_000, splits=2), uid="numbers").rebalance()
    stream.map(lambda n: n, uid="same").sink(sink, uid="out")
    result = env.execute(
        runner="inline",
        checkpointing=rt.Checkpointing(
            tmp_path, interval="5ms", mode=Uncoordinated(log_bytes=16 * 1024)
        ),
    )
    assert result.completed_checkpoints > 1
    assert sorted(sink.rows) == [*range(20_000)]


def test_a_mark_has_an_index_only_where_snapshots_have_one() -> None:
    assert mark_frame(7, 3).size - mark_frame(7).size == 8
    assert [mark_of(mark_frame(7)), mark_of(mark_frame(7, 3))] == [7, 7]
    assert index_of(mark_frame(7, 3)) == 3


WATERMARKS = SubtaskWatermarks("head", 0, None)


def log_alone(**plan: Any) -> tuple[LocalLog, Any]:
    """Of a subtask without input, due every second, with its figures."""
    nothing: Any = SimpleNamespace(
        origins=(),
        taken=list,
        processed_records=lambda: None,
        may_capture_restored=True,
        on_snapshot=lambda number: None,
    )
    metrics: Any = SimpleNamespace(bytes_in=0, bytes_out=0)
    local = LocalSnapshots(interval_s=1, jitter=0, log_bytes=1000, **plan)
    return LocalLog(SubtaskId(0, 0), nothing, metrics, local, HeldClock()), metrics


def test_snapshots_become_rare_where_the_line_does_not_move() -> None:
    log, _ = log_alone(waiting_max=2)
    at = [0.0]
    while at[-1] < 200:
        log.add((), WATERMARKS, None, at[-1])
        at.append(log.due_at)
    assert at[:9] == [0, 1, 2, 4, 8, 16, 32, 64, 128]  # Two intervals, four, and so on.


def test_snapshots_that_could_not_be_stored_make_room_for_others() -> None:
    log, metrics = log_alone(waiting_max=2)
    cuts = [log.add((), WATERMARKS, None, now) for now in range(3)]
    assert (log.due_at, log.is_due(3.9), log.is_due(4.0)) == (4.0, False, True)
    log.on_declined(cuts[0].number)
    assert (log.due_at, log.is_due(2.9), log.is_due(3.0)) == (3.0, False, True)
    metrics.bytes_in = 1000
    assert log.full  # It keeps no more than before: what came in since the declined one counts.
