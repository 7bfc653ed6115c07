"""What every kind of storage must do; a new one inherits this class and offers a `store` fixture."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from minirt.errors import StorageError
from minirt.storage.store import ObjectMissingError, ObjectStore


class StorageContract:
    """Tests of an empty ObjectStore given by the fixture `store`."""

    races: ClassVar[int] = 30
    """How often several writers want to create the same object."""

    def test_what_was_written_is_read(self, store: ObjectStore) -> None:
        store.write("a/b/one", b"1")
        store.write("a/two", [b"2", b"", b"34"])
        store.write("empty", b"")
        assert [store.read(p) for p in ("a/b/one", "a/two", "empty")] == [b"1", b"234", b""]
        assert [store.size(p) for p in ("a/b/one", "a/two", "empty")] == [1, 3, 0]

    def test_a_range_is_read_as_far_as_there_is_something(self, store: ObjectStore) -> None:
        store.write("a", b"0123456789")
        store.write("empty", b"")
        ranges = [(0, 10), (3, 4), (8, 5), (10, 1), (99, 1), (0, 0)]
        found = [store.read_range("a", start, length) for start, length in ranges]
        assert found == [b"0123456789", b"3456", b"89", b"", b"", b""]
        assert store.read_range("empty", 0, 5) == b""
        with pytest.raises(ObjectMissingError):
            store.read_range("absent", 0, 1)

    def test_write_replaces(self, store: ObjectStore) -> None:
        store.write("a", b"long before")
        store.write("a", b"now")
        assert (store.read("a"), store.size("a"), store.list()) == (b"now", 3, ["a"])

    def test_listing_shows_what_is_there_now(self, store: ObjectStore) -> None:
        assert store.list() == store.list("a") == store.list("a/") == []
        store.write("a/2", b"22")
        store.write("a/1/x", b"1")
        store.write("ab", b"")
        assert store.list("a/") == store.list("a") == ["a/1/x", "a/2"]
        assert store.sizes() == {"a/1/x": 1, "a/2": 2, "ab": 0}
        store.delete("a/2")
        assert store.list("a") == ["a/1/x"]
        store.delete("a/1/x")
        assert (store.list("a"), store.list()) == ([], ["ab"])

    def test_existence_is_seen_at_once(self, store: ObjectStore) -> None:
        assert not store.exists("a/b")
        store.create("a/b", b"")
        assert store.exists("a/b")
        assert not store.exists("a")
        store.delete("a/b")
        assert not store.exists("a/b")

    def test_deleting_what_is_absent_is_fine(self, store: ObjectStore) -> None:
        store.delete("a/b")
        store.write("a/b", b"")
        store.delete("a/b")
        store.delete("a/b")

    def test_many_are_deleted_and_no_other(self, store: ObjectStore) -> None:
        for number in range(40):
            store.write(f"a/{number % 4}/{number}", b"x")
        store.write("a/kept", b"x")
        store.delete_all([])
        store.delete_all([f"a/{number % 4}/{number}" for number in range(41)])
        assert store.list() == ["a/kept"]

    def test_a_folder_that_was_emptied_can_be_written_again(self, store: ObjectStore) -> None:
        for _ in range(3):
            store.write("a/b/c", b"x")
            store.delete("a/b/c")
        assert store.create("a/b/c", b"y")

    def test_create_never_replaces(self, store: ObjectStore) -> None:
        assert store.create("a/b", [b"fir", b"st"])
        assert not store.create("a/b", b"second")
        assert store.read("a/b") == b"first"
        store.delete("a/b")
        assert store.create("a/b", b"third")

    @pytest.fixture
    def eager_threads(self) -> Iterator[None]:
        """Threads take turns so often that they meet in the middle of operations."""
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(interval_s)

    @pytest.mark.usefixtures("eager_threads")
    def test_create_has_exactly_one_winner(self, store: ObjectStore) -> None:
        barrier = threading.Barrier(8)

        def create(thread: int, path: str) -> bool:
            barrier.wait(timeout=30)
            return store.create(path, b"%d" % thread)

        with ThreadPoolExecutor(8) as pool:
            for attempt in range(self.races):
                path = f"claims/{attempt}"
                won = list(pool.map(create, range(8), [path] * 8))
                assert won.count(True) == 1
                assert store.read(path) == b"%d" % won.index(True)

    def test_readers_see_whole_objects_only(self, store: ObjectStore) -> None:
        contents = [bytes([n]) * 200_000 for n in range(4)]
        store.write("a", contents[0])
        with ThreadPoolExecutor(4) as pool:
            writes = [pool.submit(store.write, "a", contents[n % 4]) for n in range(20)]
            while not all(write.done() for write in writes):
                assert store.read("a") in contents
                assert store.list() == ["a"]

    def test_writing_and_deleting_in_the_same_folder_do_not_disturb_each_other(
        self, store: ObjectStore
    ) -> None:
        def come_and_go(thread: int) -> None:
            for _ in range(20):
                store.write(f"deep/folder/{thread}", b"x")
                store.delete(f"deep/folder/{thread}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(come_and_go, range(4)))
        assert store.list() == []

    def test_missing_object_is_named(self, store: ObjectStore) -> None:
        for action in (store.read, store.size):
            with pytest.raises(ObjectMissingError) as caught:
                action("no/such")
            assert caught.value.path == store.full_path("no/such")
            assert caught.value.path in str(caught.value)

    @pytest.mark.parametrize("path", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a/"])
    def test_paths_outside_the_root_are_refused(self, store: ObjectStore, path: str) -> None:
        for action in (store.read, store.delete, store.exists):
            with pytest.raises(StorageError, match="relative path"):
                action(path)
        with pytest.raises(StorageError, match="relative path"):
            store.write(path, b"")

    def test_a_pickled_store_is_the_same_store(self, store: ObjectStore) -> None:
        store.write("a", b"1")
        assert pickle.loads(pickle.dumps(store)).read("a") == b"1"

    def test_a_store_works_after_a_fork(self, store: ObjectStore) -> None:
        store.write("a", b"1")
        child = os.fork()
        if child == 0:
            try:
                store.write("b", store.read("a"))
                os._exit(0 if store.list() == ["a", "b"] else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
