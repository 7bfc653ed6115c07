"""Reads the bytes of parts, wherever they lie: in files of their own, or in files that several share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from minirt.errors import CorruptCheckpointError
from minirt.protocol.part_paths import file_of, range_of
from minirt.storage.store import ObjectMissingError, ObjectStore


@contextmanager
def must_exist(store: ObjectStore, path: str) -> Iterator[None]:
    """Raise CorruptCheckpointError if the body finds that there is nothing."""
    try:
        yield
    except ObjectMissingError as error:
        raise CorruptCheckpointError("missing", store.full_path(path)) from error


def read_stored(store: ObjectStore, path: str) -> bytes:
    """An object or part, or what is left of it. Raises CorruptCheckpointError if its file is missing."""
    found = range_of(path)
    with must_exist(store, path):
        return store.read(path) if found is None else store.read_range(file_of(path), *found)


def read_range_of_part(store: ObjectStore, path: str, start: int, length: int) -> bytes:
    """The bytes of a part from `start` on, as many as there are. Raises CorruptCheckpointError."""
    found = range_of(path)
    if found is not None:
        first, whole = found
        start, length = first + start, max(0, min(length, whole - start))
    with must_exist(store, path):
        return store.read_range(file_of(path), start, length)


def size_left(path: str, file_bytes: int) -> int:
    """How much of a part there is if its file has so many bytes."""
    found = range_of(path)
    return file_bytes if found is None else max(0, min(found[1], file_bytes - found[0]))
