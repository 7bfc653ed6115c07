"""When subtasks take local snapshots: the end of the uncoordinated family at the subtask.

A plan for all of them, `LocalSnapshots`, makes a *pace* for each, which decides and does not act, as a
`BarrierHandler` does in the coordinated family: times, and how many bytes have come in and gone out, are
arguments. There is one for each start of a subtask. A mode of another package brings its own with a
`LocalSnapshots` of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minirt.protocol.ids import SubtaskId

_PHASE = 0.6180339887498949
"""Multiples of the golden ratio, without their whole part, lie apart as evenly as numbers can that are
asked for one after another."""


class LocalPace(Protocol):
    """What a subtask asks. Times are seconds of its monotonic clock.

    `moved_bytes` is what has come in and gone out of it since it started.
    """

    @property
    def due_at(self) -> float:
        """When the next snapshot is due by the clock; infinite if never."""

    def is_due(self, now: float, moved_bytes: int) -> bool:
        """Whether one should be taken now. Asked after each slice of work."""

    def is_forced_by(self, index: int) -> bool:
        """Whether one must be taken before anything behind a mark with this index is processed."""

    def next_index(self, forced_by: int | None) -> int:
        """The index of the snapshot that is taken now, which its marks carry. It is above that of the last
        one, and at least that of the mark that forces it, if any."""

    def on_taken(self, number: int, now: float, moved_bytes: int, forced_by: int | None) -> bool:
        """The snapshot of this number was taken. Returns whether it is *early*: then the coordinator makes
        a checkpoint as soon as it can, as the subtask may be waiting for one."""


@dataclass(frozen=True, slots=True)
class LocalSnapshots:
    """When a subtask takes snapshots by its own clock, and how much it may keep for them.

    One is due `interval_s` seconds after the last one, give or take the part `jitter` of that, and earlier
    where a quarter of `log_bytes` has come in or gone out since. A subtask takes no further input while
    `log_bytes` have since its snapshot on the line.

    With `stagger_s`, all subtasks keep to one beat, and each vertex is that much ahead of the one before
    it, sinks first: vertices are numbered in topological order. A receiver's snapshot is then a little
    older than those of its senders, so the snapshots of a beat fit together; `jitter` is part of
    `stagger_s`.
    """

    interval_s: float
    jitter: float
    log_bytes: int
    waiting_max: int = 8
    """How many snapshots of a subtask may be ahead of the line. From then on it waits for as many intervals
    before the next one, and twice as long before each further one."""
    induced: bool = False
    """Whether snapshots have an index, and marks with one may force others: see `communication_induced`."""
    stagger_s: float | None = None
    """By how much a vertex is ahead of the one before it; None: each subtask goes by itself."""

    def pace(self, subtask: SubtaskId, now: float, wall: float) -> LocalPace:
        """What says when a subtask takes its snapshots, from now on, with the time of the wall clock.

        A subclass may have another one.
        """
        return ClockPace(self, subtask, now, wall)

    @property
    def early_bytes(self) -> int:
        """After how much that came in or went out a snapshot is due."""
        return max(1, self.log_bytes // 4)

    def beat_at(self, now: float, wall: float) -> float:
        """A moment of the beat, by the monotonic clock of a process, which nobody else's agrees with.

        All subtasks have the beat at multiples of the interval since 1970. Where wall clocks are apart by
        more than the stagger, lines are older, and nothing else is lost.
        """
        return now - wall % self.interval_s

    def next_at(self, subtask: SubtaskId, number: int, last_at: float, beat_at: float) -> float:
        """When the snapshot of this number is due; without a beat, the first ones lie apart.

        By arithmetic in place of a random number, so that a run can be repeated.
        """
        drawn = (_PHASE * (1 + subtask.index + 31 * subtask.vertex + 7 * number)) % 1.0
        if self.stagger_s is not None:
            own_at = beat_at - self.stagger_s * subtask.vertex
            beats = (last_at - own_at + self.interval_s / 2) // self.interval_s + 1
            early_s = self.stagger_s * self.jitter * drawn
            return own_at + self.interval_s * beats - early_s
        if number == 1:
            return last_at + self.interval_s * (0.5 + drawn / 2)
        return last_at + self.interval_s * (1 + self.jitter * (2 * drawn - 1))


class ClockPace:
    """By the clock, and earlier where much has come in or gone out.

    A mark forces a snapshot if its index is above that of the last one. One that is forced leaves the clock
    as it is: the next one is due when it was due.
    """

    def __init__(self, plan: LocalSnapshots, subtask: SubtaskId, now: float, wall: float) -> None:
        self._plan = plan
        self._subtask = subtask
        self._beat_at = plan.beat_at(now, wall)
        self.due_at = plan.next_at(subtask, 1, now, self._beat_at)
        self._moved_bytes = 0
        """What had come in and gone out by the last snapshot."""
        self._index = 0

    def is_due(self, now: float, moved_bytes: int) -> bool:
        return now >= self.due_at or moved_bytes - self._moved_bytes >= self._plan.early_bytes

    def is_forced_by(self, index: int) -> bool:
        return index > self._index

    def next_index(self, forced_by: int | None) -> int:
        return self._index + 1 if forced_by is None else forced_by

    def on_taken(self, number: int, now: float, moved_bytes: int, forced_by: int | None) -> bool:
        self._index = self.next_index(forced_by)
        self._moved_bytes = moved_bytes
        if forced_by is not None:
            return False
        early = now < self.due_at
        self.due_at = self._plan.next_at(self._subtask, number + 1, now, self._beat_at)
        return early
