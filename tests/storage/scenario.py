"""Checkpoints as a job would write them, and a store that counts what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minirt.graph.execution import ExecutionGraph
from minirt.protocol.choosing import Choice, RestorePoint, choose
from minirt.protocol.manifest import (
    CheckpointKind,
    Manifest,
    ManifestKey,
    SinkHandles,
    SnapshotRef,
)
from minirt.protocol.preparing import first_checkpoint_id
from minirt.protocol.preparing_events import StepFailed
from minirt.runtime.coordinator.ends import JobEnds
from minirt.runtime.coordinator.preparation_tasks import PreparationTasks
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.restore_points import list_checkpoints
from minirt.storage.store import ObjectStore

SECTIONS = {"state": b"s" * 100, "in-flight": b"frames"}


class CountingStore(ObjectStore):
    """Remembers what it was asked to do."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.operations: list[str] = []

    def write(self, path: str, data: bytes | Sequence[bytes]) -> None:
        self.operations.append("write")
        super().write(path, data)

    def read(self, path: str) -> bytes:
        self.operations.append("read")
        return super().read(path)

    def create(self, path: str, data: bytes | Sequence[bytes]) -> bool:
        self.operations.append("create")
        return super().create(path, data)

    def delete(self, path: str) -> None:
        self.operations.append("delete")
        super().delete(path)

    def exists(self, path: str) -> bool:
        self.operations.append("exists")
        return super().exists(path)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        self.operations.append("list")
        return super().sizes(prefix)


def key(checkpoint_id: int, generation: int = 1) -> ManifestKey:
    return ManifestKey(checkpoint_id, generation)


def manifest(
    checkpoint_id: int,
    generation: int,
    snapshots: tuple[SnapshotRef, ...] = (),
    kind: CheckpointKind = "checkpoint",
    handles: tuple[SinkHandles, ...] = (),
) -> Manifest:
    return Manifest(
        1, "j", checkpoint_id, generation, "aligned", kind, 1.0, 2.0, (), snapshots, handles, ()
    )


def complete(
    storage: CheckpointStorage,
    checkpoint_id: int,
    generation: int,
    kind: CheckpointKind = "checkpoint",
) -> Manifest:
    refs = [
        storage.write_snapshot(
            checkpoint_id, generation, 0, subtask, {"state": b"%d-%d" % (checkpoint_id, subtask)}
        )
        for subtask in range(2)
    ]
    completed = manifest(checkpoint_id, generation, tuple(refs), kind)
    assert storage.create_manifest(completed)
    return completed


def restore_point(
    storage: CheckpointStorage, which: str | int = "latest", **choice: Any
) -> RestorePoint | None:
    """What the protocol chooses from this storage."""
    steps = choose(Choice(which, **choice))
    graph = ExecutionGraph("job", (), ())
    tasks = PreparationTasks(graph, JobEnds(graph, None), storage)
    try:
        command = next(steps)
        while True:
            answer = tasks.run(command)
            if isinstance(answer, StepFailed):
                raise answer.error
            command = steps.send(answer)
    except StopIteration as end:
        point: RestorePoint | None = end.value
        return point


def storage_of(own: CheckpointStorage, point: RestorePoint) -> CheckpointStorage:
    """The storage that a checkpoint is restored from."""
    root = point.location.root
    return own if root is None else own.at(root)


def next_id(storage: CheckpointStorage, point: RestorePoint | None = None) -> int:
    return first_checkpoint_id(list_checkpoints(storage, None), point)


def started(storage: CheckpointStorage) -> int:
    """Claim and resolve a generation, restoring the latest checkpoint."""
    generation = storage.claim_generation()
    point = restore_point(storage, "latest")
    assert storage.resolve_generation(generation, point.base if point else None)
    return generation
