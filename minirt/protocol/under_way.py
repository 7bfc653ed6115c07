"""The checkpoints of a generation that are neither complete nor failed, and how many there may be.

Subtasks take, store and acknowledge their snapshots in the order of the triggers. So checkpoints complete
in that order, and one that a subtask has passed over never will.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import Manifest
from minirt.protocol.pending import PendingCheckpoint
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.savepoints import Savepoints


class CheckpointsUnderWay:
    """In the order of their triggers. To iterate over it gives those of this moment."""

    def __init__(self, settings: CheckpointSettings) -> None:
        self._settings = settings
        self._by_id: dict[int, PendingCheckpoint] = {}

    def __iter__(self) -> Iterator[PendingCheckpoint]:
        return iter([*self._by_id.values()])

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def oldest_id(self) -> int | None:
        return next(iter(self._by_id), None)

    @property
    def storing_savepoints(self) -> list[Manifest]:
        """The manifests that are being stored of those that a user has asked for."""
        return [
            one.manifest for one in self if one.manifest is not None and one.request is not None
        ]

    def has_room(self, mode: str) -> bool:
        """Whether a checkpoint of this mode may begin now."""
        if not self._by_id:
            return True
        modes = [mode, *(one.barrier.mode for one in self)]
        overlap = all(map(self._settings.overlaps, modes)) and not any(one.is_last for one in self)
        return overlap and len(self) < self._settings.max_concurrent

    def has_room_for(self, request: SavepointRequest, active: Savepoints) -> bool:
        """Whether a savepoint may begin now. Those that do not overlap are answered one after the other."""
        if request.afterwards is not Afterwards.GO_ON or active.ends_job:
            return not self._by_id and not active.is_busy
        answered = not active.is_busy or self._settings.overlaps(request.mode)
        return answered and self.has_room(request.mode)

    def next_of(self, requests: Iterable[SavepointRequest]) -> SavepointRequest | None:
        """The first of these that no checkpoint is being taken for."""
        taken = [one.request for one in self]
        return next((request for request in requests if request not in taken), None)

    def add(self, pending: PendingCheckpoint) -> None:
        """It has been triggered, later than all others."""
        self._by_id[pending.checkpoint_id] = pending

    def pending(self, checkpoint_id: int) -> PendingCheckpoint | None:
        """The one of this id, if parts of it are missing."""
        found = self._by_id.get(checkpoint_id)
        return None if found is None or found.manifest is not None else found

    def passed_over(self, checkpoint_id: int, subtask: SubtaskId) -> list[PendingCheckpoint]:
        """Those older than this one, to which the subtask has come without its part of them."""
        return [one for one in self if one.checkpoint_id < checkpoint_id and subtask in one.awaited]

    def take_stored(self, checkpoint_id: int) -> PendingCheckpoint | None:
        """The one of this id, if its manifest was being stored: it is not under way any more."""
        found = self._by_id.get(checkpoint_id)
        if found is None or found.manifest is None:
            return None
        return self._by_id.pop(checkpoint_id)

    def give_up(self, pending: PendingCheckpoint) -> tuple[int, ...]:
        """It is not under way any more; which older ones still are."""
        del self._by_id[pending.checkpoint_id]
        return tuple(id for id in self._by_id if id < pending.checkpoint_id)

    def give_up_all(self) -> list[PendingCheckpoint]:
        """The subtasks are gone: those whose parts will not come. A manifest may still be stored."""
        found = [one for one in self if one.manifest is None]
        self._by_id.clear()
        return found
