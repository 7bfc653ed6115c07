"""From the messages of a slot to records, and how far in the log they reach."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from minirt.errors import SourceDataError
from minirt_connectors.postgres.log_memory import LastTransaction, LogComparison
from minirt_connectors.postgres.pgoutput import (
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Missing,
    Relation,
    Truncate,
    Update,
    Values,
    decode,
)

Record = dict[str, Any]
Row = dict[str, Any]


def _bool(text: str) -> bool:
    return text == "t"


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _date(text: str) -> dt.date | str:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:  # Infinity, and years that Python does not have.
        return text


def _moment(text: str) -> dt.datetime | str:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return text


_FROM_TEXT: dict[int, Callable[[str], Any]] = {
    16: _bool,
    17: _bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1082: _date,
    1114: _moment,
    1184: _moment,
    1700: Decimal,
}
"""By the oids of types, which are part of PostgreSQL. Values of all others stay texts."""


def from_text(kind: int) -> Callable[[str], Any]:
    """What makes a value of a type out of the text that PostgreSQL has for it."""
    return _FROM_TEXT.get(kind, str)


def record(
    operation: str, table: str, lsn: int, committed_ms: int, transaction: int | None = None
) -> Record:
    """A record without key and rows; all records have the same fields."""
    return {
        "operation": operation,
        "table": table,
        "key": None,
        "old": None,
        "new": None,
        "unchanged": [],
        "committed_at": committed_ms,
        "transaction": transaction,
        "lsn": lsn,
    }


class ChangeDecoder:
    """Makes records of the messages of a slot, each exactly once from a position on.

    A position is a pair: all transactions that have committed before the first number are through, and of
    the next one so many changes. Each transaction has the same changes whenever it is read. What the
    transactions from `end` on do is left out. `keys` has the columns of the primary key of each table
    whose replica identity is the whole row; `find_key` is asked for those of a table that is not there.

    `last` is the last transaction that was read, None if that is not known.
    """

    def __init__(
        self,
        keys: Mapping[str, Sequence[str]],
        position: Sequence[int],
        end: int | None = None,
        last: LastTransaction | None = None,
        find_key: Callable[[str], Sequence[str]] = lambda table: (),
    ) -> None:
        self._keys = dict(keys)
        self._find_key = find_key
        self.last = last
        self._comparison: LogComparison | None = None
        self._done, self._skip = position
        self._end = end
        self._index = 0
        self._current: Begin | None = None
        self._passing = False
        """Whether the transaction at hand was through before."""
        self._relations: dict[int, _Table] = {}
        self.ended = False
        """Whether all up to `end` is through."""
        self._reached(self._done)

    @property
    def position(self) -> tuple[int, int]:
        return self._done, max(self._index, self._skip)

    def begin_at(self, lsn: int, confirmed: int, complain: Callable[[str], None]) -> None:
        """The log is read from a slot that has all transactions from `confirmed` on.

        Where it does not fit to the position and the last transaction, `complain` is told. An `lsn` before
        the position is where to go on instead.
        """
        if lsn < self._done:
            self._done, self._index, self._skip, self.last = lsn, 0, 0, None
        if self.last is not None:
            self._comparison = LogComparison(self.last, self._done, confirmed, complain)

    def caught_up(self, lsn: int) -> None:
        """All transactions that have committed before `lsn` were handed over.

        A record of the log must end there, so that whatever comes next begins there or behind it.
        """
        if self._comparison is not None:
            self._comparison.ends(lsn)
        if self._current is None and not self._skip and lsn > self._done:
            self._done = lsn
            self._reached(lsn)

    def feed(self, messages: Iterable[bytes]) -> list[Record]:
        """The records of messages that follow those of the last call."""
        records: list[Record] = []
        for data in messages:
            if self.ended:
                break
            match decode(data):
                case Relation() as relation:
                    if relation.full and relation.table not in self._keys:
                        self._keys[relation.table] = self._find_key(relation.table)
                    self._relations[relation.oid] = _Table(relation, self._keys)
                case Begin() as begin:
                    self._begin(begin)
                case Commit(end_lsn):
                    self._commit(end_lsn)
                case Insert() | Update() | Delete() | Truncate() as change:
                    if self._is_next():
                        records += self._records(change)
                case None:
                    pass
        return records

    def _begin(self, begin: Begin) -> None:
        self._current = begin
        self._passing = begin.commit_lsn < self._done
        if self._comparison is not None:
            self._comparison.begins(begin)
        if not self._passing:
            self.last = LastTransaction.of(begin)
            self._reached(begin.commit_lsn)

    def _commit(self, end_lsn: int) -> None:
        self._current = None
        if not self._passing:
            self._done, self._index, self._skip = end_lsn, 0, 0
            self._reached(end_lsn)

    def _reached(self, lsn: int) -> None:
        if self._end is not None and lsn >= self._end:
            self.ended = True

    def _is_next(self) -> bool:
        """Whether the change at hand is none that was through before."""
        if self._passing:
            return False
        self._index += 1
        return self._index > self._skip

    def _records(self, change: Insert | Update | Delete | Truncate) -> list[Record]:
        if isinstance(change, Truncate):
            return [self._new("truncate", self._table(oid)) for oid in change.relations]
        table = self._table(change.relation)
        if isinstance(change, Insert):
            made = self._new("insert", table)
            made["new"], _ = table.row(change.new)
            made["key"] = table.key(made["new"])
            return [made]
        if isinstance(change, Delete):
            made = self._new("delete", table)
            made["old"] = table.old(change.old, change.key_only)
            made["key"] = table.key(made["old"])
            return [made]
        made = self._new("update", table)
        new, unchanged = table.row(change.new)
        if change.old is not None:
            made["old"] = old = table.old(change.old, change.key_only)
            for name in [name for name in unchanged if name in old]:
                new[name] = old[name]
                unchanged.remove(name)
        made["new"], made["unchanged"] = new, unchanged
        made["key"] = table.key(new)
        return [made]

    def _new(self, operation: str, table: _Table) -> Record:
        begin = self._current
        if begin is None:
            raise SourceDataError(f"a change of {table.name} that is part of no transaction")
        return record(
            operation, table.name, begin.commit_lsn, begin.committed_ms, begin.transaction
        )

    def _table(self, oid: int) -> _Table:
        try:
            return self._relations[oid]
        except KeyError:
            raise SourceDataError(f"a change of a table that nothing is known of: {oid}") from None


class _Table:
    """A table as its last message says, and what its rows are."""

    def __init__(self, relation: Relation, keys: Mapping[str, Sequence[str]]) -> None:
        self.name = relation.table
        self._columns: list[tuple[Column, Callable[[str], Any]]] = [
            (column, from_text(column.kind)) for column in relation.columns
        ]
        if relation.full:
            self._key = tuple(keys.get(relation.table, ()))
        else:
            self._key = tuple(column.name for column in relation.columns if column.key)

    def row(self, values: Values) -> tuple[Row, list[str]]:
        """A row, and the names of the columns that it lacks since they are unchanged."""
        row: Row = {}
        unchanged = []
        for (column, parsed), value in zip(self._columns, values, strict=True):
            if value is Missing.UNCHANGED:
                unchanged.append(column.name)
            else:
                row[column.name] = None if value is None else parsed(value)
        return row, unchanged

    def old(self, values: Values, key_only: bool) -> Row:
        row, _ = self.row(values)
        return {name: row[name] for name in self._key} if key_only else row

    def key(self, row: Row) -> Row | None:
        """The key of a row; None for a table without one."""
        if not self._key or not all(name in row for name in self._key):
            return None
        return {name: row[name] for name in self._key}
