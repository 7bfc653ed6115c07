"""Bound handles of state that expires, and what removes it in the background.

The time at which an entry was last touched is in a table of its own beside that of the values, with the
same keys: so checkpoints, rescales and incremental snapshots treat it like any other state, and state from
before the ttl can be read. An entry without a time is as old as the restore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from minirt.state.expiry import Agenda, StateClock, TimeToLive, Turns
from minirt.state.handles import Handle, ListState, MapState, ValueState
from minirt.state.keyed import KeyedState

PIECE_ENTRIES = 4096
"""So many entries are looked at in one go, a few milliseconds' worth; then records have their turn."""

_NOTHING: Any = object()

Pairs = tuple[list[Any], list[Any]]
"""Keys, and their values."""


def times_name(name: str, clock: str) -> str:
    """The name of the table with the times of a state. Those of another clock mean nothing."""
    return f"{name}@{clock}"


class Expiring(Handle, ABC):
    """What all kinds have in common. A subclass also is the handle of its kind."""

    def begin(self, name: str, ttl: TimeToLive, clock: StateClock) -> None:
        """Called once the handle is bound and its state restored."""
        self._ttl_ms = ttl.ms
        self._reads_refresh = ttl.refresh == "read"
        self._clock = clock
        self._times = self._state.table(times_name(name, ttl.clock))
        self._agenda = Agenda(ttl.ms)
        self._agenda.begin(*self._known())
        self._state.trim(name, self._trimmer(self._trimmed))
        self._state.trim(times_name(name, ttl.clock), self._trimmer(self._trimmed_times))

    @property
    def due_at(self) -> float | None:
        """When there are entries to look at, by the monotonic clock."""
        at = self._agenda.next_at
        return None if at is None else self._clock.due_at(at)

    def sweep(self, count: int) -> int:
        """Look at so many entries at most that may have expired; returns how many that were."""
        now = self._clock.for_all()
        if now is None:
            return 0
        entries = self._agenda.take(now, count)
        if entries:
            self._examine(entries, now)
        return len(entries)

    def give_back(self) -> None:
        """Give back the memory of many entries that are gone."""
        self._state.shrink()

    def _trimmer(self, trimmed: Callable[[Any, Any, int], Any]) -> Callable[[], Any]:
        def as_of_now() -> Callable[[Sequence[Any], Sequence[Any]], Pairs] | None:
            now = self._clock.for_all()
            if now is None:
                return None
            limit = now - self._ttl_ms

            def trim(keys: Sequence[Any], values: Sequence[Any]) -> Pairs:
                kept_keys, kept = [], []
                for key, value in zip(keys, values, strict=True):
                    left = trimmed(key, value, limit)
                    if left is not _NOTHING:
                        kept_keys.append(key)
                        kept.append(left)
                return kept_keys, kept

            return trim

        return as_of_now

    @abstractmethod
    def _known(self) -> tuple[list[Any], Set[Any]]:
        """All restored entries, and those that have no time."""

    @abstractmethod
    def _examine(self, entries: Sequence[Any], now: int) -> None:
        """Remove those entries that have expired, and put the others on the agenda again."""

    @abstractmethod
    def _trimmed(self, key: Any, value: Any, limit: int) -> Any:
        """What was touched after `limit` of the value of a key, `_NOTHING` if nothing was."""

    @abstractmethod
    def _trimmed_times(self, key: Any, times: Any, limit: int) -> Any:
        """As `_trimmed`, of the times of a key."""


