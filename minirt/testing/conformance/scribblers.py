"""Functions that use every record up: they change what they were given, and what they have handed over.

Whoever holds such a record without owning it gets nonsense, or an error. The records are lists here, with
a list in them; those of all other functions are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def use_up(record: Any) -> None:
    """Leave nothing of a record that can be changed."""
    for part in record:
        if isinstance(part, list):
            part.clear()
    if isinstance(record, list):
        record.clear()


class Scribbler:
    """Writes each record into the same lists as the one before."""

    def __init__(self) -> None:
        self._notes: list[Any] = []
        self._record: list[Any] = []

    def write(self, path: Any, time: int, notes: Iterable[Any]) -> list[Any]:
        self._notes[:] = notes
        self._record[:] = (path, time, self._notes)
        return self._record


class Rename(Scribbler):
    """For `map`: the record with a longer path."""

    def __init__(self, *suffix: Any) -> None:
        super().__init__()
        self._suffix = suffix

    def __call__(self, record: Any) -> Any:
        path, time, notes = record
        notes = list(notes)
        use_up(record)
        return self.write((*path, *self._suffix), time, notes)


class Copy(Scribbler):
    """For `flat_map`: the record twice."""

    def __call__(self, record: Any) -> Iterable[Any]:
        path, time, notes = record
        notes = list(notes)
        use_up(record)
        for copy in range(2):
            yield self.write((*path, copy), time, notes)
        use_up(self._record)


class Sieve:
    """For `filter`: uses the record up that it let through last."""

    def __init__(self, keep: Callable[[Any], bool]) -> None:
        self._keep = keep
        self._last: Any = ()

    def __call__(self, record: Any) -> bool:
        use_up(self._last)
        self._last = record
        return self._keep(record[0])


class Regather:
    """For `map_batches`: gives out the same list each time."""

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def __call__(self, rows: list[Any]) -> list[Any]:
        for row in self._rows:
            use_up(row)
        self._rows[:] = rows
        rows.clear()
        return self._rows
