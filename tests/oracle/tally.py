"""What has arrived on one track, and what is wrong with it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Faults(NamedTuple):
    """Numbers of values. `invented` are those that no source has given out."""

    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    invented: int = 0

    def plus(self, other: Faults) -> Faults:
        return Faults(*(one + another for one, another in zip(self, other, strict=True)))


class Tally:
    """Counts sequence numbers, which should come as 0, 1, 2 and so on."""

    __slots__ = ("_ahead", "_disordered", "_duplicated", "_highest", "_next")

    def __init__(self) -> None:
        self._next = 0
        """All below this have come."""
        self._ahead: set[int] = set()
        """What has come beyond."""
        self._highest = -1
        self._duplicated = 0
        self._disordered = 0

    def add(self, sequence: int) -> None:
        if sequence < self._next or sequence in self._ahead:
            self._duplicated += 1
            return
        if sequence < self._highest:
            self._disordered += 1
        self._highest = max(self._highest, sequence)
        self._ahead.add(sequence)
        while self._next in self._ahead:
            self._ahead.remove(self._next)
            self._next += 1

    def faults(self, end: int) -> Faults:
        """What is wrong once everything has come, if `end` values were given out."""
        missing = set(range(self._next, end)) - self._ahead
        invented = max(0, self._next - end) + sum(sequence >= end for sequence in self._ahead)
        return Faults(len(missing), self._duplicated, self._disordered, invented)

    def to_plain(self) -> list[Any]:
        """As state keeps it."""
        return [self._next, sorted(self._ahead), self._highest, self._duplicated, self._disordered]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Tally:
        tally = cls()
        tally._next, ahead, tally._highest, tally._duplicated, tally._disordered = plain
        tally._ahead = set(ahead)
        return tally
