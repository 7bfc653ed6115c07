"""What a user asks for with a savepoint, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Afterwards(Enum):
    """What becomes of a job once its savepoint is there."""

    GO_ON = "the job goes on"
    STOP = "the job ends, and its sources emit nothing behind the savepoint"
    DRAIN = "the job ends, and its sources and event time did so before the savepoint"


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """What a user has asked for; without a path it stays in the job's own storage."""

    id: int
    mode: str
    path: str | None = None
    afterwards: Afterwards = Afterwards.GO_ON
    reason: str | None = None
    """Why the job is to end, for its history."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A checkpoint that is kept until somebody deletes it; `restore=savepoint.path` starts from it."""

    path: str
    checkpoint_id: int
    mode: str
    duration_s: float
    """From its begin until its manifest was stored."""
    bytes: int
    """The size of the snapshots."""
