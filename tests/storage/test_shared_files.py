"""Snapshots of several subtasks in one file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from minirt.errors import CorruptCheckpointError, StorageError
from minirt.protocol.manifest import ChannelData, InFlightRef, Reference, SnapshotRef
from minirt.protocol.part_paths import file_of
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.part_reader import stored_file
from minirt.storage.part_writer import SharedFiles
from minirt.storage.savepoints import copy_checkpoint
from minirt.storage.snapshots import check_files
from minirt.storage.store import ObjectStore
from tests.storage.scenario import CountingStore, key, manifest, started

STATES = [{"table": b"of 0"}, {"table": b"of subtask 1", "other": b"x"}, {"table": b""}]
CHANNEL = ChannelData("a > b:0", "hash", 0, 0, 1, "in", 4)


def stored_together(
    storage: CheckpointStorage, checkpoint_id: int = 1, generation: int = 1
) -> tuple[list[SnapshotRef], InFlightRef]:
    with storage.together() as writer:
        refs = [
            writer.write_snapshot(checkpoint_id, generation, 0, subtask, sections)
            for subtask, sections in enumerate(STATES)
        ]
        captured = writer.write_in_flight(
            checkpoint_id, generation, 0, 1, [(CHANNEL, (b"da", b"ta"))]
        )
    return refs, captured


def test_state_is_in_one_file_and_in_flight_data_in_another(
    storage: CheckpointStorage, store: CountingStore
) -> None:
    refs, captured = stored_together(storage)
    assert store.operations == ["write", "write"]
    assert {file_of(str(ref.path)) for ref in refs} == {"chk-00000001-g00000001/v0-s0.part"}
    assert file_of(str(captured.stored.path)) == "chk-00000001-g00000001/v0-s1.in-flight"
    assert [storage.read_snapshot(ref, key(1)) for ref in refs] == STATES
    assert storage.read_snapshot(captured.stored, key(1)) == {"0": b"data"}


def test_parts_are_read_in_ranges_and_verified_one_by_one(
    storage: CheckpointStorage, store: CountingStore
) -> None:
    refs, _ = stored_together(storage)
    for ref, sections in zip(refs, STATES, strict=True):
        part = stored_file(store, str(ref.path), ref)
        held = {one.name: part.section(one).read(100) for one in part.index.sections}
        assert held == sections
        part.verify(lambda size: None)


def test_small_parts_stay_in_the_manifest(store: CountingStore) -> None:
    storage = CheckpointStorage(store, inline_bytes_max=10_000, history_entries=10)
    refs, _ = stored_together(storage)
    assert store.operations == []
    assert [storage.read_snapshot(ref, key(1)) for ref in refs] == STATES


def test_a_file_stays_as_long_as_somebody_builds_on_one_of_its_parts(
    storage: CheckpointStorage, store: CountingStore
) -> None:
    generation = started(storage)
    refs, captured = stored_together(storage, 1, generation)
    path = str(refs[1].path)
    later = storage.write_snapshot(
        2, generation, 0, 1, {"new": b"s" * 100}, [Reference(path, ("table",))]
    )
    assert storage.create_manifest(manifest(2, generation, (later,)))
    storage.cleanup(retain=1)
    assert store.exists(file_of(path))
    assert not store.exists(file_of(str(captured.stored.path)))
    older = next(iter(storage.read_state(later, key(2, generation))))
    assert older == (path, {"table": b"of subtask 1"})


def test_a_checkpoint_with_shared_files_can_be_copied(
    storage: CheckpointStorage, store: CountingStore, tmp_path: Path
) -> None:
    refs, _ = stored_together(storage)
    target = ObjectStore(str(tmp_path / "copy"))
    copy_checkpoint(manifest(1, 1, tuple(refs)), store, target)
    copied = storage.at(target.root)
    assert [copied.read_snapshot(ref, key(1)) for ref in refs] == STATES


@pytest.mark.parametrize("damage", ["cut", "bent"])
def test_damage_in_one_part_is_found(
    storage: CheckpointStorage, store: CountingStore, tmp_path: Path, damage: str
) -> None:
    refs, _ = stored_together(storage)
    path = file_of(str(refs[0].path))
    whole = store.read(path)
    store.write(path, whole[:-1] if damage == "cut" else whole.replace(b"subtask 1", b"subtask 2"))
    complete = manifest(1, 1, tuple(refs))
    if damage == "cut":
        with pytest.raises(CorruptCheckpointError, match="bytes instead of"):
            check_files(store, complete)
    with pytest.raises(CorruptCheckpointError):
        copy_checkpoint(complete, store, ObjectStore(str(tmp_path / "copy")))
    bad = refs[2] if damage == "cut" else refs[1]
    with pytest.raises(CorruptCheckpointError):
        storage.read_snapshot(bad, key(1))
    assert storage.read_snapshot(refs[0], key(1)) == STATES[0]


def test_a_file_that_grows_large_is_written_before_all_parts_have_come() -> None:
    written: dict[str, bytes] = {}

    class Store(ObjectStore):
        def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
            written[path] = data if isinstance(data, bytes) else b"".join(data)

    files = SharedFiles(Store("memory://"), inline_bytes_max=0, bytes_max=10)
    paths = [files.put(f"{name}.part", 6, [6 * name.encode()]) for name in "abc"]
    assert written == {"a.part": b"aaaaaabbbbbb"}
    files.flush()
    assert written["c.part"] == b"cccccc"
    assert paths == ["a.part@0+6", "a.part@6+6", "c.part@0+6"]


def test_a_failed_write_leaves_none_of_them(
    storage: CheckpointStorage, store: CountingStore
) -> None:
    def fail(path: str, data: object) -> None:
        raise StorageError("full", path)

    store.write = fail  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="full"):
        stored_together(storage)
