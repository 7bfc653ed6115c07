"""What the checkpoints of a job go by, in all its generations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minirt.protocol.barriers import Barrier, CheckpointMode, HoldsSources, may_overlap
from minirt.protocol.families import Coordinated, Family, family_of
from minirt.protocol.ids import SubtaskId
from minirt.protocol.local_pace import LocalSnapshots


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`interval_s` None takes only the final checkpoint. Durations are seconds."""

    mode: str
    interval_s: float | None
    timeout_s: float = 600.0
    min_pause_s: float = 0.0
    tolerable_failures: int = 10
    savepoint_requests: int = 16
    """How many requests for savepoints may wait for their answer at a time."""
    modes: Mapping[str, CheckpointMode] = field(default_factory=dict)
    """The modes that a barrier may name. One that is missing is coordinated, and holds no sources."""
    local: LocalSnapshots | None = None
    """When subtasks take snapshots by their own clocks, in a job of the uncoordinated family."""
    max_concurrent: int = 1
    """How many checkpoints may be under way at a time, savepoints among them."""

    def overlaps(self, mode: str) -> bool:
        """Whether others may be under way beside a checkpoint of this mode."""
        return self.max_concurrent > 1 and may_overlap(self.modes.get(mode))

    def holds_sources(self, barrier: Barrier) -> bool:
        """Whether sources wait behind this barrier until its checkpoint is over."""
        mode = self.modes.get(barrier.mode)
        return isinstance(mode, HoldsSources) and mode.holds_sources(barrier.checkpoint_id)

    def family(self, subtasks: frozenset[SubtaskId]) -> Family:
        """The family of the job's periodic checkpoints, at the beginning of a generation."""
        if self.interval_s is None:
            return Coordinated()
        return family_of(self.modes.get(self.mode), subtasks)
