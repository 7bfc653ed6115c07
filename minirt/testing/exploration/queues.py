"""Queues as numbers: what is in them, in order."""

from __future__ import annotations

EMPTY = 0


class Queues:
    """Knows every queue that there was by its content; items are numbers too."""

    def __init__(self) -> None:
        self._contents: list[tuple[int, ...]] = [()]
        self._numbers: dict[tuple[int, ...], int] = {(): EMPTY}
        self._pushed: dict[tuple[int, int], int] = {}
        self._popped: dict[int, tuple[int, int]] = {}

    def __getitem__(self, queue: int) -> tuple[int, ...]:
        return self._contents[queue]

    def push(self, queue: int, item: int) -> int:
        """The queue with an item more at its end."""
        known = self._pushed.get((queue, item))
        if known is None:
            known = self._pushed[queue, item] = self._number((*self._contents[queue], item))
        return known

    def pop(self, queue: int) -> tuple[int, int]:
        """The first item, and the queue without it."""
        known = self._popped.get(queue)
        if known is None:
            first, *rest = self._contents[queue]
            known = self._popped[queue] = (first, self._number(tuple(rest)))
        return known

    def _number(self, content: tuple[int, ...]) -> int:
        number = self._numbers.setdefault(content, len(self._contents))
        if number == len(self._contents):
            self._contents.append(content)
        return number
