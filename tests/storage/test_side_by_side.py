"""Accesses that are made at once."""

from __future__ import annotations

import threading

import pytest

from minirt.errors import StorageError
from minirt.storage.side_by_side import AT_ONCE, side_by_side


def test_they_are_made_at_once_and_not_more_than_so_many() -> None:
    together, most, now = threading.Barrier(AT_ONCE), 0, 0
    lock = threading.Lock()

    def access(path: str) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        together.wait(30)  # Until there are so many.
        with lock:
            now -= 1

    side_by_side(access, [str(number) for number in range(3 * AT_ONCE)])
    assert most == AT_ONCE


@pytest.mark.parametrize("count", [1, 5])
def test_an_error_is_raised_once_all_were_tried(count: int) -> None:
    tried = set[str]()

    def access(path: str) -> None:
        tried.add(path)
        raise StorageError(path)

    with pytest.raises(StorageError, match=r"^\d$"):
        side_by_side(access, [str(number) for number in range(count)])
    assert len(tried) == count
