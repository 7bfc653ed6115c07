"""How other threads hand results to whoever works in a loop of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Mail = TypeVar("Mail")


def _nobody_waits() -> None:
    """The owner looks by itself."""


class Mailbox(Generic[Mail]):
    """Any thread may call `put`; only the thread of the owner calls the rest. `wake` ends its wait."""

    def __init__(self, wake: Callable[[], None] = _nobody_waits) -> None:
        self._wake = wake
        self._arrived: deque[Mail] = deque()
        """Shared by all threads: nobody iterates over it."""
        self._waiting: deque[Mail] = deque()

    def put(self, mail: Mail) -> None:
        """Leave something for the owner. It is there before the owner wakes."""
        self._arrived.append(mail)
        self._wake()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._arrived)

    def take(self) -> Mail | None:
        """The oldest mail; None if there is none."""
        self._collect()
        return self._waiting.popleft() if self._waiting else None

    def waiting(self) -> tuple[Mail, ...]:
        """All that was not taken yet, the oldest first: what a snapshot may have to hold."""
        self._collect()
        return tuple(self._waiting)

    def _collect(self) -> None:
        while self._arrived:
            self._waiting.append(self._arrived.popleft())
