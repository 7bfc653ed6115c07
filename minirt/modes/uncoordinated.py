"""Uncoordinated: each subtask takes snapshots by its own clock; a checkpoint is made of those that fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.errors import ConfigurationError
from minirt.modes.unaligned import Unaligned
from minirt.protocol.families import Family
from minirt.protocol.ids import SubtaskId
from minirt.protocol.local_pace import LocalSnapshots
from minirt.protocol.uncoordinated import Uncoordinated as UncoordinatedFamily
from minirt.units import Duration, positive, seconds

_LEAST_LOG_BYTES = 1024


@dataclass(frozen=True)
class Uncoordinated(Unaligned):
    """Exactly once, without a wave of barriers: no subtask waits for another one to take a snapshot.

    Whenever a checkpoint is due, it is made of the newest snapshots that fit together, and of the records
    that are in transit between them. So a failure takes each subtask back by up to about two intervals,
    where barriers take it back by one. Until a checkpoint is made of later snapshots, each subtask keeps
    in memory what has come in, and takes no further input once `log_bytes` have come in and gone out.

    A savepoint, and the last checkpoint of a job, is taken with barriers, as in unaligned mode. It alone
    is sure to be restorable at another parallelism: a periodic one may hold records of edges whose records
    no barrier overtakes.

    Raises ConfigurationError for a jitter that is not from 0 to 1, for a log of less than 1 KiB, and for a
    stagger of 0 or of more than an interval.

    Source: B. Bhargava and S.-R. Lian, "Independent Checkpointing and Concurrent Rollback for Recovery in
    Distributed Systems", 1988; among stream processors, Siachamis et al., "CheckMate: Evaluating
    Checkpointing Protocols for Streaming Dataflows", 2024.
    """

    jitter: float = 0.1
    """By which part of itself the interval of a subtask may differ from one snapshot to the next."""
    log_bytes: int = 64 * 1024 * 1024
    """How much may come in and go out of a subtask between its snapshots on two lines."""
    stagger: Duration | None = None
    """Sinks take their snapshots first, and each stage of the job this much after the one behind it."""

    name: ClassVar[str] = "uncoordinated"

    def __post_init__(self) -> None:
        jitter: object = self.jitter
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            raise ConfigurationError(f"{self.name}: jitter is a number from 0 to 1, not {jitter!r}")
        positive(f"{self.name}: log_bytes", self.log_bytes)
        if self.log_bytes < _LEAST_LOG_BYTES:
            raise ConfigurationError(
                f"{self.name}: log_bytes must be at least {_LEAST_LOG_BYTES}, got {self.log_bytes}"
            )
        if self.stagger is not None and seconds(self.stagger, "stagger") == 0:
            raise ConfigurationError(
                f"{self.name}: stagger must be positive; without it, leave it out"
            )

    def local_snapshots(self, interval_s: float) -> LocalSnapshots:
        stagger_s = None if self.stagger is None else seconds(self.stagger)
        if stagger_s is not None and stagger_s > interval_s:
            raise ConfigurationError(
                f"{self.name}: stagger ({stagger_s:g} s) must be at most the interval ({interval_s:g} s)"
            )
        return LocalSnapshots(interval_s, self.jitter, self.log_bytes, stagger_s=stagger_s)

    def family(self, subtasks: frozenset[SubtaskId]) -> Family:
        return UncoordinatedFamily(subtasks)
