"""Checkpoints as a job would write them, and a store that counts what that takes."""

from __future__ import annotations

from collections.abc import Sequence

from minirt.protocol.manifest import (
    CheckpointKind,
    Manifest,
    ManifestKey,
    SinkHandles,
    SnapshotRef,
)
from minirt.storage.checkpoints import CheckpointStorage
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


def started(storage: CheckpointStorage) -> int:
    """Claim and resolve a generation, restoring the latest checkpoint."""
    generation = storage.claim_generation()
    point = storage.restore_point("latest")
    assert storage.resolve_generation(generation, point.base if point else None)
    return generation
