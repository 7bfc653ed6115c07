"""The checkpoint storage: snapshots, generations, manifests and history."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    StorageError,
    SupersededError,
    UserCodeError,
)
from minirt.protocol.manifest import (
    GenerationClaim,
    SinkHandles,
    SnapshotRef,
)
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.storage.scenario import (
    SECTIONS,
    CountingStore,
    complete,
    key,
    manifest,
    next_id,
    restore_point,
    started,
)


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
        with pytest.raises(CorruptCheckpointError, match=r"missing.*chk-00000007.*v0-s0\.part"):
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

    def test_who_was_replaced_does_not_take_the_job_back(self, store: CountingStore) -> None:
        first, second = CheckpointStorage(store, 0), CheckpointStorage(store, 0)
        assert not first.is_superseded()
        assert [first.claim_generation(), first.claim_generation()] == [1, 2]
        assert not first.is_superseded()
        assert second.claim_generation() == 3
        assert first.is_superseded()
        assert not second.is_superseded()
        for _ in range(2):
            with pytest.raises(SupersededError, match=f": process {os.getpid()} of host "):
                first.claim_generation()
        assert second.superseded().by is None
        assert second.claim_generation() == 4

    def test_who_cannot_read_the_claim_of_the_other_is_replaced_all_the_same(
        self, store: CountingStore
    ) -> None:
        class Unreadable(ObjectStore):
            def read(self, path: str) -> bytes:
                raise SystemExit("nothing to read")

        first = CheckpointStorage(Unreadable(store.root), 0)
        assert first.claim_generation() == 1
        assert CheckpointStorage(store, 0).claim_generation() == 2
        assert first.superseded().by is None

    def test_a_claim_that_got_no_answer_is_nobody_elses(self, store: CountingStore) -> None:
        class Unanswered(ObjectStore):
            answers = True

            def create(self, path: str, data: bytes | Sequence[bytes]) -> bool:
                created = super().create(path, data)
                if not self.answers:
                    raise StorageError("no answer", path)
                return created

        lossy = Unanswered(store.root, pauses_s=())
        storage = CheckpointStorage(lossy, 0)
        assert storage.claim_generation() == 1
        lossy.answers = False
        with pytest.raises(StorageError, match="no answer"):
            storage.claim_generation()
        lossy.answers = True
        assert not storage.is_superseded()
        assert storage.claim_generation() == 2

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
        with pytest.raises(UserCodeError, match="handles of sink 'out'"):
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
            restore_point(local, "latest")

    def test_next_id_exceeds_what_was_restored_from_elsewhere(
        self, local: CheckpointStorage, tmp_path: Path
    ) -> None:
        fresh = CheckpointStorage(ObjectStore(str(tmp_path / "fresh")), 0)
        assert (next_id(local), next_id(fresh)) == (4, 1)
        assert next_id(fresh, restore_point(fresh, local.store.root)) == 4


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
