"""Where everything of a picture goes: a timeline becomes areas, lines and labels, in pixels.

A lane has a bar for the subtask, and below it thin rows for the channels whose barrier came last. Operators
with many subtasks show those that the checkpoint waited for; the others are there to be unfolded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from minirt.pictures.critical_path import Step, critical_path
from minirt.pictures.timeline import ChannelTimes, Lane, Timeline
from minirt.pictures.words import duration, size, step_in_words

LABEL_WIDTH = 230
PLOT_WIDTH = 900
MARGIN = 16
AXIS_HEIGHT = 28
GROUP_HEIGHT = 20
BAR_HEIGHT = 14
ROW_HEIGHT = 7
LANE_GAP = 8

LOCAL_WIDTH = 3
"""Of the moment in which a local snapshot was taken."""
CHANNEL_ROWS_MAX = 4
LINES_MAX = 1500
"""Barriers that are drawn; each subtask has an equal share of them."""
FOLDED_FROM = 12
"""An operator with more subtasks begins folded."""
UNFOLDED_LANES = 3
"""How many subtasks of a folded operator are shown, apart from those on the critical path."""

AreaKind = Literal["sync", "waiting", "async", "queue", "blocked", "capture", "path"]


@dataclass(frozen=True, slots=True)
class Area:
    """A stretch of time in a lane. `y` counts from the top of its lane."""

    kind: AreaKind
    lane: int
    x: float
    width: float
    y: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A barrier between two lanes, from its sender's output queue to the receiver's input queue.

    `from_y` and `to_y` count from the tops of the lanes.
    """

    from_lane: int
    to_lane: int
    x1: float
    x2: float
    from_y: float
    to_y: float
    on_path: bool
    title: str
    times: tuple[float, float, float]
    """When the barrier was sent, when it arrived, and when it was gone from the input queue."""


@dataclass(frozen=True, slots=True)
class LaneBox:
    """The place of a lane if all are unfolded. `folded`: not shown unless its operator is unfolded."""

    lane: int
    name: str
    group: int
    y: float
    height: float
    on_path: bool
    folded: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The lanes of one operator chain."""

    name: str
    y: float
    lanes: int
    folded: int
    """How many of them are not shown at first."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture, in pixels from the top left corner."""

    width: float
    height: float
    scale: float
    """Pixels a second."""
    lanes: tuple[LaneBox, ...]
    groups: tuple[Group, ...]
    areas: tuple[Area, ...]
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    begun_x: float | None
    """Where it was begun, if the axis begins before."""
    completed_x: float
    committed_x: float | None
    path: tuple[Step, ...]

    def x(self, seconds: float) -> float:
        """Where a time is."""
        return LABEL_WIDTH + seconds * self.scale


