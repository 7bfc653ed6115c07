"""A checkpoint family of its own with all three ends: snapshots by work that was done, not by the clock.

minirt conformance examples.paced_mode:Paced

A failure makes a job do again what it has done since its snapshots. Where load comes in bursts, a clock
lets the busiest subtasks do much between two snapshots, and takes others of subtasks that have done
nothing. Here each subtask takes one whenever so many bytes have come in and gone out, and by the clock only
now and then.

* At the subtask, `WorkPace`: when a snapshot is due, and which marks of others force one.
* At the coordinator, `PacedFamily`: when a checkpoint is made of the snapshots.
* What is restored: the whole job goes back to the newest line of snapshots that fit together, as in
  `uncoordinated`. A worker that comes back alone goes back to its own snapshots on it, but not again and
  again: if it dies behind the same line so often, it may be for the order in which records came, so all go
  back, and that order is another one.

Source of the forced snapshots: Y.-M. Wang and W. K. Fuchs, "Lazy Checkpoint Coordination for Bounding
Rollback Propagation", 1993, where an index that is so far ahead forces one.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from minirt.errors import ConfigurationError
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import Barrier
from minirt.protocol.families import Family
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.local_pace import ClockPace, LocalPace, LocalSnapshots
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.protocol.uncoordinated import Uncoordinated as Lines
from minirt.testing.conformance import check_mode

_QUIET_INTERVALS = 4
"""A subtask that does little takes a snapshot every so many intervals between checkpoints."""
_AHEAD = 2
"""So many snapshots of one subtask since the last line are enough for another one."""


class WorkPace(ClockPace):
    """The end at one subtask."""

    def __init__(self, plan: "WorkSnapshots", subtask: SubtaskId, now: float, wall: float) -> None:
        super().__init__(plan, subtask, now, wall)
        self._every_bytes, self._lead = plan.every_bytes, plan.lead
        self._last_bytes = 0
        """What had come in and gone out by the last snapshot."""
        self._last_index = 0

    def is_due(self, now: float, moved_bytes: int) -> bool:
        return now >= self.due_at or moved_bytes - self._last_bytes >= self._every_bytes

    def is_forced_by(self, index: int) -> bool:
        """So a subtask that does little is no further behind, and its senders' snapshots make lines."""
        return index >= self._last_index + self._lead

    def on_taken(self, number: int, now: float, moved_bytes: int, forced_by: int | None) -> bool:
        """None is early: the coordinator counts them, see `PacedFamily`."""
        self._last_index = self.next_index(forced_by)
        self._last_bytes = moved_bytes
        super().on_taken(number, now, moved_bytes, forced_by)
        return False


@dataclass(frozen=True)
class WorkSnapshots(LocalSnapshots):
    """What each subtask goes by."""

    every_bytes: int = 0
    lead: int = 1

    def pace(self, subtask: SubtaskId, now: float, wall: float) -> LocalPace:
        return WorkPace(self, subtask, now, wall)


class PacedFamily(Lines):
    """The end at the coordinator, and what is restored."""

    def __init__(self, subtasks: Collection[SubtaskId], comebacks: int) -> None:
        super().__init__(subtasks)
        self._most_comebacks = comebacks
        self._comebacks: Counter[SubtaskId] = Counter()
        """Of each subtask, behind the line that was ordered last."""
        self._new: Counter[SubtaskId] = Counter()
        """The snapshots of each subtask since then."""
        self._half = (len(subtasks) + 1) // 2

    @property
    def ready(self) -> bool:
        """A line that has moved in few subtasks is hardly worth its manifest."""
        return super().ready and (self.urgent or len(self._new) >= self._half)

    def on_local(self, event: SnapshotAcknowledged | SnapshotDeclined, now: float) -> None:
        super().on_local(event, now)
        self._new[event.subtask] += 1
        self.urgent |= self._new[event.subtask] >= _AHEAD

    def begin(self, generation: int, barrier: Barrier, *, pause: bool) -> SubtaskCommand:
        self._new.clear()
        self._comebacks.clear()
        return super().begin(generation, barrier, pause=pause)

    def fall_back(
        self, subtasks: Collection[SubtaskId]
    ) -> Mapping[SubtaskId, SnapshotAcknowledged] | None:
        if any(self._comebacks[subtask] >= self._most_comebacks for subtask in subtasks):
            return None
        self._comebacks.update(subtasks)
        return super().fall_back(subtasks)


@dataclass(frozen=True)
class Paced(Uncoordinated):
    """The mode. Barriers of savepoints are as in `unaligned`; all options of `uncoordinated` are there."""

    every_bytes: int = 4 * 1024 * 1024
    """A subtask takes a snapshot when so much has come in and gone out. At most an eighth of `log_bytes`,
    so that a line comes before a subtask has to wait for room."""
    lead: int = 2
    """A mark that is so many snapshots ahead forces one."""
    comebacks: int = 2
    """So often a worker may come back alone behind one line."""

    name: ClassVar[str] = "paced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.every_bytes <= self.log_bytes // 8:
            raise ConfigurationError(
                f"{self.name}: every_bytes must be from 1 to {self.log_bytes // 8}, an eighth of "
                f"log_bytes, got {self.every_bytes}"
            )
        for option in ("lead", "comebacks"):
            if getattr(self, option) < 1:
                raise ConfigurationError(
                    f"{self.name}: {option} must be at least 1, got {getattr(self, option)}"
                )

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        by_clock = super().local_snapshots(interval_s)
        return WorkSnapshots(
            interval_s=_QUIET_INTERVALS * interval_s,
            jitter=self.jitter,
            log_bytes=self.log_bytes,
            induced=True,
            stagger_s=by_clock.stagger_s,
            every_bytes=self.every_bytes,
            lead=self.lead,
        )

    def family(self, subtasks: frozenset[SubtaskId]) -> Family:
        return PacedFamily(subtasks, self.comebacks)


if __name__ == "__main__":
    tally = check_mode(Paced(every_bytes=256), runs=8)
    print(f"{tally.runs} runs: {tally.lost} records lost, {tally.duplicated} duplicated")
