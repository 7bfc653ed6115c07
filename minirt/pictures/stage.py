"""The queues of a job as a drawing in which barriers move: subtasks as boxes, channels between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minirt.pictures.critical_path import Step
from minirt.pictures.layout import drawn_channels
from minirt.pictures.timeline import ChannelTimes, Lane, Timeline

BOX_WIDTH, BOX_HEIGHT = 150, 30
COLUMN_WIDTH, ROW_GAP, TOP = 380, 14, 26
SUBTASKS_MAX = 8
"""Of an operator: those on the critical path and the slowest ones. All would be no picture."""
CHANNELS_EACH = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A subtask, and when it changes its looks."""

    lane: int
    name: str
    x: float
    y: float
    waits: float
    sent: float
    snapshot: float
    whole: float
    stored: float


@dataclass(frozen=True, slots=True)
class Queue:
    """A channel: its first half is the output queue of the sender, the second the receiver's input queue.

    A barrier is in it from `sent` until it is `gone`; `arrived` is when it changes the halves.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    sent: float
    arrived: float
    gone: float
    blocked: tuple[float, float] | None
    out_bytes: int
    in_bytes: int
    snapshot: float
    """When the receiver's own snapshot captured what its input queue held."""


@dataclass(frozen=True, slots=True)
class Stage:
    """In pixels; `left_out` subtasks have no room."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    queues: tuple[Queue, ...]
    left_out: int


def stage(timeline: Timeline, path: Sequence[Step]) -> Stage:
    """The drawing of a checkpoint."""
    depths = _depths(timeline)
    columns: dict[int, list[int]] = {}
    on_path = {step.lane for step in path} | {step.sender for step in path}
    for vertex in sorted({lane.vertex for lane in timeline.lanes}):
        members = [place for place, lane in enumerate(timeline.lanes) if lane.vertex == vertex]
        members.sort(key=lambda p: (p not in on_path, -timeline.lanes[p].acknowledged))
        columns.setdefault(depths[vertex], []).extend(sorted(members[:SUBTASKS_MAX]))
    boxes = {}
    tallest = max((len(column) for column in columns.values()), default=0)
    for depth, column in columns.items():
        top = TOP + (tallest - len(column)) * (BOX_HEIGHT + ROW_GAP) / 2
        for row, place in enumerate(column):
            y = top + row * (BOX_HEIGHT + ROW_GAP)
            boxes[place] = _box(timeline.lanes[place], place, 8 + depth * COLUMN_WIDTH, y)
    queues = [
        queue
        for place, box in boxes.items()
        for channel in drawn_channels(timeline.lanes[place], path, place, CHANNELS_EACH)
        if channel.sender in boxes
        and (queue := _queue(boxes[channel.sender], box, timeline.lanes[place], channel))
    ]
    return Stage(
        16 + COLUMN_WIDTH * (len(columns) - 1) + BOX_WIDTH,
        TOP + tallest * (BOX_HEIGHT + ROW_GAP) + 8,
        tuple(boxes.values()),
        tuple(queues),
        len(timeline.lanes) - len(boxes),
    )


def stage_data(drawn: Stage) -> dict[str, Any]:
    """What moves the barriers: the times, in the order in which boxes and queues are drawn."""
    return {
        "boxes": [[b.waits, b.sent, b.snapshot, b.whole, b.stored] for b in drawn.boxes],
        "queues": [
            {
                "at": [q.x1, q.y1, q.x2, q.y2],
                "times": [q.sent, q.arrived, q.gone],
                "blocked": q.blocked,
                "out": q.out_bytes > 0,
                "in": q.in_bytes > 0,
                "snapshot": q.snapshot,
            }
            for q in drawn.queues
        ],
    }


def _depths(timeline: Timeline) -> dict[int, int]:
    """How many channels lie before each vertex, on the longest way; vertices are in order."""
    depths = dict.fromkeys((lane.vertex for lane in timeline.lanes), 0)
    edges = {
        (timeline.lanes[channel.sender].vertex, lane.vertex)
        for lane in timeline.lanes
        for channel in lane.channels
        if channel.sender is not None
    }
    for source, target in sorted(edges):
        depths[target] = max(depths[target], depths[source] + 1)
    used = sorted(set(depths.values()))
    return {vertex: used.index(depth) for vertex, depth in depths.items()}


def _box(lane: Lane, place: int, x: float, y: float) -> Box:
    kinds = ("reached", "triggered", "sent")
    waits = next((event.at for event in lane.events if event.kind in kinds), 0.0)
    stages = (lane.at("sent"), lane.at("snapshot"), lane.at("whole"), lane.at("stored"))
    return Box(place, lane.name, x, y, waits, *stages)


def _queue(sender: Box, receiver: Box, lane: Lane, channel: ChannelTimes) -> Queue | None:
    if channel.sent is None or channel.arrived is None:
        return None
    arrived = max(channel.sent, channel.arrived)
    gone = channel.reached
    if gone is None:
        gone = max(arrived, lane.at("sent"))
    return Queue(
        sender.x + BOX_WIDTH,
        sender.y + BOX_HEIGHT / 2,
        receiver.x,
        receiver.y + BOX_HEIGHT / 2,
        channel.sent,
        arrived,
        max(arrived, gone),
        channel.blocked,
        channel.captured_out_bytes,
        channel.captured_in_bytes,
        lane.at("sent"),
    )