class ExpiringValue(Expiring, ValueState):
    """An entry is a key."""

    def get(self) -> Any:
        key = self._state.key
        value = self._table.get(key, _NOTHING)
        if value is _NOTHING:
            return self._custody.lend(self._default)
        now, time = self._clock.now(), self._times.get(key)
        if time is not None and now - time >= self._ttl_ms:
            self.clear()
            return self._custody.lend(self._default)
        if self._reads_refresh or time is None:
            self._touch(key, time, now)
        return self._custody.lend(value)

    def set(self, value: Any) -> None:
        key = self._state.key
        self._table[key] = self._custody.take(value)
        self._touch(key, self._times.get(key), self._clock.now())

    def clear(self) -> None:
        key = self._state.key
        self._table.pop(key, None)
        if self._times.pop(key, None) is not None:
            self._agenda.leave(key)

    def _touch(self, key: Any, time: int | None, now: int) -> None:
        if time is None:
            self._times[key] = now
            self._agenda.enter(key, now + self._ttl_ms)
        elif now > time:
            self._times[key] = now

    def _known(self) -> tuple[list[Any], Set[Any]]:
        _drop_without_value(self._state, self._times, self._table)
        return list(self._table), self._table.keys() - self._times.keys()

    def _examine(self, entries: Sequence[Any], now: int) -> None:
        table, times, agenda, limit = self._table, self._times, self._agenda, now - self._ttl_ms
        gone, without_time = [], []
        for key in entries:
            time = times.get(key)
            if time is None:
                agenda.forget(key)
                if key in table:
                    without_time.append(key)
            elif time <= limit:
                gone.append(key)
            else:
                agenda.put(key, time + self._ttl_ms)
        self._state.change(gone)
        for key in gone:
            del times[key]
            table.pop(key, None)
        self._state.change(without_time)
        for key in without_time:
            times[key] = now
            agenda.put(key, now + self._ttl_ms)

    def _trimmed(self, key: Any, value: Any, limit: int) -> Any:
        return value if self._times.get(key, limit + 1) > limit else _NOTHING

    def _trimmed_times(self, key: Any, times: Any, limit: int) -> Any:
        return times if times > limit else _NOTHING


class ExpiringList(Expiring, ListState):
    """An entry is a key: all its elements are looked at together. Its times are a list as well."""

    def get(self) -> list[Any]:
        now = self._clock.now()
        elements = self._live(self._state.key, now)
        if self._reads_refresh and elements:
            times = self._times[self._state.key]
            times[:] = [max(time, now) for time in times]
        return self._custody.lend_all(elements)

    def add(self, element: Any) -> None:
        self.extend((element,))

    def extend(self, elements: Iterable[Any]) -> None:
        added = [self._custody.take(element) for element in elements]
        if not added:
            return
        key, now = self._state.key, self._clock.now()
        times = self._times_of(key, now)
        self._table.setdefault(key, []).extend(added)
        if not times:
            times = self._times[key] = []
            self._agenda.enter(key, now + self._ttl_ms)
        times.extend([now] * len(added))

    def set(self, elements: Iterable[Any]) -> None:
        replacement = list(elements)
        self.clear()
        self.extend(replacement)

    def clear(self) -> None:
        key = self._state.key
        self._table.pop(key, None)
        if self._times.pop(key, None) is not None:
            self._agenda.leave(key)

    def _times_of(self, key: Any, now: int) -> list[int]:
        """The times of a key's elements, given to them first if they have none; empty without elements."""
        elements: list[Any] = self._table.get(key, [])
        times: list[int] | None = self._times.get(key)
        if times is not None and len(times) == len(elements):
            return times
        if not elements:
            return []
        if times is None:
            self._agenda.enter(key, now + self._ttl_ms)
        times = self._times[key] = [now] * len(elements)
        return times

    def _live(self, key: Any, now: int) -> list[Any]:
        """The elements of a key, once those that have expired are removed."""
        times, limit = self._times_of(key, now), now - self._ttl_ms
        elements: list[Any] = self._table.get(key, [])
        if times and min(times) <= limit:
            kept = [place for place, time in enumerate(times) if time > limit]
            elements[:] = [elements[place] for place in kept]
            times[:] = [times[place] for place in kept]
            if not kept:
                del self._table[key], self._times[key]
                self._agenda.leave(key)
        return elements

    def _known(self) -> tuple[list[Any], Set[Any]]:
        _drop_without_value(self._state, self._times, self._table)
        return list(self._table), self._table.keys() - self._times.keys()

    def _examine(self, entries: Sequence[Any], now: int) -> None:
        self._state.change(entries)
        for key in entries:
            known = key in self._times
            if self._live(key, now):
                if not known:
                    self._agenda.forget(key)
                self._agenda.put(key, min(self._times[key]) + self._ttl_ms)
            else:
                self._agenda.forget(key)

    def _trimmed(self, key: Any, value: Any, limit: int) -> Any:
        times = self._times.get(key)
        if times is None or len(times) != len(value):
            return value
        kept = [one for one, time in zip(value, times, strict=True) if time > limit]
        return kept or _NOTHING

    def _trimmed_times(self, key: Any, times: Any, limit: int) -> Any:
        return [time for time in times if time > limit] or _NOTHING


