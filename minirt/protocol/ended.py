"""Which checkpoints are over, as subtasks and workers remember it: a few numbers for any count of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class EndedCheckpoints:
    """All up to an id, but for some of them."""

    up_to: int = 0
    spared: frozenset[int] = frozenset()
    """Those that are not over although a later one is."""

    def __contains__(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self.up_to and checkpoint_id not in self.spared

    def add(self, checkpoint_id: int, spared: Collection[int] = ()) -> None:
        """This one and all older ones are over, but for those `spared`; what was over stays so."""
        going_on = {id for id in spared if id < checkpoint_id and id not in self}
        self.spared = frozenset(id for id in self.spared if id > checkpoint_id) | going_on
        self.up_to = max(self.up_to, checkpoint_id)
