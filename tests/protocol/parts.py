"""Parts of checkpoints, as subtasks send them, for tests of the protocol."""

from __future__ import annotations

from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined, Timer, TimerKind
from minirt.protocol.manifest import SinkHandles, SnapshotRef, SubtaskStats, VertexEntry

VERTICES = (
    VertexEntry(0, ("numbers",), "numbers", 1, 128),
    VertexEntry(1, ("out",), "out", 1, 128),
)
SOURCE, SINK = SubtaskId(0, 0), SubtaskId(1, 0)


def handles(checkpoint_id: int, subtask: int = 0, uid: str = "out") -> SinkHandles:
    return SinkHandles(uid, checkpoint_id, subtask, ({"file": f"{checkpoint_id}-{subtask}"},))


def reference(subtask: SubtaskId, checkpoint_id: int) -> SnapshotRef:
    path = f"{checkpoint_id}/{subtask.vertex}-{subtask.index}"
    return SnapshotRef(subtask.vertex, subtask.index, path, None, 10, 0)


def statistics(subtask: SubtaskId, acknowledged_after_s: float = 0.0) -> SubtaskStats:
    return SubtaskStats(
        vertex=subtask.vertex,
        subtask=subtask.index,
        name=f"{subtask.vertex}",
        start_delay_s=0.1,
        alignment_s=0.2,
        sync_s=0.3,
        async_s=0.4,
        acknowledged_after_s=acknowledged_after_s,
        state_bytes=10,
        in_flight_bytes=0,
        processed_bytes=5,
        unaligned=False,
    )


def acknowledged(
    checkpoint_id: int, subtask: SubtaskId, *held: SinkHandles, generation: int = 1
) -> SnapshotAcknowledged:
    stored = reference(subtask, checkpoint_id)
    return SnapshotAcknowledged(
        generation, checkpoint_id, subtask, stored, statistics(subtask), held
    )


def declined(
    checkpoint_id: int, subtask: SubtaskId, *held: SinkHandles, generation: int = 1
) -> SnapshotDeclined:
    return SnapshotDeclined(generation, checkpoint_id, subtask, "disk full", held)


def trigger_timer(checkpoint_id: int) -> Timer:
    return Timer(TimerKind.TRIGGER, checkpoint_id)
