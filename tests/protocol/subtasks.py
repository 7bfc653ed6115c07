"""Small literals for tests of the coordinator's protocol: two subtasks, A and B."""

from __future__ import annotations

from typing import Any

from minirt.graph.execution import SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoints import CheckpointSettings
from minirt.protocol.job_events import (
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    Timer,
    TimerKind,
    TriggerCheckpoint,
)
from minirt.protocol.manifest import Manifest, SinkHandles, SnapshotRef, SubtaskStats, VertexEntry

A, B = SubtaskId(0, 0), SubtaskId(1, 0)
SUBTASKS = frozenset({A, B})
VERTICES = (VertexEntry(0, ("a",), "a", 1, 8), VertexEntry(1, ("b",), "b", 1, 8))
SETTINGS = CheckpointSettings("aligned", interval_s=10.0, timeout_s=60.0, tolerable_failures=2)
GENERATION = 3


def handles(checkpoint_id: int, *names: str, subtask: SubtaskId = B) -> SinkHandles:
    return SinkHandles("b", checkpoint_id, subtask.index, tuple({"name": name} for name in names))


def stats(subtask: SubtaskId, after: float = 0.0) -> SubtaskStats:
    return SubtaskStats(
        subtask.vertex, subtask.index, "ab"[subtask.vertex], 0, 0, 0, 0, after, 0, 0, 0, False
    )


def ref(subtask: SubtaskId) -> SnapshotRef:
    return SnapshotRef(subtask.vertex, subtask.index, None, b"", 0, 0)


def acknowledged(
    checkpoint_id: int, subtask: SubtaskId, *held: SinkHandles, generation: int = GENERATION
) -> SnapshotAcknowledged:
    return SnapshotAcknowledged(
        generation, checkpoint_id, subtask, ref(subtask), stats(subtask), held
    )


def declined(checkpoint_id: int, subtask: SubtaskId, *held: SinkHandles) -> SnapshotDeclined:
    return SnapshotDeclined(GENERATION, checkpoint_id, subtask, "disk full", held)


def barrier(checkpoint_id: int, at: float) -> Barrier:
    return Barrier(checkpoint_id, "aligned", created_at=at)


def triggered(checkpoint_id: int, at: float, timeout_s: float = 60.0) -> list[Any]:
    """What starts a checkpoint."""
    expire = SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), at + timeout_s)
    return [TriggerCheckpoint(GENERATION, barrier(checkpoint_id, at)), expire]


def next_at(checkpoint_id: int, at: float) -> SetTimer:
    return SetTimer(Timer(TimerKind.TRIGGER, checkpoint_id), at)


def manifest(
    checkpoint_id: int,
    triggered_at: float,
    completed_at: float,
    *held: SinkHandles,
    final: bool = False,
    acknowledged_after: tuple[float, float] = (0.0, 0.0),
) -> Manifest:
    return Manifest(
        version=1,
        job="j",
        checkpoint_id=checkpoint_id,
        generation=GENERATION,
        mode="aligned",
        kind="final" if final else "checkpoint",
        triggered_at=triggered_at,
        completed_at=completed_at,
        vertices=VERTICES,
        snapshots=(ref(A), ref(B)),
        sink_handles=held,
        stats=(stats(A, acknowledged_after[0]), stats(B, acknowledged_after[1])),
    )


def failure(checkpoint_id: int, reason: str, triggered_at: float, now: float) -> dict[str, Any]:
    """What the history remembers of a failed checkpoint."""
    return {
        "checkpoint_id": checkpoint_id,
        "generation": GENERATION,
        "mode": "aligned",
        "status": "failed",
        "reason": reason,
        "triggered_at": triggered_at,
        "duration_s": now - triggered_at,
    }
