"""Local copies of checkpoint files: read instead of the object while they are whole, and never needed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from minirt.errors import StorageError
from minirt.storage.store import ObjectMissingError, ObjectStore
from tests.contracts.storage_contract import StorageContract

FILE = "chk-00000007-g00000001/v0-s0.part"
CONTENT = bytes(range(256)) * 10_000
MANY = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return near(tmp_path)


def near(folder: Path, bytes_max: int = MANY) -> ObjectStore:
    """As in a process of its own."""
    return ObjectStore(str(folder / "store")).near(str(folder / "copies"), bytes_max)


def copies(folder: Path) -> list[Path]:
    return sorted((folder / "copies").glob("*"))


class TestNearStore(StorageContract):
    """What is no file of a checkpoint."""


def test_what_this_host_has_stored_is_read_without_the_object(tmp_path: Path) -> None:
    near(tmp_path).write(FILE, iter([CONTENT[:1000], CONTENT[1000:]]))
    (tmp_path / "store" / FILE).unlink()
    another = pickle.loads(pickle.dumps(near(tmp_path)))
    assert another.read_range(FILE, 999, 5000) == CONTENT[999:5999]
    assert another.read_range(FILE, len(CONTENT) - 3, 10) == CONTENT[-3:]
    assert another.read_range(FILE, len(CONTENT) + 3, 10) == b""
    assert another.read(FILE) == CONTENT
    assert another.near("elsewhere", 1) is another


def test_what_another_host_has_stored_is_read_from_there(tmp_path: Path) -> None:
    ObjectStore(str(tmp_path / "store")).write(FILE, CONTENT)
    assert near(tmp_path).read(FILE) == CONTENT
    assert not copies(tmp_path)


def cut(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[:-1])


def flip(copy: Path) -> None:
    data = bytearray(copy.read_bytes())
    data[500] ^= 1
    copy.write_bytes(data)


def empty(copy: Path) -> None:
    copy.write_bytes(b"")


def replace(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()


@pytest.mark.parametrize("damage", [cut, flip, empty, replace])
def test_a_copy_that_is_not_whole_is_not_read(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    near(tmp_path).write(FILE, CONTENT)
    [copy] = copies(tmp_path)
    damage(copy)
    assert near(tmp_path).read_range(FILE, 400, 200) == CONTENT[400:600]
    assert f"the local copy of {FILE} is of no use" in caplog.text


def test_copies_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    store = near(tmp_path, bytes_max=250_000)
    files = [f"chk-{number:08}-g00000001/v0-s0.part" for number in range(5)]
    for file in files:
        store.write(file, CONTENT[:100_000])
    assert [copy.name.split("+")[0] for copy in copies(tmp_path)] == [
        "chk-00000003-g00000001",
        "chk-00000004-g00000001",
    ]
    assert [store.read(file) for file in files] == [CONTENT[:100_000]] * 5


def test_a_write_that_fails_leaves_no_copy_and_takes_an_older_one_away(tmp_path: Path) -> None:
    store = near(tmp_path)
    store.write(FILE, CONTENT)

    def breaks() -> object:
        yield b"new"
        raise OSError("the network is gone")

    with pytest.raises(StorageError, match="the network is gone"):
        store.write(FILE, breaks())  # type: ignore[arg-type]
    assert not copies(tmp_path)


def test_a_disk_that_takes_no_copy_costs_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "copies").write_text("no folder")
    store = near(tmp_path)
    store.write(FILE, CONTENT)
    assert store.read(FILE) == CONTENT
    assert "no local copy is kept" in caplog.text


def test_what_is_deleted_and_what_is_no_checkpoint_has_no_copy(tmp_path: Path) -> None:
    store = near(tmp_path)
    store.write("generations/lease", b"x")
    assert not copies(tmp_path)
    for number in range(2):
        store.write(FILE, CONTENT)
        store.delete(FILE) if number else store.delete_all([FILE])
        assert not copies(tmp_path)
        with pytest.raises(ObjectMissingError):
            store.read(FILE)
