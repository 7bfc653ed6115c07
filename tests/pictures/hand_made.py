"""Traces made by hand, with times that can be added up in one's head."""

from __future__ import annotations

from dataclasses import replace

from minirt.protocol.reports import ChannelReport
from minirt.protocol.trace import (
    CheckpointTrace,
    SubtaskTrace,
    TraceEvent,
    TraceEventKind,
    TraceSender,
)

Row = tuple[float, TraceEventKind] | tuple[float, TraceEventKind, int]


def subtask(
    vertex: int,
    index: int,
    rows: list[Row],
    senders: list[tuple[int, int]],
    acknowledged: float,
    captured: tuple[ChannelReport, ...] = (),
    ahead_s: float = 0.0,
) -> SubtaskTrace:
    """Times are seconds since the trigger, whatever the clock of its process shows."""
    names = ("source", "map", "sink")
    events = tuple(TraceEvent(ahead_s + 100 + at, *rest) for at, *rest in rows)  # type: ignore[arg-type]
    return SubtaskTrace(
        vertex,
        index,
        f"{names[min(vertex, 2)]} ({index + 1}/2)",
        ahead_s + 100,
        tuple(TraceSender(*sender, f"{sender[0]} > {vertex}:0") for sender in senders),
        events,
        captured,
        clock_ahead_s=ahead_s,
        clock_error_s=0.001,
        acknowledged_at=100 + acknowledged,
    )


def trace(*subtasks: SubtaskTrace, completed: float, mode: str = "aligned") -> CheckpointTrace:
    return CheckpointTrace(
        "job", 7, 1, mode, "checkpoint", 0.0, 100.0, 100 + completed, 101 + completed, subtasks
    )


def source(index: int, triggered: float, acknowledged: float, ahead_s: float = 0.0) -> SubtaskTrace:
    rows: list[Row] = [
        (triggered, "triggered", 0),
        (triggered, "sent"),
        (triggered + 1, "snapshot"),
        (triggered + 1, "whole"),
        (triggered + 1, "upload"),
        (triggered + 2, "stored"),
    ]
    return subtask(0, index, rows, [], acknowledged, ahead_s=ahead_s)


def aligned() -> CheckpointTrace:
    """The map reads from two sources; the barrier of the second one is at 40, behind 30 s of its records.

    Clocks differ: the map's is an hour ahead, that of the second source a minute behind.
    """
    rows: list[Row] = [
        (3, "arrived", 0),
        (4, "reached", 0),
        (4, "blocked", 0),
        (10, "arrived", 1),
        (40, "reached", 1),
        (40, "sent"),
        (42, "snapshot"),
        (42, "unblocked"),
        (42, "whole"),
        (43, "upload"),
        (50, "stored"),
    ]
    return trace(
        source(0, 1, 4),
        source(1, 2, 5, ahead_s=-60.0),
        subtask(1, 0, rows, [(0, 0), (0, 1)], 51, ahead_s=3600.0),
        completed=55,
    )


def unaligned() -> CheckpointTrace:
    """The same, but the first barrier to arrive takes the snapshot; it is whole with the second one."""
    rows: list[Row] = [
        (3, "arrived", 0),
        (3, "sent"),
        (5, "snapshot"),
        (5, "unblocked"),
        (10, "arrived", 1),
        (10, "whole"),
        (10, "upload"),
        (14, "stored"),
    ]
    captured = (
        ChannelReport("0 > 1:0", 1, 0, "in", 3000, 30),
        ChannelReport("1 > 2:0", 0, 0, "out", 500, 5),
    )
    return trace(
        source(0, 1, 4),
        source(1, 2, 5),
        subtask(1, 0, rows, [(0, 0), (0, 1)], 15, captured),
        completed=16,
        mode="unaligned",
    )


def timed_out() -> CheckpointTrace:
    """One channel, whose records take long: after 20 s the barrier overtakes."""
    rows: list[Row] = [
        (3, "arrived", 0),
        (20, "timer"),
        (20, "sent"),
        (21, "snapshot"),
        (21, "unblocked"),
        (21, "whole"),
        (21, "upload"),
        (22, "stored"),
    ]
    return trace(
        source(0, 1, 4),
        subtask(1, 0, rows, [(0, 0)], 23),
        completed=24,
        mode="aligned_with_timeout",
    )


def wide(parallelism: int) -> CheckpointTrace:
    """As many subtasks of two operators, each connected with each; the last barrier is that of the last."""
    sources = [source(index, 1 + index / parallelism, 4) for index in range(parallelism)]
    maps = []
    for index in range(parallelism):
        rows: list[Row] = []
        for channel in range(parallelism):
            rows.append((5 + channel / parallelism, "arrived", channel))
        for channel in range(parallelism):
            rows.append((7 + channel / parallelism + index / 10, "reached", channel))
            rows.append((7 + channel / parallelism + index / 10, "blocked", channel))
        end = 8 + index / 10
        rows += [(end, "sent"), (end + 1, "snapshot"), (end + 1, "unblocked"), (end + 1, "whole")]
        rows += [(end + 1, "upload"), (end + 2, "stored")]
        senders = [(0, sender) for sender in range(parallelism)]
        maps.append(subtask(1, index, rows, senders, end + 3))
    return trace(*sources, *maps, completed=12 + parallelism / 10)


def line() -> CheckpointTrace:
    """Made of local snapshots, 20, 5 and 12 s before; the mark of the second source comes 4 s behind the
    beginning. So of the first channel nothing is in transit, and 3,000 bytes are of the second."""

    def local_source(index: int, taken: float) -> SubtaskTrace:
        rows: list[Row] = [(taken, "sent"), (taken, "snapshot"), (1, "triggered"), (1, "whole")]
        return subtask(0, index, [*rows, (1, "upload"), (2, "stored")], [], 3)

    rows: list[Row] = [
        (-15, "arrived", 0),
        (-12, "sent"),
        (-12, "snapshot"),
        (1, "triggered"),
        (4, "arrived", 1),
        (4, "whole"),
        (5, "upload"),
        (9, "stored"),
    ]
    captured = (ChannelReport("0 > 1:0", 1, 0, "in", 3000, 30),)
    parts = [
        local_source(0, -20),
        local_source(1, -5),
        subtask(1, 0, rows, [(0, 0), (0, 1)], 10, captured),
    ]
    numbered = [replace(part, local=7 + number) for number, part in enumerate(parts)]
    return trace(*numbered, completed=12, mode="uncoordinated")
