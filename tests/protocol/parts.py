"""Parts of checkpoints, as subtasks send them, for tests of the protocol."""

from __future__ import annotations

from dataclasses import replace

from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    JobCommand,
    SnapshotAcknowledged,
    SnapshotDeclined,
    Timer,
    TimerKind,
)
from minirt.protocol.manifest import (
    Reference,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
)
from minirt.protocol.savepoint_requests import SavepointRequest
from minirt.protocol.savepoints import Savepoints

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


def state_path(checkpoint_id: int, subtask: SubtaskId) -> str:
    return f"chk-{checkpoint_id:08}-g00000001/v{subtask.vertex}-s{subtask.index}.part"


def with_state(
    checkpoint_id: int, subtask: SubtaskId, *builds_on: str, path: str | None = None
) -> SnapshotAcknowledged:
    """A part whose state is in a file, `path` or its own, and builds on what others hold."""
    path = path or state_path(checkpoint_id, subtask)
    references = tuple(Reference(older, ("table",)) for older in builds_on)
    stored = SnapshotRef(subtask.vertex, subtask.index, path, None, 10, 0, references=references)
    return replace(acknowledged(checkpoint_id, subtask), snapshot=stored)


class CoordinatedJob:
    """A coordinator of a source and a sink that runs since the time 0, and who asks it for savepoints."""

    def __init__(self, settings: CheckpointSettings, requests_max: int = 3) -> None:
        self.savepoints = Savepoints(requests_max)
        self.checkpoints = CheckpointCoordinator(
            "job", 1, 1, settings, VERTICES, frozenset({SOURCE, SINK}), self.savepoints
        )
        self.begun = self.checkpoints.on_running(0.0)

    def request(self, request: SavepointRequest, now: float) -> list[JobCommand]:
        return self.savepoints.add(request) or self.checkpoints.on_savepoint_requested(now)


def trigger_timer(checkpoint_id: int) -> Timer:
    return Timer(TimerKind.TRIGGER, checkpoint_id)
