"""Dealing rows: each is appended to the buffer of its receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minirt.data.batch import Rows
from minirt.data.keys import KeyRouter, UnstableKeyError, check_keys, key_hash
from minirt.errors import MinirtError, UserCodeError
from minirt.graph.execution import Link
from minirt.graph.job_graph import Custom, Hash
from minirt.operators.common.base import shown, user_error
from minirt.runtime.channels.column_dealing import check_chosen


class RowBuffer(Protocol):
    """Where the rows of one receiver are held, or of several that get the same."""

    records: list[Any]
    timestamps: list[int]


def row_dealer(
    link: Link, buffers: Sequence[RowBuffer], label: str, entries_max: int
) -> Callable[[Rows], None]:
    """How the link deals rows to the buffers; remembers the targets of `entries_max` keys.

    What is returned raises UserCodeError, naming the operator by `label`, for keys that cannot be had
    or hashed and for what a user's function does wrong.
    """
    return _RowDealer(link, buffers, label, entries_max).choose()


class _RowDealer:
    def __init__(
        self, link: Link, buffers: Sequence[RowBuffer], label: str, entries_max: int
    ) -> None:
        self._link = link
        self._buffers = buffers
        self._label = label
        self._entries_max = entries_max
        self._turn = 0

    def choose(self) -> Callable[[Rows], None]:
        match self._link.partitioning:
            case Hash(key) if len(self._buffers) == 1:
                self._key_of = key.on_rows()
                return self._deal_keyed_to_one
            case _ if len(self._buffers) == 1:
                return self._deal_to_one
            case Hash(key):
                self._key_of = key.on_rows()
                entries = self._entries_max
                buffers, groups = self._buffers, self._link.max_parallelism
                self._appends = KeyRouter([b.records.append for b in buffers], groups, entries)
                self._timed_appends = KeyRouter(
                    [(b.records.append, b.timestamps.append) for b in buffers], groups, entries
                )
                return self._deal_by_key
            case Custom(function, key):
                self._key_of = key.on_rows()
                self._choose = function
                return self._deal_by_function
        return self._deal_in_turn

    def _deal_to_one(self, rows: Rows) -> None:
        buffer = self._buffers[0]
        buffer.records += rows.records
        if rows.timestamps is not None:
            buffer.timestamps += rows.timestamps

    def _deal_keyed_to_one(self, rows: Rows) -> None:
        """A key that could not be dealt to several is refused here too."""
        try:
            check_keys([*map(self._key_of, rows.records)])
        except Exception:
            self._refuse_first(rows)
        self._deal_to_one(rows)

    def _refuse_first(self, rows: Rows) -> None:
        """Raise for the first record whose key cannot be had, or is refused."""
        for record in rows.records:
            try:
                key_hash(self._key_of(record))
            except Exception as error:
                raise self._key_error(error, record) from error

    def _deal_in_turn(self, rows: Rows) -> None:
        count = len(self._buffers)
        for place in range(count):
            buffer = self._buffers[(self._turn + place) % count]
            buffer.records += rows.records[place::count]
            if rows.timestamps is not None:
                buffer.timestamps += rows.timestamps[place::count]
        self._turn = (self._turn + len(rows)) % count

    def _deal_by_key(self, rows: Rows) -> None:
        key_of = self._key_of
        try:
            if rows.timestamps is None:
                appends = self._appends
                for record in rows.records:
                    appends[key_of(record)](record)
                return
            timed = self._timed_appends
            for record, time in zip(rows.records, rows.timestamps, strict=True):
                append, stamp = timed[key_of(record)]
                append(record)
                stamp(time)
        except Exception as error:
            raise self._key_error(error, record) from error

    def _key_error(self, error: Exception, record: Any) -> MinirtError:
        label = f"{self._label}, key of the next operator,"
        if isinstance(error, TypeError):
            try:
                key_hash(self._key_of(record))
            except UnstableKeyError as unstable:
                error = unstable
            except Exception:
                return user_error(label, error, record)
        if isinstance(error, UnstableKeyError):
            return UserCodeError(f"operator {label} failed on record {shown(record)}: {error}")
        return user_error(label, error, record)

    def _deal_by_function(self, rows: Rows) -> None:
        choose, key_of, count = self._choose, self._key_of, len(self._buffers)
        targets = []
        try:
            for record in rows.records:
                targets.append(choose(key_of(record), count))
        except Exception as error:
            raise user_error(f"{self._label}, partitioner,", error, record) from error
        check_chosen(targets, count, self._label)
        for target, record in zip(targets, rows.records, strict=True):
            self._buffers[target].records.append(record)
        if rows.timestamps is not None:
            for target, time in zip(targets, rows.timestamps, strict=True):
                self._buffers[target].timestamps.append(time)
