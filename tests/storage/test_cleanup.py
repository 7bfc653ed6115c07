"""What is deleted, when, and how little that costs."""

from __future__ import annotations

import pickle

import pytest

from minirt.errors import (
    ProtocolError,
    StorageError,
)
from minirt.storage.checkpoints import CheckpointStorage
from tests.storage.scenario import SECTIONS, CountingStore, complete, key, manifest, started


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
