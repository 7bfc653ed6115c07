"""What is deleted, when, and how little that costs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from minirt.errors import (
    ProtocolError,
    StorageError,
)
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import write_lease
from minirt.storage.store import ObjectStore
from tests.storage.scenario import (
    SECTIONS,
    CountingStore,
    complete,
    key,
    manifest,
    restore_point,
    started,
)


class TestManifestOfUnknownFate:
    """Its creation has failed; it may be there all the same."""

    @pytest.mark.parametrize("looks", [0, 1, 2])
    def test_its_files_stay_if_it_is_there(
        self,
        storage: CheckpointStorage,
        store: CountingStore,
        monkeypatch: pytest.MonkeyPatch,
        looks: int,
    ) -> None:
        """`looks`: how many attempts to look whether it is there fail as well."""
        generation = started(storage)
        complete(storage, 1, generation)
        storage.cleanup(retain=3)
        self._complete_without_answer(storage, store, monkeypatch, 2, looks)
        for checkpoint_id in (3, 4):
            complete(storage, checkpoint_id, generation)
            storage.cleanup(retain=3)
        assert key(2) in storage.manifest_keys()
        assert len(store.list("chk-00000002-g00000001")) == 2
        point = restore_point(storage, 2)
        assert point is not None
        for ref in point.manifest.snapshots:
            storage.read_snapshot(ref, key(2))
        for checkpoint_id in (5, 6):
            complete(storage, checkpoint_id, generation)
            storage.cleanup(retain=3)
        assert storage.manifest_keys() == [key(4), key(5), key(6)]
        assert store.list("chk-00000002-g00000001") == []

    def test_its_files_go_if_it_is_not_there(
        self, storage: CheckpointStorage, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(path: str, data: object) -> bool:
            raise StorageError("no space left", path)

        generation = started(storage)
        complete(storage, 1, generation)
        storage.cleanup(retain=3)
        with monkeypatch.context() as patch:
            patch.setattr(store, "create", fail)
            with pytest.raises(StorageError, match="no space left"):
                complete(storage, 2, generation)
        complete(storage, 3, generation)
        storage.cleanup(retain=3)
        assert store.list("chk-00000002-g00000001") == []

    def _complete_without_answer(
        self,
        storage: CheckpointStorage,
        store: CountingStore,
        monkeypatch: pytest.MonkeyPatch,
        checkpoint_id: int,
        looks: int,
    ) -> None:
        create, exists, left = store.create, store.exists, [looks]

        def without_answer(path: str, data: bytes) -> bool:
            create(path, data)
            raise StorageError("no answer", path)

        def failing(path: str) -> bool:
            left[0] -= 1
            if left[0] >= 0:
                raise StorageError("no answer", path)
            return exists(path)

        monkeypatch.setattr(store, "exists", failing)
        with monkeypatch.context() as patch:
            patch.setattr(store, "create", without_answer)
            if looks:
                with pytest.raises(StorageError, match="no answer"):
                    complete(storage, checkpoint_id, 1)
                storage.cleanup(retain=3)
            else:
                complete(storage, checkpoint_id, 1)


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

    def test_leases_of_earlier_generations_go(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        for generation in (1, 2, 3):
            assert started(storage) == generation
            write_lease(store, Lease("job", "a run", generation, 1, LeaseTimes(5.0, 20.0)))
            complete(storage, generation, generation)
            storage.cleanup(retain=1)
            left = [path for path in store.list("generations") if path.endswith(".lease")]
            assert left == [f"generations/{generation:08}.lease"]

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
        monkeypatch.setattr(store, "delete_all", deleted.extend)
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

    def test_aborted_checkpoints_of_each_generation_of_a_program_are_deleted(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        for generation in (1, 2, 3):
            assert started(storage) == generation
            first = 3 * generation
            complete(storage, first, generation)
            storage.cleanup(retain=1)
            storage.write_snapshot(first + 1, generation, 0, 0, SECTIONS)
            complete(storage, first + 2, generation)
            storage.cleanup(retain=1)
            assert store.list(f"chk-{first + 1:08}-g{generation:08}") == []

    def test_what_killed_workers_leave_half_written_goes_with_the_next_generation(
        self, tmp_path: Path
    ) -> None:
        storage = CheckpointStorage(ObjectStore(str(tmp_path)), inline_bytes_max=0)
        complete(storage, 1, started(storage))
        started(storage)
        for generation in (1, 2):
            folder = tmp_path / f"chk-00000002-g{generation:08}"
            folder.mkdir()
            (folder / ".tmp-v0-s0.part-77-1").write_bytes(b"half")
        storage.sweep()
        assert [path.parent.name for path in tmp_path.rglob(".tmp-*")] == ["chk-00000002-g00000002"]
        assert not (tmp_path / "chk-00000002-g00000001").exists()

    def test_unneeded_files_go_without_a_newer_checkpoint_unless_a_manifest_needs_them(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        generation = started(storage)
        alone = storage.write_snapshot(1, generation, 0, 0, SECTIONS).path
        assert alone is not None
        storage.cleanup(retain=1, unneeded=[alone])
        assert store.list("chk-00000001-g00000001") == []
        needed = complete(storage, 2, generation).snapshots[0].path
        part = storage.write_snapshot(3, generation, 0, 0, SECTIONS).path
        other = storage.write_snapshot(3, generation, 0, 1, SECTIONS).path
        assert needed is not None
        assert part is not None
        storage.cleanup(retain=1, unneeded=[needed, part])
        assert needed in store.list()
        assert store.list("chk-00000003-g00000001") == [other]

    def test_failed_deletion_of_what_is_unneeded_is_tried_again(
        self, storage: CheckpointStorage, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(paths: object) -> None:
            raise StorageError("no permission")

        part = storage.write_snapshot(1, started(storage), 0, 0, SECTIONS).path
        assert part is not None
        with monkeypatch.context() as patch:
            patch.setattr(store, "delete_all", fail)
            with pytest.raises(StorageError):
                storage.cleanup(retain=1, unneeded=[part])
        storage.cleanup(retain=1)
        assert part not in store.list()

    def test_what_a_generation_restored_stays_until_its_first_checkpoint_though_it_was_deleted(
        self, storage: CheckpointStorage, store: CountingStore
    ) -> None:
        complete(storage, 1, started(storage))
        restored = complete(storage, 2, 1)
        generation = started(storage)
        storage.build_on(restored)
        store.delete("manifests/chk-00000002-g00000001.manifest")
        storage.cleanup(retain=1)
        assert len(store.list("chk-00000002-g00000001")) == 2
        assert storage.create_manifest(manifest(3, generation, restored.snapshots[:1]))
        storage.cleanup(retain=1)
        assert store.list("chk-00000002-g00000001") == [restored.snapshots[0].path]

    def test_steady_checkpoints_cost_few_operations(self, store: CountingStore) -> None:
        storage = CheckpointStorage(store, inline_bytes_max=10_000)
        generation = started(storage)
        for checkpoint_id in range(1, 6):
            store.operations.clear()
            complete(storage, checkpoint_id, generation)
            assert storage.is_current(generation)
            storage.append_history({"id": checkpoint_id})
            storage.cleanup(retain=2)
        assert store.operations == ["create", "exists", "exists", "write", "delete"]
