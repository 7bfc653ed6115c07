"""The local snapshots of one subtask: when it takes them, and what it keeps until they are on a line.

A receiver keeps what has come through its channels since its snapshot on the line: the frames themselves,
as they were when they arrived, so nothing is counted or copied for each record. On demand of the
coordinator it stores the *slices* of them that are in transit on a line: of each channel, from where its
own snapshot was taken up to the mark of its sender's. Marks overtake what waits in output queues, and
that is part of the sender's snapshot. So a mark is as quick as a message, however full the queues are,
and a subtask that waits for room in its log always hears of a line that gives it some.

What it keeps is bounded by `LocalSnapshots.log_bytes`; it counts all that has come in and gone out since
its snapshot on the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, inf

from minirt.clock import Clock
from minirt.errors import ProtocolError
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.lines import LocalCut
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.restart_commands import FallenBack
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.runtime.channels.frames import Frame, Kind, index_of, mark_of
from minirt.runtime.channels.numbered import Repetition, elements_of
from minirt.runtime.channels.output import Overtaken
from minirt.runtime.input.in_flight import Capture
from minirt.runtime.input.input import ChannelFrames, Input


@dataclass(slots=True)
class ChannelLog:
    """What has come through one channel, those of control included, but for barriers and marks, which
    do not wait for their turn. Places are counted from 0 on."""

    arrived: int = 0
    _frames: deque[Frame] = field(default_factory=deque)
    _marks: dict[int, float] = field(default_factory=lambda: {0: -1})
    """The places of marks by their numbers, between two frames. That of what the generation began with
    lies before all."""

    def add(self, frame: Frame) -> None:
        if frame.kind == Kind.MARK:
            self._marks[mark_of(frame)] = self.arrived - 0.5
            return
        if frame.kind == Kind.BARRIER:
            return
        self.arrived += 1
        self._frames.append(frame)

    def need(self, taken: int) -> int:
        """The first snapshot of the sender whose mark lies behind all of the first `taken` frames."""
        passed = sorted((place, number) for number, place in self._marks.items() if place < taken)
        if not passed:
            return min(self._marks)
        need = passed[-1][1] + 1
        while passed and passed[-1][0] >= taken - 1:
            place, need = passed.pop()
            taken = ceil(place)
        return need

    def has_mark(self, number: int) -> bool:
        return number in self._marks

    def slice(self, start: int, number: int) -> list[Frame]:
        """The data from a place up to a mark that has come."""
        first = self.arrived - len(self._frames)
        end = ceil(self._marks[number])
        frames = islice(self._frames, max(0, start - first), max(0, end - first))
        return [frame for frame in frames if frame.is_data]

    def move_mark(self, number: int, elements: int) -> None:
        """Have this mark ahead of the last so many elements. Those of later snapshots count no more.

        Raises ProtocolError if the mark would lie within a frame, or ahead of what is known.
        """
        place = self.arrived
        for frame in reversed(self._frames):
            if elements <= 0:
                break
            place -= 1
            elements -= elements_of(frame)
        if elements:
            raise ProtocolError(
                f"the mark of snapshot {number} does not lie between two frames that are known"
            )
        self._marks = {n: at for n, at in self._marks.items() if n < number}
        self._marks[number] = place - 0.5

    def forget(self, start: int, number: int) -> None:
        """Nobody asks for what lies before this place, or before this mark once it has come."""
        while self._frames and self.arrived - len(self._frames) < start:
            self._frames.popleft()
        oldest = max(n for n in self._marks if n <= number)
        self._marks = {n: at for n, at in self._marks.items() if n >= oldest}


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    """What is kept of a snapshot, besides the state, until the line is ahead of it."""

    cut: LocalCut
    starts: Sequence[int]
    """By channel: how many of its frames were taken from the queue."""
    taken: Sequence[ChannelFrames]
    """What was taken from channels and was not processed."""
    overtaken: Sequence[Overtaken]
    """What its marks have overtaken in the output queues."""
    watermarks: SubtaskWatermarks
    offsets: SourceOffsets | None
    taken_at: float
    moved_bytes: int
    """What had come in and gone out."""
    declined: bool = False
    """It could not be stored, so no line is made of it. It only tells how much the log may hold."""


@dataclass(frozen=True, slots=True)
class WantedLine:
    """The line that a checkpoint is made of: the number of the snapshot of each subtask."""

    checkpoint_id: int
    numbers: Mapping[SubtaskId, int]


@dataclass(frozen=True, slots=True)
class PartOfLine:
    """How a subtask came to its part of a line, by the monotonic clock of its process."""

    number: int
    """Of its snapshot on the line."""
    taken_at: float
    ordered_at: float
    """When the coordinator's order came to store the slices."""
    marks_at: Sequence[float | None]
    """By channel, when the mark of the sender's snapshot on the line came; None for one that lies before
    all that came."""


