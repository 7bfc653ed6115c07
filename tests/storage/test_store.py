"""Local files and memory as storage: the contract, and what is particular to each."""

from __future__ import annotations

import errno
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from minirt.errors import ConfigurationError, StorageError
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.local_files import LocalFiles
from minirt.storage.store import ObjectStore
from tests.contracts.storage_contract import StorageContract


class TestLocalFiles(StorageContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return ObjectStore(str(tmp_path / "checkpoints" / "job"))


class TestMemory(StorageContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return ObjectStore(f"memory://{uuid.uuid4()}/job")


@pytest.fixture
def local(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "store"))


def files_under(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names]


def test_constructing_and_reading_create_nothing(tmp_path: Path, local: ObjectStore) -> None:
    assert local.list() == []
    assert not local.exists("a")
    local.delete("a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "local://{path}", "{path}/"])
def test_forms_of_a_local_root_are_the_same(tmp_path: Path, form: str) -> None:
    assert ObjectStore(form.format(path=tmp_path)).root == str(tmp_path)


def test_relative_root_stays_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ObjectStore("checkpoints")
    monkeypatch.chdir("/")
    store.write("a", b"1")
    assert (tmp_path / "checkpoints" / "a").read_bytes() == b"1"


def test_half_written_files_of_a_crashed_writer_are_invisible_and_swept(
    tmp_path: Path, local: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.write("a/kept", b"1")
    others = [tmp_path / "store" / ".tmp-notes", tmp_path / "store" / "b" / "c" / ".tmp-scans"]
    for file in others:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"not of minirt")
        os.utime(file, (time.time() - 7200,) * 2)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "fsync", lambda _: os._exit(9))
        local.write("a/b", b"half")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    here = tmp_path / "store" / "a"
    assert len(files_under(here)) == 2
    assert local.list("a") == ["a/kept"]
    local.sweep(3600, lambda folder: folder == "a", lambda path: False)
    assert len(files_under(here)) == 2
    (left,) = (tmp_path / "store" / "a").glob(".tmp-*")
    os.utime(left, (time.time() - 7200,) * 2)
    local.sweep(3600, lambda folder: folder == "a", lambda path: False)
    assert files_under(here) == ["kept"]
    assert all(file.exists() for file in others)


@pytest.mark.parametrize("operation", ["write", "create"])
def test_failed_flush_is_reported_and_leaves_nothing(
    tmp_path: Path, local: ObjectStore, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    local.write("a/old", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="No space left on device") as caught:
            getattr(local, operation)("a/new", b"2")
    assert caught.value.path == str(tmp_path / "store" / "a" / "new")
    assert files_under(tmp_path) == ["old"]
    assert getattr(local, operation)("a/new", b"2") in (None, True)


@pytest.mark.parametrize("operation", ["write", "create"])
def test_objects_are_flushed_before_they_become_visible(
    local: ObjectStore, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    steps: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def recorded(*arguments: Any) -> Any:
            steps.append(name)
            return real(*arguments)

        monkeypatch.setattr(os, name, recorded)

    local.write("first", b"")
    for name in ("fsync", "replace", "link"):
        record(name)
    getattr(local, operation)("a", b"1")
    assert steps == ["fsync", "replace" if operation == "write" else "link", "fsync"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_reported_keeps_the_old_object_and_recovers(small_disk: Path) -> None:
    store = ObjectStore(str(small_disk / "store"))
    store.write("a", b"old")
    store.write("filler", b"x" * 150_000)
    with pytest.raises(StorageError, match="No space left on device"):
        store.write("a", b"y" * 150_000)
    with pytest.raises(StorageError, match="No space left on device"):
        store.create("b", b"y" * 150_000)
    assert (store.read("a"), store.list()) == (b"old", ["a", "filler"])
    store.delete("filler")
    store.write("a", b"y" * 150_000)
    assert store.size("a") == 150_000


def test_folder_in_the_way_is_reported_with_path_and_cause(local: ObjectStore) -> None:
    local.write("a", b"")
    with pytest.raises(StorageError, match="Not a directory") as caught:
        local.write("a/b", b"")
    assert caught.value.path == local.full_path("a/b")


def test_emptied_folders_disappear_but_not_the_root(tmp_path: Path, local: ObjectStore) -> None:
    local.write("a/b/c", b"")
    local.write("a/d", b"")
    local.delete("a/b/c")
    assert [p.name for p in (tmp_path / "store" / "a").iterdir()] == ["d"]
    local.delete("a/d")
    assert list((tmp_path / "store").iterdir()) == []


class Bucket(MemoryFileSystem):
    """An object store with buckets that must exist, and its own kinds of errors."""

    protocol = "bucket"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    buckets: set[str] = set()
    forbidden = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if self.forbidden:
            raise RuntimeError("AccessDenied: not your bucket")
        if not self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        super().pipe_file(path, value, mode=mode, **kwargs)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.buckets.add(path)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    monkeypatch.setattr(Bucket, "store", {})
    monkeypatch.setattr(Bucket, "buckets", set())
    return ObjectStore("bucket://data/job")


def test_a_missing_folder_is_made_by_the_first_write(bucket: ObjectStore) -> None:
    assert bucket.list() == []
    bucket.write("a", b"1")
    assert bucket.list() == ["a"]


def test_error_of_a_client_library_becomes_a_storage_error(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "forbidden", True)
    with pytest.raises(StorageError, match="AccessDenied: not your bucket") as caught:
        bucket.write("a", b"1")
    assert caught.value.path == "bucket://data/job/a"


def test_storage_without_atomic_create_is_refused(bucket: ObjectStore) -> None:
    with pytest.raises(ConfigurationError, match="no atomic create"):
        bucket.create("a", b"1")


class Flaky:
    """Objects of which every third access fails."""

    def __init__(self, objects: Any, error: type[Exception]) -> None:
        self.root = objects.root
        self.accesses = 0
        self._objects = objects
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def access(*arguments: Any, **named: Any) -> Any:
            self.accesses += 1
            if self.accesses % 3:
                raise self._error("not now")
            return getattr(self._objects, name)(*arguments, **named)

        return access


@pytest.fixture
def flaky(tmp_path: Path) -> Iterator[Any]:
    local = LocalFiles(str(tmp_path / "store"))
    local.write("a/b", [b"content"])
    return lambda error: (
        objects := Flaky(local, error),
        ObjectStore("", objects=objects, pauses_s=(0, 0, 0)),
    )


def test_what_only_looks_is_tried_again(flaky: Any) -> None:
    objects, store = flaky(TimeoutError)
    assert store.read("a/b") == b"content"
    assert store.read_range("a/b", 3, 2) == b"te"
    assert (store.size("a/b"), store.exists("a/b"), store.list("a")) == (7, True, ["a/b"])
    assert objects.accesses == 15


def test_what_changes_something_is_not(flaky: Any) -> None:
    objects, store = flaky(TimeoutError)
    for change in (lambda: store.write("x", b""), lambda: store.delete("x")):
        with pytest.raises(StorageError, match="not now"):
            change()
    assert objects.accesses == 2


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, ValueError])
def test_what_would_fail_again_is_tried_once(flaky: Any, error: type[Exception]) -> None:
    objects, store = flaky(error)
    with pytest.raises(StorageError, match="not now"):
        store.read("a/b")
    assert objects.accesses == 1


def test_attempts_have_an_end(flaky: Any) -> None:
    objects, _ = flaky(TimeoutError)
    store = ObjectStore("", objects=objects, pauses_s=(0,))
    with pytest.raises(StorageError, match="not now"):
        store.read("a/b")
    assert objects.accesses == 2


@pytest.mark.parametrize(
    ("failing", "generations"),
    [([True], [1]), ([False, True], [1])],
    ids=["the claim, which its own first attempt has taken", "the look whether conditions count"],
)
def test_a_claim_is_tried_again_without_a_gap(
    failing: list[bool], generations: list[int], tmp_path: Path, monkeypatch: Any
) -> None:
    store = ObjectStore(str(tmp_path), pauses_s=(0, 0))
    create, to_come = store.create, [*failing]

    def without_answer(path: str, data: Any) -> bool:
        created = create(path, data)
        if to_come and to_come.pop(0):
            raise StorageError("no answer", path)
        return created

    monkeypatch.setattr(store, "create", without_answer)
    storage = CheckpointStorage(store, 0)
    assert storage.claim_generation() == generations[-1]
    assert [claim.generation for claim in storage.claims()] == generations
