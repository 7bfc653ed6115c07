"""What failed checkpoints have left on storage, and which of it nobody will ever refer to.

A snapshot may build on the file of a checkpoint that has failed. But once a subtask has stored a later
snapshot that does not refer to a file of its own, no snapshot of it will: what one refers to no more, no
later one does. An earlier one may, as long as its checkpoint is under way. Nobody builds on what was
stored of a declined snapshot, nor on in-flight data. Only files whose upload is over are named here,
those of snapshots that were acknowledged or declined: all others may still be written. A file that
several subtasks share goes when none of them needs its part; what becomes of its parts, becomes of all.
"""

from __future__ import annotations

from itertools import chain

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.families import files_of
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.part_paths import file_of


class Leftovers:
    """What the failed checkpoints of one generation have left."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._parts: dict[int, list[SnapshotAcknowledged]] = {}
        """The parts that have come of the checkpoints under way."""
        self._state: dict[SubtaskId, dict[str, int]] = {}
        """Parts of failed checkpoints that a subtask may still build on, and of which checkpoints."""
        self._unneeded: set[str] = set()
        """Files of which at least one part is not needed."""

    def on_part(self, part: SnapshotAcknowledged, *, failed: bool) -> None:
        """A subtask has stored its part of a checkpoint under way, or of one that has failed before."""
        needed = set() if part.snapshot is None else set(part.snapshot.paths())
        older = self._state.get(part.subtask, {})
        self._unneeded.update(map(file_of, older.keys() - needed))
        self._state[part.subtask] = {path: id for path, id in older.items() if path in needed}
        if failed:
            self._leave(part)
        else:
            self._parts.setdefault(part.checkpoint_id, []).append(part)

    def on_declined(self, part: SnapshotDeclined) -> None:
        """A subtask could not store its part, or not all of it."""
        key, subtask = ManifestKey(part.checkpoint_id, self._generation), part.subtask
        self._unneeded.add(CheckpointPaths.snapshot(key, subtask.vertex, subtask.index))
        self._unneeded.add(CheckpointPaths.in_flight(key, subtask.vertex, subtask.index))

    def on_completed(self, checkpoint_id: int) -> None:
        """The parts of a checkpoint are in its manifest; retention sees to all before it."""
        self._parts.pop(checkpoint_id, None)
        self._state = {
            subtask: {path: id for path, id in paths.items() if id > checkpoint_id}
            for subtask, paths in self._state.items()
        }

    def on_failed(self, checkpoint_id: int) -> None:
        """No manifest will refer to the parts of a checkpoint."""
        for part in self._parts.pop(checkpoint_id, []):
            self._leave(part)

    def take_unneeded(self) -> frozenset[str]:
        """What may be deleted by now, unless a manifest refers to it; each is given out once."""
        if not self._unneeded:
            return frozenset()
        needed = {file_of(path) for paths in self._state.values() for path in paths}
        needed.update(files_of(chain.from_iterable(self._parts.values())))
        unneeded = frozenset(self._unneeded - needed)
        self._unneeded -= unneeded
        return unneeded

    def _leave(self, part: SnapshotAcknowledged) -> None:
        if part.snapshot is not None and part.snapshot.path is not None:
            self._state.setdefault(part.subtask, {})[part.snapshot.path] = part.checkpoint_id
        if part.in_flight is not None and part.in_flight.stored.path is not None:
            self._unneeded.add(file_of(part.in_flight.stored.path))