class LocalLog:
    """What one subtask knows of its local snapshots and keeps for them."""

    def __init__(
        self,
        id: SubtaskId,
        input: Input,
        metrics: SubtaskMetrics,
        plan: LocalSnapshots,
        clock: Clock,
        fallen_back: FallenBack | None = None,
        repetition: Repetition | None = None,
    ) -> None:
        self._id = id
        self._input = input
        self._metrics = metrics
        self._plan = plan
        self._repetition = repetition
        self._senders = [SubtaskId(input.links[o.link].source, o.sender) for o in input.origins]
        self._channels = [ChannelLog() for _ in input.origins]
        self._snapshots: deque[LocalSnapshot] = deque()
        """That on the line, and all behind it."""
        self.number = 0
        """Of the last snapshot."""
        self._needs_least: Mapping[SubtaskId, int] = {}
        """What a snapshot needs at least: the marks that show it may have come in an earlier life."""
        now = clock.monotonic()
        if fallen_back is not None:
            self._begin_at(fallen_back, now)
        self._pace = plan.pace(id, now, clock.now())
        self._rest_until = -inf
        """Records have this time to themselves: as much as the last snapshot has held them up."""
        self._wanted: WantedLine | None = None
        self._monotonic = clock.monotonic
        self._wanted_at = now
        self._marks_at: list[dict[int, float]] = [{} for _ in self._channels]
        """By channel and number, when marks have come that this line or a later one may need."""

    @property
    def may_take(self) -> bool:
        """Whether a snapshot may be taken once it is due, as far as that is known here."""
        return self._input.may_capture_restored and not self._repeats

    @property
    def _room_at(self) -> float:
        """From when on there may be one more ahead of the line.

        The line may not be able to move before there is: where it must be ahead of a checkpoint with
        barriers, or where a receiver took none while this subtask took all that it may. So beyond the
        limit snapshots become rarer and rarer, but never end.
        """
        waiting = [snapshot for snapshot in self._snapshots if not snapshot.declined]
        beyond = len(waiting) - self._plan.waiting_max
        if beyond <= 0:
            return -inf
        usual_s = self._plan.waiting_max * self._plan.interval_s
        return waiting[-1].taken_at + usual_s * 2.0 ** (beyond - 1)

    @property
    def _repeats(self) -> bool:
        """Whether others have seen what the subtask does now: a snapshot would lie ahead of them."""
        return self._repetition is not None and not self._repetition.is_over

    @property
    def due_at(self) -> float:
        """When the next snapshot is due by the clock."""
        return max(self._pace.due_at, self._may_at)

    def is_due(self, now: float) -> bool:
        return self._pace.is_due(now, self._now_moved) and now >= self._may_at

    def on_taken(self, began_at: float, taken_at: float) -> None:
        """A snapshot has held records up from the one time to the other."""
        self._rest_until = taken_at + (taken_at - began_at)

    @property
    def _may_at(self) -> float:
        """From when on there may be one more."""
        return max(self._room_at, self._rest_until)

    @property
    def full(self) -> bool:
        """Whether the subtask should take no further input until the line moves."""
        if not self._snapshots or self._repeats:
            return False  # The first one is due by the clock, whatever has come in by then.
        return self._now_moved - self._snapshots[0].moved_bytes >= self._plan.log_bytes

    def next_index(self, forced_by: Frame | None) -> int | None:
        """That of a snapshot that is taken now; None if snapshots have none."""
        return self._pace.next_index(_index_of(forced_by)) if self._plan.induced else None

    def is_forced_by(self, mark: Frame) -> bool:
        """Whether a snapshot must be taken before anything behind a mark is processed."""
        forced = self._plan.induced and self._pace.is_forced_by(index_of(mark))
        return forced and self._monotonic() >= self._may_at

    @property
    def _now_moved(self) -> int:
        return self._metrics.bytes_in + self._metrics.bytes_out

    def on_frame(self, channel: int, frame: Frame) -> None:
        """A frame was put into the queue of a channel."""
        self._channels[channel].add(frame)

    def on_mark(self, channel: int, mark: Frame) -> None:
        """The frame was one."""
        self._marks_at[channel][mark_of(mark)] = self._monotonic()

    def add(
        self,
        overtaken: Sequence[Overtaken],
        watermarks: SubtaskWatermarks,
        offsets: SourceOffsets | None,
        now: float,
        forced_by: Frame | None = None,
    ) -> LocalCut:
        """A snapshot of the next number is taken, and its marks are on their way."""
        self.number += 1
        starts = [
            log.arrived - self._input.queued_frames(channel)
            for channel, log in enumerate(self._channels)
        ]
        needs = dict(self._needs_least)
        for sender, log, start in zip(self._senders, self._channels, starts, strict=True):
            needs[sender] = max(needs.get(sender, 0), log.need(start))
        early = self._pace.on_taken(self.number, now, self._now_moved, _index_of(forced_by))
        sent = () if self._repetition is None else self._repetition.sent
        cut = LocalCut(
            *(self.number, tuple(sorted(needs.items())), early, forced_by is not None),
            *(self._processed(), sent),
            ended=self._repetition is not None and self._repetition.ended,
        )
        taken = tuple(self._input.taken())
        snapshot = LocalSnapshot(
            *(cut, starts, taken, overtaken, watermarks, offsets, now, self._now_moved)
        )
        self._snapshots.append(snapshot)
        self._input.on_snapshot(self.number)
        return cut

    def _processed(self) -> tuple[tuple[ChannelId, int], ...] | None:
        records = self._input.processed_records()
        if records is None:
            return None
        links = (self._input.links[origin.link] for origin in self._input.origins)
        channels = [
            ChannelId(link.id, origin.sender, self._id.index)
            for link, origin in zip(links, self._input.origins, strict=True)
        ]
        return tuple(zip(channels, records, strict=True))

    def _begin_at(self, at: FallenBack, now: float) -> None:
        """Know the snapshot that this life begins at: all that comes in from here on lies behind it."""
        self.number = at.cut.next_life(at.life)
        self._needs_least = dict(at.cut.needs)
        starts = [0] * len(self._channels)
        self._snapshots.append(
            LocalSnapshot(at.cut, starts, (), (), at.watermarks, None, now, self._now_moved)
        )

    def on_sender_back(self, channel: int, number: int, elements: int, had: int) -> None:
        """The sender has fallen back to the snapshot of this number, which lies behind so many elements of
        the channel, `had` of which have come. It takes none again that it took since, and sends no mark
        for this one."""
        sender = self._senders[channel]
        if self._snapshots:
            needs = dict(self._snapshots[-1].cut.needs)
            self._needs_least = {**self._needs_least, sender: needs.get(sender, 0)}
        self._channels[channel].move_mark(number, had - elements)

    def on_declined(self, number: int) -> None:
        """A snapshot could not be stored: others may be taken in its place."""
        for place, snapshot in enumerate(self._snapshots):
            if snapshot.cut.number == number:
                self._snapshots[place] = replace(snapshot, taken=(), overtaken=(), declined=True)

    def want(self, line: WantedLine) -> None:
        """The coordinator asks for the slices of a line. What lies before it may go."""
        self._wanted, self._wanted_at = line, self._monotonic()
        own = line.numbers[self._id]
        while self._snapshots and self._snapshots[0].cut.number < own:
            self._snapshots.popleft()
        if not self._snapshots or self._snapshots[0].cut.number != own:
            raise ProtocolError(
                f"{self._id} is asked for its local snapshot {own} and has it no more"
            )
        self._input.on_line(own)
        starts = self._snapshots[0].starts
        for sender, log, start in zip(self._senders, self._channels, starts, strict=True):
            log.forget(start, line.numbers[sender])
        self._marks_at = [
            {number: at for number, at in marks.items() if number >= line.numbers[sender]}
            for sender, marks in zip(self._senders, self._marks_at, strict=True)
        ]

    def give_up(self, checkpoint_id: int) -> None:
        """Nobody wants the slices of checkpoints up to this one any more."""
        if self._wanted is not None and self._wanted.checkpoint_id <= checkpoint_id:
            self._wanted = None

    def slices(self) -> tuple[WantedLine, LocalSnapshot, Capture] | None:
        """What a line is waiting for, once all of it is there; only once for each."""
        wanted = self._wanted
        if wanted is None or not self._has_marks(wanted.numbers):
            return None
        self._wanted = None
        snapshot = self._snapshots[0]
        capture = Capture(snapshot.overtaken)
        for origin, frames in snapshot.taken:
            capture.add(origin, frames)
        for channel, log in enumerate(self._channels):
            number = wanted.numbers[self._senders[channel]]
            capture.add(self._input.origins[channel], log.slice(snapshot.starts[channel], number))
        return wanted, snapshot, capture

    def part_of(self, line: WantedLine) -> PartOfLine:
        """How this subtask came to its part of a line whose slices it has given out."""
        snapshot = self._snapshots[0]
        marks = zip(self._senders, self._marks_at, strict=True)
        marks_at = [came.get(line.numbers[sender]) for sender, came in marks]
        return PartOfLine(snapshot.cut.number, snapshot.taken_at, self._wanted_at, marks_at)

    def _has_marks(self, numbers: Mapping[SubtaskId, int]) -> bool:
        return all(
            log.has_mark(numbers[sender])
            for sender, log in zip(self._senders, self._channels, strict=True)
        )


def _index_of(mark: Frame | None) -> int | None:
    return None if mark is None else index_of(mark)
