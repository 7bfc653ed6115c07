"""Waits until something can be read, of many that are mostly the same from one look to the next."""

from __future__ import annotations

import selectors
from collections.abc import Collection
from typing import Protocol


class Readable(Protocol):
    """A connection, a listener: what the kernel can watch."""

    def fileno(self) -> int: ...

    def __hash__(self) -> int: ...


class Watch:
    """Tells the kernel only of what has come and gone since the last look."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._watched: set[Readable] = set()

    def readable(self, watched: Collection[Readable], timeout: float | None) -> list[Readable]:
        """Those that can be read, after at most `timeout` seconds. Closed ones are to be left out."""
        wanted = set(watched)
        # The descriptor of one that has gone may already be that of one that has come.
        for gone in self._watched - wanted:
            self._selector.unregister(gone)
        for come in wanted - self._watched:
            self._selector.register(come, selectors.EVENT_READ)
        self._watched = wanted
        ready: list[Readable] = [key.fileobj for key, _ in self._selector.select(timeout)]  # type: ignore[misc]
        return ready

    def close(self) -> None:
        self._selector.close()