class ExpiringMap(Expiring, MapState):
    """An entry is a key and a field. The times of a key are a dict by field.

    `in`, `len` and iteration only look; what gives out values counts as reading.
    """

    def __getitem__(self, field: Any) -> Any:
        key = self._state.key
        value = self._table.get(key, {})[field]
        now, time = self._clock.now(), self._times.get(key, {}).get(field)
        if time is not None and now - time >= self._ttl_ms:
            self._remove(key, field)
            raise KeyError(field)
        if self._reads_refresh or time is None:
            self._touch(key, field, time, now)
        return self._custody.lend(value)

    def __setitem__(self, field: Any, value: Any) -> None:
        key = self._state.key
        self._table.setdefault(key, {})[field] = self._custody.take(value)
        time = self._times.get(key, {}).get(field)
        self._touch(key, field, time, self._clock.now())

    def __delitem__(self, field: Any) -> None:
        if field not in self:
            raise KeyError(field)
        self._remove(self._state.key, field)

    def __contains__(self, field: object) -> bool:
        key = self._state.key
        if field not in self._table.get(key, {}):
            return False
        time = self._times.get(key, {}).get(field)
        if time is not None and self._clock.now() - time >= self._ttl_ms:
            self._remove(key, field)
            return False
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter([field for field in list(self._current()) if field in self])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        key = self._state.key
        self._table.pop(key, None)
        for field in self._times.pop(key, ()):
            self._agenda.leave((key, field))

    def _touch(self, key: Any, field: Any, time: int | None, now: int) -> None:
        if time is None:
            self._times.setdefault(key, {})[field] = now
            self._agenda.enter((key, field), now + self._ttl_ms)
        elif now > time:
            self._times[key][field] = now

    def _remove(self, key: Any, field: Any) -> None:
        """Remove a field that is there."""
        _pop(self._table, key, field)
        if _pop(self._times, key, field) is not None:
            self._agenda.leave((key, field))

    def _known(self) -> tuple[list[Any], Set[Any]]:
        _drop_without_value(self._state, self._times, self._table)
        entries: list[Any] = []
        without_time = frozenset(
            (key, field)
            for key, fields in self._table.items()
            for field in fields
            if field not in self._times.get(key, {})
        )
        for key, fields in self._table.items():
            entries += [(key, field) for field in fields]
        return entries, without_time

    def _examine(self, entries: Sequence[Any], now: int) -> None:
        self._state.change([key for key, _ in entries])
        limit, agenda, nothing = now - self._ttl_ms, self._agenda, dict[Any, int]()
        for entry in entries:
            key, field = entry
            time = self._times.get(key, nothing).get(field)
            if time is None:
                agenda.forget(entry)
                if field in self._table.get(key, nothing):
                    self._times.setdefault(key, {})[field] = now
                    agenda.put(entry, now + self._ttl_ms)
            elif time <= limit:
                _pop(self._times, key, field)
                _pop(self._table, key, field)
            else:
                agenda.put(entry, time + self._ttl_ms)

    def _trimmed(self, key: Any, value: Any, limit: int) -> Any:
        times = self._times.get(key, {})
        kept = {field: one for field, one in value.items() if times.get(field, limit + 1) > limit}
        return kept or _NOTHING

    def _trimmed_times(self, key: Any, times: Any, limit: int) -> Any:
        return {field: time for field, time in times.items() if time > limit} or _NOTHING


class Sweeper:
    """Removes expired state in small pieces, with pauses in which records are processed."""

    def __init__(self, states: Sequence[Expiring], monotonic: Callable[[], float]) -> None:
        self._states = list(states)
        self._turns = Turns(monotonic, share=1)

    @property
    def due_at(self) -> float | None:
        """When there is something to do, by the monotonic clock."""
        times = [at for state in self._states if (at := state.due_at) is not None]
        return max(min(times), self._turns.not_before) if times else None

    def sweep(self) -> None:
        left = PIECE_ENTRIES
        with self._turns.piece():
            for state in self._states:
                left -= state.sweep(left)
                if left <= 0:
                    # The others come first the next time.
                    self._states.remove(state)
                    self._states.append(state)
                    break
            else:
                for state in self._states:
                    state.give_back()


def _pop(table: dict[Any, Any], key: Any, field: Any) -> Any:
    """Take a field out of the dict of a key, which must be there unless the field is not."""
    fields = table.get(key)
    if fields is None:
        return None
    value = fields.pop(field, None)
    if not fields:
        del table[key]
    return value


def _drop_without_value(state: KeyedState, times: dict[Any, Any], table: dict[Any, Any]) -> None:
    """Forget the times of keys that have no value: a job without the ttl may have cleared them."""
    gone = times.keys() - table.keys()
    state.change(gone)
    for key in gone:
        del times[key]
