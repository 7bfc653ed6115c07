"""Checkpoint families: how the snapshots of single subtasks become the checkpoints of a job.

A family is a plug with three ends. *At the subtask*: what makes it take a snapshot. In the coordinated
family that are barriers, in the uncoordinated one a pace of its own (`LocalSnapshots.pace`). *At the
coordinator*: a `Family`, which says when there is anything to make a checkpoint of, what is ordered for
it, and what the parts are that come in; a mode brings its own (`HasFamily`). *What is restored*: by the
whole job an ordinary manifest, so whatever reads checkpoints knows of no family; by one worker that comes
back alone what `Family.fall_back` says.

Savepoints and the last checkpoint of a job are taken with barriers in every family: the mode says what a
subtask does about these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, runtime_checkable

from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.manifest import SinkHandles
from minirt.protocol.part_paths import file_of
from minirt.protocol.subtask_commands import SubtaskCommand, TriggerCheckpoint

_LOCAL_IDS = 1_000_000_000_000
"""No checkpoint of a job comes to that, and no local snapshot of a generation.

All lives of a subtask in a generation leave out half of it at most, see `LocalCut.next_life`.
"""


def local_id(generation: int, number: int) -> int:
    """The id of a local snapshot, as those of checkpoints are, but above all of these.

    So retention never takes its files for those of an old checkpoint. No subtask has one again in a later
    generation: sinks tell parts of their output apart by it.
    """
    return _LOCAL_IDS * generation + number


@runtime_checkable
class TakesLocalSnapshots(Protocol):
    """What a mode of the uncoordinated family has besides."""

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        """When subtasks take snapshots, at this interval between checkpoints."""


class Family(Protocol):
    """What the coordinator asks of a family, in one generation of a job."""

    @property
    def ready(self) -> bool:
        """Whether a periodic checkpoint may begin, once it is due."""

    @property
    def urgent(self) -> bool:
        """Whether one should begin before it is due, as subtasks may be waiting for it."""

    @property
    def declined_in_a_row(self) -> int:
        """How many snapshots of one subtask could not be stored since a checkpoint was complete."""

    def begin(self, generation: int, barrier: Barrier, *, pause: bool) -> SubtaskCommand:
        """What is ordered for a periodic checkpoint. With `pause`, its mode has sources wait."""

    def on_local(self, event: SnapshotAcknowledged | SnapshotDeclined, now: float) -> None:
        """A subtask has stored a snapshot of its own accord, or could not."""

    def on_part(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        """What a part of a checkpoint contributes to it. Handles that are left in it may be committed
        with any later checkpoint."""

    def on_declined(self, event: SnapshotDeclined) -> SnapshotDeclined:
        """The same for a part that could not be stored."""

    def to_leave(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        """What is left over of a part if its checkpoint fails."""

    def on_whole(self, checkpoint_id: int) -> list[SinkHandles]:
        """All parts of a checkpoint are there: the handles that it holds besides those in its parts."""

    def on_stored(self) -> None:
        """A checkpoint is complete."""

    def fall_back(
        self, subtasks: Collection[SubtaskId]
    ) -> Mapping[SubtaskId, SnapshotAcknowledged] | None:
        """The snapshots that these subtasks go on from while all others run; None if there are none.

        What they have done since is forgotten: nobody has seen it, or they do it again in the same way.
        """

    def take_unneeded(self) -> frozenset[str]:
        """Files that no checkpoint will refer to which is not complete by now; each is given out once."""


@runtime_checkable
class HasFamily(Protocol):
    """What a mode has besides whose checkpoints are not simply made of snapshots at barriers."""

    def family(self, subtasks: frozenset[SubtaskId]) -> Family:
        """A new one, for one generation of a job with these subtasks."""


class Coordinated:
    """Barriers from the sources on make the snapshots of all subtasks fit: each part is one snapshot."""

    ready = True
    urgent = False
    declined_in_a_row = 0

    def begin(self, generation: int, barrier: Barrier, *, pause: bool) -> SubtaskCommand:
        return TriggerCheckpoint(generation, barrier, pause)

    def on_local(self, event: SnapshotAcknowledged | SnapshotDeclined, now: float) -> None:
        """No subtask does."""

    def on_part(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        return event

    def on_declined(self, event: SnapshotDeclined) -> SnapshotDeclined:
        return event

    def to_leave(self, event: SnapshotAcknowledged) -> SnapshotAcknowledged:
        return event

    def on_whole(self, checkpoint_id: int) -> list[SinkHandles]:
        return []

    def on_stored(self) -> None:
        """Nothing is kept."""

    def fall_back(self, subtasks: Collection[SubtaskId]) -> None:
        """The others would have to go back to the same barriers."""

    def take_unneeded(self) -> frozenset[str]:
        return frozenset()


def family_of(mode: object, subtasks: frozenset[SubtaskId]) -> Family:
    """The family of the periodic checkpoints of a mode, at the beginning of a generation."""
    return mode.family(subtasks) if isinstance(mode, HasFamily) else Coordinated()


def has_barriers(order: SubtaskCommand) -> bool:
    """Whether a checkpoint is taken with barriers, by what a family has ordered for it."""
    return isinstance(order, TriggerCheckpoint)


def files_of(parts: Iterable[SnapshotAcknowledged]) -> Collection[str]:
    """The files that snapshots are in, and that they build on."""
    snapshots = [part.snapshot for part in parts if part.snapshot is not None]
    return {file_of(path) for snapshot in snapshots for path in snapshot.paths()}
