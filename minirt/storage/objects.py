"""What a kind of storage must offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Objects(Protocol):
    """The operations that a kind of storage must offer. Paths are relative and already checked.

    A read, listing or existence check that starts after a write, create or delete returned must see
    it. Raises FileNotFoundError where an object to be read is missing, and anything else on failure.
    """

    root: str
    """For messages: what a path is relative to."""

    def read(self, path: str) -> bytes: ...
    def read_range(self, path: str, start: int, length: int) -> bytes: ...
    def write(self, path: str, chunks: Iterable[bytes]) -> None: ...
    def create(self, path: str, chunks: Iterable[bytes]) -> bool: ...
    def delete(self, path: str) -> None: ...
    def delete_all(self, paths: Sequence[str]) -> None: ...
    def sizes(self, prefix: str) -> dict[str, int]: ...
    def size(self, path: str) -> int: ...
    def sweep(
        self,
        older_than_s: float,
        is_own: Callable[[str], bool],
        is_abandoned: Callable[[str], bool],
    ) -> None: ...
