"""The checkpoint storage: snapshots, generations, restore points, copies, damage and cleanup."""

from __future__ import annotations

import pickle
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ProtocolError,
    StorageError,
    UserCodeError,
)
from minirt.protocol.manifest import (
    CheckpointKind,
    GenerationClaim,
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


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStore:
    local = request.param == "local"
    return CountingStore(str(tmp_path / "chk") if local else f"memory://{uuid.uuid4()}")


@pytest.fixture
def storage(store: CountingStore) -> CheckpointStorage:
    return CheckpointStorage(store, inline_bytes_max=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "local" / "chk"


@pytest.fixture
def local(folder: Path) -> CheckpointStorage:
    """A local storage with checkpoints 1, 2 and 3 of generation 1."""
    storage = CheckpointStorage(ObjectStore(str(folder)), inline_bytes_max=0)
    started(storage)
    for checkpoint_id in (1, 2, 3):
        complete(storage, checkpoint_id, 1)
    return storage


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


class TestSnapshots:
    def test_small_ones_are_inlined_and_large_ones_stored(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, inline_bytes_max=200)
        small = storage.write_snapshot(1, 1, 0, 0, SECTIONS)
        large = storage.write_snapshot(1, 1, 0, 1, {"state": b"x" * 200})
        assert small.path is None
        assert small.inline is not None
        assert small.bytes == len(small.inline)
        assert store.sizes() == {"chk-00000001-g00000001/v0-s1.part": large.bytes}
        assert storage.read_snapshot(small, key(1)) == SECTIONS
        assert storage.read_snapshot(large, key(1)) == {"state": b"x" * 200}

    def test_workers_write_through_a_pickled_storage(self, local: CheckpointStorage) -> None:
        worker = pickle.loads(pickle.dumps(local))
        ref = worker.write_snapshot(7, 1, 0, 0, SECTIONS)
        assert local.read_snapshot(ref, key(7)) == SECTIONS

    def test_every_damage_to_a_stored_part_is_named(
        self, local: CheckpointStorage, folder: Path
    ) -> None:
        ref = local.write_snapshot(7, 1, 0, 0, SECTIONS)
        assert ref.path is not None
        path = folder / ref.path
        data = path.read_bytes()
        damages = [data[:n] for n in range(len(data))]
        damages += [data[:n] + bytes([data[n] ^ 0xFF]) + data[n + 1 :] for n in range(len(data))]
        for damaged in damages:
            path.write_bytes(damaged)
            with pytest.raises(CorruptCheckpointError) as caught:
                local.read_snapshot(ref, key(7))
            assert caught.value.path == str(path)

    def test_missing_part_is_a_corrupt_checkpoint(
        self, local: CheckpointStorage, folder: Path
    ) -> None:
        ref = local.write_snapshot(7, 1, 0, 0, SECTIONS)
        shutil.rmtree(folder / "chk-00000007-g00000001")
        with pytest.raises(CorruptCheckpointError, match=r"missing: .*v0-s0\.part"):
            local.read_snapshot(ref, key(7))

    def test_whole_part_of_another_checkpoint_is_refused(
        self, local: CheckpointStorage, folder: Path
    ) -> None:
        ref = local.write_snapshot(7, 1, 0, 0, SECTIONS)
        other = local.write_snapshot(8, 1, 0, 0, {**SECTIONS, "state": b"t" * 100})
        assert ref.path is not None
        assert other.path is not None
        shutil.copy(folder / other.path, folder / ref.path)
        with pytest.raises(CorruptCheckpointError, match="not the snapshot that the manifest"):
            local.read_snapshot(ref, key(7))

    def test_damaged_inlined_snapshot_names_manifest_and_subtask(
        self, store: CountingStore
    ) -> None:
        storage = CheckpointStorage(store, inline_bytes_max=1000)
        ref = storage.write_snapshot(7, 1, 4, 2, SECTIONS)
        assert ref.inline is not None
        damaged = SnapshotRef(4, 2, None, ref.inline[:-1] + b"?", ref.bytes, ref.crc)
        with pytest.raises(CorruptCheckpointError, match=r"chk-00000007.*vertex 4, subtask 2"):
            storage.read_snapshot(damaged, key(7))


class TestGenerations:
    def test_claims_follow_each_other(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, 0)
        assert (started(storage), started(storage)) == (1, 2)
        assert not storage.is_current(1)
        assert storage.is_current(2)
        complete(storage, 1, 2)
        assert started(CheckpointStorage(store, 0)) == 3
        assert storage.claims() == [
            GenerationClaim(1, None, True),
            GenerationClaim(2, None, True),
            GenerationClaim(3, key(1, 2), True),
        ]

    def test_simultaneous_claims_get_different_generations(self, store: CountingStore) -> None:
        with ThreadPoolExecutor(6) as pool:
            claims = [pool.submit(CheckpointStorage(store, 0).claim_generation) for _ in range(6)]
        assert sorted(claim.result() for claim in claims) == [1, 2, 3, 4, 5, 6]

    def test_generation_that_was_replaced_is_told_when_it_resolves(
        self, storage: CheckpointStorage
    ) -> None:
        first = storage.claim_generation()
        second = storage.claim_generation()
        assert not storage.resolve_generation(first, None)
        assert storage.resolve_generation(second, None)
        complete(storage, 1, second)
        assert not storage.resolve_generation(first, key(1, second))

    def test_storage_that_ignores_conditions_is_refused(self, store: CountingStore) -> None:
        class Ignoring(CountingStore):
            def create(self, path: str, data: bytes | Sequence[bytes]) -> bool:
                self.write(path, data)
                return True

        with pytest.raises(ConfigurationError, match="ignores the condition"):
            CheckpointStorage(Ignoring(store.root), 0).claim_generation()


class TestManifests:
    def test_manifest_is_created_once(self, storage: CheckpointStorage) -> None:
        first, other = manifest(1, 1), manifest(1, 1, kind="final")
        assert storage.create_manifest(first)
        assert storage.create_manifest(first)
        assert not storage.create_manifest(other)
        assert storage.read_manifest(key(1)) == first
        assert storage.manifest_keys() == [key(1)]

    def test_handles_that_cannot_be_stored_are_the_users_mistake(
        self, storage: CheckpointStorage
    ) -> None:
        handles = (SinkHandles("out", 1, 0, ({"when": object()},)),)
        with pytest.raises(UserCodeError, match="handles of a sink"):
            storage.create_manifest(manifest(1, 1, handles=handles))

    def test_every_damage_to_a_manifest_is_named(
        self, local: CheckpointStorage, folder: Path
    ) -> None:
        path = folder / "manifests" / "chk-00000003-g00000001.manifest"
        data = path.read_bytes()
        for position in range(0, len(data), 5):
            for damaged in (data[:position], data[:position] + b"\xff\xff" + data[position + 2 :]):
                path.write_bytes(damaged)
                with pytest.raises(CorruptCheckpointError) as caught:
                    local.read_manifest(key(3))
                assert caught.value.path == str(path)

    def test_manifest_under_another_name_is_refused(
        self, local: CheckpointStorage, folder: Path
    ) -> None:
        manifests = folder / "manifests"
        shutil.copy(
            manifests / "chk-00000003-g00000001.manifest",
            manifests / "chk-00000004-g00000001.manifest",
        )
        with pytest.raises(CorruptCheckpointError, match="manifest of another checkpoint"):
            local.restore_point("latest")

    def test_next_id_exceeds_what_was_restored_from_elsewhere(
        self, local: CheckpointStorage, tmp_path: Path
    ) -> None:
        fresh = CheckpointStorage(ObjectStore(str(tmp_path / "fresh")), 0)
        assert (local.next_checkpoint_id(), fresh.next_checkpoint_id()) == (4, 1)
        assert fresh.next_checkpoint_id(fresh.restore_point(local.store.root)) == 4


class TestRestorePoint:
    def test_empty_storage_has_none(self, storage: CheckpointStorage) -> None:
        assert storage.restore_point("latest") is None

    def test_latest_is_the_newest_that_counts(self, storage: CheckpointStorage) -> None:
        first = started(storage)
        complete(storage, 1, first)
        second = started(storage)
        zombie = complete(storage, 2, first)
        point = storage.restore_point("latest")
        assert point is not None
        assert (point.manifest.key, point.base, point.skipped) == (key(1), key(1), ())
        complete(storage, 2, second)
        point = storage.restore_point("latest")
        assert point is not None
        assert point.manifest.key == key(2, second) != zombie.key

    def test_checkpoint_is_chosen_by_id(self, local: CheckpointStorage) -> None:
        point = local.restore_point(2)
        assert point is not None
        assert point.manifest.key == point.base == key(2)
        with pytest.raises(ConfigurationError, match=r"no checkpoint 9 in .*holds 1, 2, 3"):
            local.restore_point(9)

    def test_checkpoint_left_behind_is_not_chosen_by_id(self, local: CheckpointStorage) -> None:
        generation = local.claim_generation()
        assert local.resolve_generation(generation, key(1))
        with pytest.raises(ConfigurationError, match="left behind"):
            local.restore_point(3)
        point = local.restore_point("chk-00000003-g00000001")
        assert point is not None
        assert point.manifest.checkpoint_id == 3

    @pytest.mark.parametrize(
        "form",
        [
            "{root}/chk-00000002-g00000001",
            "{root}/chk-00000002-g00000001/",
            "file://{root}/chk-00000002-g00000001",
            "{root}/manifests/chk-00000002-g00000001.manifest",
            "chk-00000002-g00000001",
            "manifests/chk-00000002-g00000001.manifest",
        ],
    )
    def test_checkpoint_is_chosen_by_path(self, local: CheckpointStorage, form: str) -> None:
        point = local.restore_point(form.format(root=local.store.root))
        assert point is not None
        assert point.manifest.key == point.base == key(2)

    @pytest.mark.parametrize("form", ["{root}", "{root}/chk-00000003-g00000001"])
    def test_copy_of_a_storage_restores_without_the_original(
        self, local: CheckpointStorage, folder: Path, tmp_path: Path, form: str
    ) -> None:
        copy = tmp_path / "elsewhere"
        shutil.copytree(folder, copy)
        shutil.rmtree(folder)
        point = local.restore_point(form.format(root=copy))
        assert point is not None
        assert (point.manifest.checkpoint_id, point.base) == (3, None)
        states = [
            point.storage.read_snapshot(r, point.manifest.key) for r in point.manifest.snapshots
        ]
        assert states == [{"state": b"3-0"}, {"state": b"3-1"}]

    def test_copied_storage_goes_on_as_the_storage_of_a_job(
        self, local: CheckpointStorage, folder: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(folder, tmp_path / "elsewhere")
        copy = CheckpointStorage(ObjectStore(str(tmp_path / "elsewhere")), 0)
        generation = started(copy)
        complete(copy, 4, generation)
        assert copy.claims()[-1].base == key(3)
        assert local.manifest_keys() == [key(1), key(2), key(3)]

    @pytest.mark.parametrize("which", ["{root}/chk-00000009-g00000001", "{root}/nowhere"])
    def test_path_without_a_checkpoint_is_the_callers_mistake(
        self, local: CheckpointStorage, which: str
    ) -> None:
        with pytest.raises(ConfigurationError, match="no checkpoint"):
            local.restore_point(which.format(root=local.store.root))

    @pytest.mark.parametrize(
        "damage", ["manifest", "missing part", "missing folder", "truncated part"]
    )
    def test_damaged_newest_is_refused_or_passed_over(
        self, local: CheckpointStorage, folder: Path, damage: str
    ) -> None:
        part = folder / "chk-00000003-g00000001" / "v0-s1.part"
        match damage:
            case "manifest":
                part = folder / "manifests" / "chk-00000003-g00000001.manifest"
                part.write_bytes(b"garbage")
            case "missing part":
                part.unlink()
            case "missing folder":
                shutil.rmtree(part.parent)
                part = part.with_name("v0-s0.part")
            case "truncated part":
                part.write_bytes(part.read_bytes()[:-1])
        with pytest.raises(CorruptCheckpointError) as caught:
            local.restore_point("latest")
        assert caught.value.path == str(part)
        assert f'restore="{folder}/chk-00000002-g00000001"' in str(caught.value)
        point = local.restore_point("latest", allow_fallback=True)
        assert point is not None
        assert point.manifest.key == point.base == key(2)
        assert [error.path for error in point.skipped] == [str(part)]

    def test_damage_noticed_by_workers_is_passed_over(self, local: CheckpointStorage) -> None:
        point = local.restore_point("latest", exclude=[key(3), key(2)])
        assert point is not None
        assert point.base == key(1)

    def test_job_never_starts_empty_because_all_is_damaged(self, local: CheckpointStorage) -> None:
        with pytest.raises(CorruptCheckpointError, match="none of 3 checkpoints"):
            local.restore_point("latest", exclude=[key(3), key(2), key(1)])
        for damaged in (1, 2, 3):
            local.store.write(f"manifests/chk-0000000{damaged}-g00000001.manifest", b"?")
        with pytest.raises(CorruptCheckpointError, match="none of 3 checkpoints"):
            local.restore_point("latest", allow_fallback=True)

    def test_manifest_cannot_point_outside_of_the_storage(self, local: CheckpointStorage) -> None:
        ref = SnapshotRef(0, 0, "../../etc/passwd", None, 10, 0)
        assert local.create_manifest(manifest(4, 1, (ref,)))
        with pytest.raises(CorruptCheckpointError, match="outside"):
            local.restore_point("latest")
        with pytest.raises(StorageError, match="relative path"):
            local.read_snapshot(ref, key(4))


class TestCleanup:
    def test_newest_are_kept_with_all_they_refer_to(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        generation = started(storage)
        refs = complete(storage, 1, generation).snapshots
        complete(storage, 2, generation)
        assert storage.create_manifest(manifest(3, generation, refs[:1]))
        complete(storage, 4, generation)
        storage.cleanup(retain=2)
        assert storage.manifest_keys() == [key(3), key(4)]
        assert store.list("chk-00000001-g00000001") == [refs[0].path]
        assert store.list("chk-00000002-g00000001") == []
        complete(storage, 5, generation)
        complete(storage, 6, generation)
        storage.cleanup(retain=2)
        assert store.list("chk-00000001-g00000001") == []

    def test_savepoints_and_unreadable_checkpoints_stay(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        generation = started(storage)
        complete(storage, 1, generation, kind="savepoint")
        complete(storage, 2, generation)
        store.write("manifests/chk-00000002-g00000001.manifest", b"?")
        complete(storage, 3, generation)
        complete(storage, 4, generation)
        storage.cleanup(retain=1)
        assert storage.manifest_keys() == [key(1), key(2), key(4)]
        assert len(store.list("chk-00000001-g00000001")) == 2
        assert len(store.list("chk-00000002-g00000001")) == 2

    def test_leftovers_of_earlier_generations_go(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        complete(storage, 1, started(storage))
        storage.write_snapshot(2, 1, 0, 0, SECTIONS)
        generation = started(storage)
        storage.write_snapshot(2, generation, 0, 0, SECTIONS)
        plan = storage.cleanup(retain=1)
        assert plan.files_to_delete == ("chk-00000002-g00000001/v0-s0.part",)
        assert store.list("chk-00000002-g00000002") != []

    def test_leftovers_of_aborted_checkpoints_go_unless_active(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        generation = started(storage)
        complete(storage, 1, generation)
        storage.cleanup(retain=1)
        for checkpoint_id in (2, 3):
            storage.write_snapshot(checkpoint_id, generation, 0, 0, SECTIONS)
        complete(storage, 4, generation)
        storage.cleanup(retain=1, active=[key(3)])
        assert store.list("chk-00000002-g00000001") == []
        assert len(store.list("chk-00000003-g00000001")) == 1
        complete(storage, 5, generation)
        storage.cleanup(retain=1)
        assert store.list("chk-00000003-g00000001") == []

    def test_failed_deletion_is_tried_again(
        self, storage: CheckpointStorage, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(path: str) -> None:
            raise StorageError("no permission", path)

        generation = started(storage)
        complete(storage, 1, generation)
        complete(storage, 2, generation)
        with monkeypatch.context() as patch:
            patch.setattr(store, "delete", fail)
            with pytest.raises(StorageError):
                storage.cleanup(retain=1)
        storage.cleanup(retain=1)
        assert storage.manifest_keys() == [key(2)]
        assert store.list("chk-00000001-g00000001") == []

    def test_manifests_are_deleted_before_their_files(
        self, storage: CheckpointStorage, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generation = started(storage)
        for checkpoint_id in (1, 2, 3):
            complete(storage, checkpoint_id, generation)
        deleted: list[str] = []
        monkeypatch.setattr(store, "delete", deleted.append)
        storage.cleanup(retain=1)
        assert [path.split("/")[0] for path in deleted[:3]] == [
            "manifests",
            "manifests",
            "chk-00000001-g00000001",
        ]

    def test_generation_that_is_not_resolved_must_not_delete(
        self, local: CheckpointStorage
    ) -> None:
        with pytest.raises(ProtocolError):
            pickle.loads(pickle.dumps(local)).cleanup(retain=1)
        local.claim_generation()
        with pytest.raises(ProtocolError):
            local.cleanup(retain=1)

    def test_steady_checkpoints_cost_few_operations(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, inline_bytes_max=10_000)
        generation = started(storage)
        for checkpoint_id in range(1, 6):
            store.operations.clear()
            complete(storage, checkpoint_id, generation)
            assert storage.is_current(generation)
            storage.append_history({"id": checkpoint_id})
            storage.cleanup(retain=2)
        assert store.operations == ["create", "exists", "write", "delete"]


class TestHistory:
    def test_entries_survive_the_coordinator(self, store: CountingStore) -> None:
        assert CheckpointStorage(store, 0).history() == []
        expected = []
        for generation in (1, 2, 3):
            storage = CheckpointStorage(store, 0)
            assert storage.claim_generation() == generation
            for number in range(100):
                expected.append({"generation": generation, "number": number, "stats": [1.5, None]})
                storage.append_history(expected[-1])
        assert CheckpointStorage(store, 0).history() == expected

    def test_only_the_newest_are_kept(self, store: CountingStore) -> None:
        number = 0
        for _ in range(4):
            storage = CheckpointStorage(store, 0, history_entries=50)
            storage.claim_generation()
            for _ in range(70):
                storage.append_history({"number": number})
                number += 1
        kept = [entry["number"] for entry in storage.history()]
        assert kept == list(range(number - 50, number))
        assert len(store.list("history")) <= 3

    def test_large_entries_are_not_rewritten(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, 0)
        for number in range(5):
            storage.append_history({"number": number, "blob": b"x" * 70_000})
        assert all(size < 80_000 for size in store.sizes("history").values())
        assert [entry["number"] for entry in storage.history()] == [0, 1, 2, 3, 4]

    def test_damaged_history_is_named_but_does_not_stop_a_job(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, 0)
        storage.append_history({"number": 1})
        (path,) = store.list("history")
        store.write(path, b"?")
        with pytest.raises(CorruptCheckpointError) as caught:
            storage.history()
        assert caught.value.path == store.full_path(path)
        after = CheckpointStorage(store, 0)
        after.append_history({"number": 2})
        assert store.read(path) == b"?"


@given(
    st.lists(
        st.sampled_from(["checkpoint", "zombie checkpoint", "restart", "cleanup"]), max_size=25
    )
)
def test_restart_finds_the_last_checkpoint_of_the_current_generation(steps: list[str]) -> None:
    store = ObjectStore(f"memory://{uuid.uuid4()}")
    current = CheckpointStorage(store, 0)
    replaced: list[tuple[CheckpointStorage, int]] = []
    generation, next_id, newest = started(current), 1, None
    for step in steps:
        match step:
            case "checkpoint":
                newest = complete(current, next_id, generation).key
                next_id += 1
            case "zombie checkpoint" if replaced:
                storage, old = replaced[-1]
                complete(storage, storage.next_checkpoint_id(), old)
                assert not storage.is_current(old)
            case "restart":
                replaced.append((current, generation))
                current = CheckpointStorage(store, 0)
                generation = started(current)
                next_id = current.next_checkpoint_id()
            case "cleanup":
                current.cleanup(retain=1)
        point = current.restore_point("latest")
        assert (point.manifest.key if point else None) == newest