def lay_out(timeline: Timeline, *, end: float | None = None) -> Layout:
    """The picture of a checkpoint, on an axis up to `end`, by default what there is to draw."""
    path = critical_path(timeline)
    end = max(timeline.end, end or 0.0, 1e-6)
    scale = PLOT_WIDTH / end
    on_path = {step.lane for step in path} | {step.sender for step in path}
    lanes, groups, height = _places(timeline, {lane for lane in on_path if lane is not None})
    areas: list[Area] = []
    lines: list[Line] = []
    lines_each = max(2, LINES_MAX // max(1, len(timeline.lanes)))
    for place, lane in enumerate(timeline.lanes):
        areas += _bar(place, lane, scale)
        rows = {
            channel.channel: row for row, channel in enumerate(shown_channels(lane, path, place))
        }
        for channel in lane.channels:
            if channel.channel in rows:
                areas += _row(place, lane, channel, rows[channel.channel], scale)
        for channel in drawn_channels(lane, path, place, lines_each):
            line = _line(timeline, place, channel, rows.get(channel.channel), path, scale)
            lines += [] if line is None else [line]
    areas += _path_areas(timeline, path, scale)
    committed = timeline.committed
    return Layout(
        LABEL_WIDTH + PLOT_WIDTH + MARGIN,
        height + MARGIN,
        scale,
        lanes,
        groups,
        tuple(areas),
        tuple(lines),
        tuple(Tick(LABEL_WIDTH + at * scale, duration(at) if at else "0") for at in ticks(end)),
        LABEL_WIDTH + timeline.triggered * scale if timeline.is_line else None,
        LABEL_WIDTH + timeline.completed * scale,
        None if committed is None else LABEL_WIDTH + committed * scale,
        path,
    )


def folded(layout: Layout) -> Layout:
    """Without the lanes that are not shown at first, and the barriers from and to them."""
    height, boxes, groups = float(AXIS_HEIGHT), [], []
    for number, group in enumerate(layout.groups):
        groups.append(replace(group, y=height))
        height += GROUP_HEIGHT
        for box in layout.lanes:
            if box.group == number and not box.folded:
                boxes.append(replace(box, y=height))
                height += box.height
    shown = {box.lane for box in boxes}
    return replace(
        layout,
        height=height + MARGIN,
        lanes=tuple(boxes),
        groups=tuple(groups),
        areas=tuple(area for area in layout.areas if area.lane in shown),
        lines=tuple(line for line in layout.lines if {line.from_lane, line.to_lane} <= shown),
    )


def ticks(end: float) -> list[float]:
    """About six round times from 0 on."""
    step = 10.0**-9
    while end / step > 8:
        for factor in (2, 2.5, 2):  # 1, 2, 5, 10
            step *= factor
            if end / step <= 8:
                break
    return [round(i * step, 12) for i in range(int(end / step) + 1)]


def lane_height(lane: Lane) -> float:
    """With its rows."""
    return BAR_HEIGHT + ROW_HEIGHT * min(CHANNEL_ROWS_MAX, len(lane.channels)) + LANE_GAP


def shown_channels(lane: Lane, path: Sequence[Step], place: int) -> list[ChannelTimes]:
    """The channels that have a row: those that the checkpoint waited for, and the last ones."""
    return sorted(drawn_channels(lane, path, place, CHANNEL_ROWS_MAX), key=lambda c: c.channel)


def drawn_channels(lane: Lane, path: Sequence[Step], place: int, count: int) -> list[ChannelTimes]:
    """At most so many, the last ones first."""
    waited = {step.sender for step in path if step.lane == place}
    order = sorted(lane.channels, key=lambda c: (c.sender not in waited, -c.last))
    return order[:count]


def _places(
    timeline: Timeline, on_path: set[int]
) -> tuple[tuple[LaneBox, ...], tuple[Group, ...], float]:
    y = float(AXIS_HEIGHT)
    boxes: list[LaneBox] = []
    groups: list[Group] = []
    numbered = enumerate(timeline.lanes)
    for number, (_, group) in enumerate(groupby(numbered, key=lambda one: one[1].vertex)):
        members = list(group)
        shown = _shown(members, on_path)
        name = members[0][1].name.rpartition(" (")[0] or members[0][1].name
        groups.append(Group(name, y, len(members), len(members) - len(shown)))
        y += GROUP_HEIGHT
        for place, lane in members:
            height = lane_height(lane)
            folded = place not in shown
            boxes.append(LaneBox(place, lane.name, number, y, height, place in on_path, folded))
            y += height
    return tuple(boxes), tuple(groups), y


def _shown(members: Sequence[tuple[int, Lane]], on_path: set[int]) -> set[int]:
    if len(members) <= FOLDED_FROM:
        return {place for place, _ in members}
    slowest = sorted(members, key=lambda one: -one[1].acknowledged)[:UNFOLDED_LANES]
    return {place for place, _ in slowest} | {place for place, _ in members if place in on_path}


def _area(
    kind: AreaKind,
    lane: int,
    span: tuple[float, float],
    y: float,
    height: float,
    title: str,
    scale: float,
) -> list[Area]:
    start, end = span
    if end <= start:
        return []
    x, width = LABEL_WIDTH + start * scale, max(0.5, (end - start) * scale)
    return [Area(kind, lane, x, width, y, height, f"{title}: {duration(end - start)}")]


def _bar(place: int, lane: Lane, scale: float) -> list[Area]:
    """The stages of the subtask's own part."""
    if lane.local is not None:
        return _bar_of_line(place, lane, scale)
    sent, snapshot, whole = lane.at("sent"), lane.at("snapshot"), lane.at("whole")
    upload, stored = lane.at("upload"), lane.at("stored")
    held = f" with {size(lane.captured_bytes)} in flight" if lane.captured_bytes else ""
    first = next((e.at for e in lane.events if e.kind in ("reached", "triggered")), sent)
    parts: list[tuple[AreaKind, float, float, str]] = [
        ("waiting", first, sent, "waits for the other barriers"),
        ("sync", sent, snapshot, "synchronous part"),
        ("waiting", snapshot, upload, "waits for barriers, or for the uploader"),
        ("async", upload, stored, f"asynchronous part{held}"),
    ]
    if whole > snapshot and lane.captured_bytes:
        parts.append(
            ("capture", snapshot, whole, f"captures what arrives, {size(lane.captured_bytes)}")
        )
    bars: list[Area] = []
    for kind, start, end, title in parts:
        title = f"{lane.name}: {title}"
        bars += _area(kind, place, (start, end), 0, BAR_HEIGHT, title, scale)
    return bars


def _bar_of_line(place: int, lane: Lane, scale: float) -> list[Area]:
    """Of a checkpoint without barriers: the snapshot was there before."""
    taken, upload, stored = lane.at("snapshot"), lane.at("upload"), lane.at("stored")
    held = f" with {size(lane.captured_bytes)} in transit" if lane.captured_bytes else ""
    name = f"{lane.name}: local snapshot {lane.local}"
    x = LABEL_WIDTH + taken * scale
    waits = f"{name}, until a checkpoint is made of it"
    return [
        *_area("waiting", place, (taken, upload), 0, BAR_HEIGHT, waits, scale),
        *_area("async", place, (upload, stored), 0, BAR_HEIGHT, f"{name}, stored{held}", scale),
        Area("sync", place, x, LOCAL_WIDTH, 0, BAR_HEIGHT, f"{name} is taken"),
    ]


def _row(place: int, lane: Lane, channel: ChannelTimes, row: int, scale: float) -> list[Area]:
    """How long the barrier was in the input queue, and the channel blocked."""
    y, height = BAR_HEIGHT + row * ROW_HEIGHT + 1, ROW_HEIGHT - 2
    sent = lane.at("sent")
    if lane.local is not None:
        if not channel.captured_in_bytes or channel.arrived is None:
            return []
        title = f"{channel.link}: {size(channel.captured_in_bytes)} in transit, up to the mark"
        return _area("capture", place, (sent, channel.arrived), y, height, title, scale)
    areas: list[Area] = []
    if channel.arrived is not None:
        until = sent if channel.reached is None else channel.reached
        title = f"{channel.link}: its barrier is in the input queue"
        areas += _area("queue", place, (channel.arrived, until), y, height, title, scale)
        if channel.captured_in_bytes:
            captured = f"{channel.link}: {size(channel.captured_in_bytes)} captured"
            span = (min(sent, channel.arrived), max(sent, channel.arrived))
            span = span if span[1] > span[0] else (sent, lane.at("snapshot"))
            areas += _area("capture", place, span, y, height, captured, scale)
    if channel.blocked is not None:
        title = f"{channel.link}: blocked"
        areas += _area("blocked", place, channel.blocked, y, height, title, scale)
    return areas


def _line(
    timeline: Timeline,
    place: int,
    channel: ChannelTimes,
    row: int | None,
    path: Sequence[Step],
    scale: float,
) -> Line | None:
    if channel.sender is None or channel.sent is None or channel.arrived is None:
        return None
    sender, receiver = timeline.lanes[channel.sender].name, timeline.lanes[place].name
    arrived = max(channel.sent, channel.arrived)
    gone = timeline.lanes[place].at("sent") if channel.reached is None else channel.reached
    out = channel.captured_out_bytes
    overtook = f", past {size(out)}" if out else ""
    on_path = any(
        step.kind in ("output queue", "last mark")
        and (step.lane, step.sender) == (place, channel.sender)
        for step in path
    )
    to_y = BAR_HEIGHT / 2 if row is None else BAR_HEIGHT + (row + 0.5) * ROW_HEIGHT
    return Line(
        channel.sender,
        place,
        LABEL_WIDTH + channel.sent * scale,
        LABEL_WIDTH + arrived * scale,
        BAR_HEIGHT / 2,
        to_y,
        on_path,
        f"{sender} to {receiver}: {duration(arrived - channel.sent)}{overtook}",
        (channel.sent, arrived, max(arrived, gone)),
    )


def _path_areas(timeline: Timeline, path: Sequence[Step], scale: float) -> list[Area]:
    """The steps of the critical path that are spent in a lane, below its bar."""
    areas: list[Area] = []
    for step in path:
        if step.lane is None or step.kind == "output queue":
            continue
        title = f"critical path: {step_in_words(timeline, step)}"
        x, width = LABEL_WIDTH + step.start * scale, max(1.0, step.duration * scale)
        areas.append(Area("path", step.lane, x, width, BAR_HEIGHT - 3, 3, title))
    return areas
