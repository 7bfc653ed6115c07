"""Snapshots that build on sections of older files."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirt.errors import CorruptCheckpointError
from minirt.protocol.manifest import Reference, SnapshotRef
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.savepoints import copy_checkpoint
from minirt.storage.store import ObjectStore
from tests.storage.scenario import CountingStore, complete, key, manifest, restore_point, started

OLD = {"table": b"old", "other": b"x"}
NEW = {"table": b"new"}


def built_on_first(storage: CheckpointStorage) -> tuple[SnapshotRef, SnapshotRef]:
    """Checkpoint 1 was given up after this part of it was stored, and checkpoint 2 builds on that."""
    first = storage.write_snapshot(1, 1, 0, 0, OLD)
    assert first.path is not None
    second = storage.write_snapshot(2, 1, 0, 0, NEW, [Reference(first.path, ("table",))])
    assert storage.create_manifest(manifest(2, 1, (second,)))
    return first, second


def test_what_it_builds_on_comes_first(storage: CheckpointStorage) -> None:
    first, second = built_on_first(storage)
    point = restore_point(storage, "latest")
    assert point is not None
    assert point.manifest.snapshots == (second,)
    assert list(storage.read_state(second, key(2))) == [
        (first.path, {"table": b"old"}),
        (second.path, NEW),
    ]


def test_it_stays_as_long_as_somebody_builds_on_it(
    storage: CheckpointStorage, store: CountingStore
) -> None:
    generation = started(storage)
    first, _ = built_on_first(storage)
    storage.cleanup(retain=1)
    assert store.list("chk-00000001-g00000001") == [first.path]
    complete(storage, 3, generation)
    storage.cleanup(retain=1)
    assert store.list("chk-00000001-g00000001") == []
    assert store.list("chk-00000002-g00000001") == []


def test_a_copy_holds_it_too(
    storage: CheckpointStorage, store: CountingStore, tmp_path: Path
) -> None:
    built_on_first(storage)
    target = ObjectStore(str(tmp_path / "copy"))
    copy_checkpoint(storage.read_manifest(key(2)), store, target)
    copy = CheckpointStorage(target, inline_bytes_max=0)
    point = restore_point(copy, "latest")
    assert point is not None
    pieces = [sections for _, sections in copy.read_state(point.manifest.snapshots[0], key(2))]
    assert pieces == [{"table": b"old"}, NEW]


def test_what_is_wrong_with_it_is_told(storage: CheckpointStorage, store: CountingStore) -> None:
    first, second = built_on_first(storage)
    assert first.path is not None
    whole = store.read(first.path)
    store.write(first.path, whole[:-1] + b"?")
    with pytest.raises(CorruptCheckpointError, match=r"'other' fails.*v0-s0\.part"):
        list(storage.read_state(second, key(2)))
    store.delete(first.path)
    with pytest.raises(CorruptCheckpointError, match=r"checkpoint 2.*missing.*chk-00000001"):
        restore_point(storage, "latest")
