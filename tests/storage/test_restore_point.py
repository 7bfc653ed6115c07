"""Which checkpoint a job starts from: by name, from copies, past damage, after restarts."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    StorageError,
)
from minirt.protocol.manifest import ManifestKey, SnapshotRef
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.storage.scenario import (
    complete,
    key,
    manifest,
    next_id,
    restore_point,
    started,
    storage_of,
)


def damaged(*ids: int) -> dict[ManifestKey, CorruptCheckpointError]:
    return {key(id): CorruptCheckpointError("torn", f"chk-{id}") for id in ids}


class TestRestorePoint:
    def test_empty_storage_has_none(self, storage: CheckpointStorage) -> None:
        assert restore_point(storage, "latest") is None

    def test_latest_is_the_newest_that_counts(self, storage: CheckpointStorage) -> None:
        first = started(storage)
        complete(storage, 1, first)
        second = started(storage)
        zombie = complete(storage, 2, first)
        point = restore_point(storage, "latest")
        assert point is not None
        assert (point.manifest.key, point.base, point.skipped) == (key(1), key(1), ())
        complete(storage, 2, second)
        point = restore_point(storage, "latest")
        assert point is not None
        assert point.manifest.key == key(2, second) != zombie.key

    def test_checkpoint_is_chosen_by_id(self, local: CheckpointStorage) -> None:
        point = restore_point(local, 2)
        assert point is not None
        assert point.manifest.key == point.base == key(2)
        with pytest.raises(ConfigurationError, match=r"no checkpoint 9 in .*holds 1, 2, 3"):
            restore_point(local, 9)

    def test_words_that_name_no_checkpoint_lead_to_the_one_that_does(
        self, local: CheckpointStorage
    ) -> None:
        with pytest.raises(ConfigurationError, match="no checkpoint at 'newest'; \"latest\" is"):
            restore_point(local, "newest")

    def test_checkpoint_left_behind_is_not_chosen_by_id(self, local: CheckpointStorage) -> None:
        generation = local.claim_generation()
        assert local.resolve_generation(generation, key(1))
        with pytest.raises(ConfigurationError, match="left behind"):
            restore_point(local, 3)
        point = restore_point(local, "chk-00000003-g00000001")
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
        point = restore_point(local, form.format(root=local.store.root))
        assert point is not None
        assert point.manifest.key == point.base == key(2)

    @pytest.mark.parametrize("form", ["{root}", "{root}/chk-00000003-g00000001"])
    def test_copy_of_a_storage_restores_without_the_original(
        self, local: CheckpointStorage, folder: Path, tmp_path: Path, form: str
    ) -> None:
        copy = tmp_path / "elsewhere"
        shutil.copytree(folder, copy)
        shutil.rmtree(folder)
        point = restore_point(local, form.format(root=copy))
        assert point is not None
        assert (point.manifest.checkpoint_id, point.base) == (3, None)
        states = [
            storage_of(local, point).read_snapshot(r, point.manifest.key)
            for r in point.manifest.snapshots
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
            restore_point(local, which.format(root=local.store.root))

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
            restore_point(local, "latest")
        assert caught.value.path == str(part)
        assert f'restore="{folder}/chk-00000002-g00000001"' in str(caught.value)
        point = restore_point(local, "latest", allow_fallback=True)
        assert point is not None
        assert point.manifest.key == point.base == key(2)
        assert [error.path for error in point.skipped] == [str(part)]

    def test_damage_noticed_by_workers_is_passed_over(self, local: CheckpointStorage) -> None:
        point = restore_point(local, "latest", damaged=damaged(3, 2))
        assert point is not None
        assert point.base == key(1)

    def test_job_never_starts_empty_because_all_is_damaged(self, local: CheckpointStorage) -> None:
        with pytest.raises(CorruptCheckpointError, match="none of 3 checkpoints"):
            restore_point(local, "latest", damaged=damaged(3, 2, 1))
        for torn in (1, 2, 3):
            local.store.write(f"manifests/chk-0000000{torn}-g00000001.manifest", b"?")
        with pytest.raises(CorruptCheckpointError, match="none of 3 checkpoints"):
            restore_point(local, "latest", allow_fallback=True)

    def test_manifest_cannot_point_outside_of_the_storage(self, local: CheckpointStorage) -> None:
        ref = SnapshotRef(0, 0, "../../etc/passwd", None, 10, 0)
        assert local.create_manifest(manifest(4, 1, (ref,)))
        with pytest.raises(CorruptCheckpointError, match="outside"):
            restore_point(local, "latest")
        with pytest.raises(StorageError, match="relative path"):
            local.read_snapshot(ref, key(4))


@given(
    st.lists(
        st.sampled_from(["checkpoint", "zombie checkpoint", "restart", "cleanup"]), max_size=25
    )
)
def test_restart_finds_the_last_checkpoint_of_the_current_generation(steps: list[str]) -> None:
    store = ObjectStore(f"memory://{uuid.uuid4()}")
    current = CheckpointStorage(store, 0)
    replaced: list[tuple[CheckpointStorage, int]] = []
    generation, upcoming, newest = started(current), 1, None
    for step in steps:
        match step:
            case "checkpoint":
                newest = complete(current, upcoming, generation).key
                upcoming += 1
            case "zombie checkpoint" if replaced:
                storage, old = replaced[-1]
                complete(storage, next_id(storage), old)
                assert not storage.is_current(old)
            case "restart":
                replaced.append((current, generation))
                current = CheckpointStorage(store, 0)
                generation = started(current)
                upcoming = next_id(current)
            case "cleanup":
                current.cleanup(retain=1)
        point = restore_point(current, "latest")
        assert (point.manifest.key if point else None) == newest
