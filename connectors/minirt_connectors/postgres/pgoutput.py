"""The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1, from their bytes.

The format is that of "Logical Replication Message Formats" in the manual of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from minirt.errors import SourceDataError

_EPOCH_US = 946_684_800_000_000
"""The 1st of January 2000, from which PostgreSQL counts microseconds."""

_BEGIN = Struct(">qqI")
_COMMIT = Struct(">Bqqq")
_RELATION = Struct(">I")
_SHORT = Struct(">h")
_LONG = Struct(">i")
_COLUMN = Struct(">Ii")
_TRUNCATE = Struct(">iB")

_KEY_FLAG = 1


class Missing(Enum):
    """What stands for a value that the server has not sent."""

    UNCHANGED = "unchanged"
    """A value stored outside its row (TOAST), which the update has not touched."""


Values = tuple[str | Missing | None, ...]
"""The values of a row as texts, by the order of its relation's columns."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction; it comes as a whole, and transactions come in the order of their commits."""

    commit_lsn: int
    """Where in the log its commit begins."""
    committed_ms: int
    transaction: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction, and of its commit in the log."""

    end_lsn: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `kind` is the oid of its type. `key`: it is part of the replica identity."""

    name: str
    kind: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on. `full`: its replica identity is the whole row."""

    oid: int
    table: str
    full: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """`old` is the row before, whole or (`key_only`) its key; None if the key is the same."""

    relation: int
    old: Values | None
    key_only: bool
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    relation: int
    old: Values
    key_only: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_OF_NO_USE = b"OY"
"""Origins and types, which no record depends on."""


def decode(data: bytes) -> Message | None:
    """One message; None for those that carry nothing of use.

    Raises SourceDataError for what is none.
    """
    try:
        return _decoded(_Bytes(data))
    except (IndexError, ValueError, KeyError) as error:
        raise SourceDataError(f"no message of pgoutput: {data[:80]!r}: {error}") from error


class _Bytes:
    """Bytes that are read from front to end."""

    __slots__ = ("_data", "_place")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def byte(self) -> int:
        value = self._data[self._place]
        self._place += 1
        return value

    def take(self, layout: Struct) -> tuple[int, ...]:
        begin = self._place
        self._place = begin + layout.size
        if self._place > len(self._data):
            raise ValueError("it is cut off")
        return layout.unpack_from(self._data, begin)

    def number(self, layout: Struct) -> int:
        return self.take(layout)[0]

    def name(self) -> str:
        end = self._data.index(0, self._place)
        text = self._data[self._place : end].decode()
        self._place = end + 1
        return text

    def text(self) -> str:
        length = self.number(_LONG)
        begin = self._place
        self._place = begin + length
        if length < 0 or self._place > len(self._data):
            raise ValueError("it is cut off")
        return self._data[begin : self._place].decode()

    def values(self) -> Values:
        return tuple(self._value() for _ in range(self.number(_SHORT)))

    def _value(self) -> str | Missing | None:
        kind = self.byte()
        if kind == ord("t"):
            return self.text()
        if kind == ord("n"):
            return None
        if kind == ord("u"):
            return Missing.UNCHANGED
        raise ValueError(f"a value of the kind {chr(kind)!r}")


def _decoded(data: _Bytes) -> Message | None:
    kind = data.byte()
    if kind in _OF_NO_USE:
        return None
    return _DECODERS[chr(kind)](data)


def _begin(data: _Bytes) -> Begin:
    commit_lsn, microseconds, transaction = data.take(_BEGIN)
    return Begin(commit_lsn, (microseconds + _EPOCH_US) // 1000, transaction)


def _commit(data: _Bytes) -> Commit:
    return Commit(data.take(_COMMIT)[2])


def _relation(data: _Bytes) -> Relation:
    oid = data.number(_RELATION)
    schema, name = data.name() or "pg_catalog", data.name()
    full = data.byte() == ord("f")
    columns = []
    for _ in range(data.number(_SHORT)):
        key = bool(data.byte() & _KEY_FLAG)
        column = data.name()
        columns.append(Column(column, data.take(_COLUMN)[0], key))
    return Relation(oid, f"{schema}.{name}", full, tuple(columns))


def _insert(data: _Bytes) -> Insert:
    relation = data.number(_RELATION)
    _expect(data.byte(), "N")
    return Insert(relation, data.values())


def _update(data: _Bytes) -> Update:
    relation = data.number(_RELATION)
    kind, old = data.byte(), None
    key_only = kind == ord("K")
    if key_only or kind == ord("O"):
        old = data.values()
        kind = data.byte()
    _expect(kind, "N")
    return Update(relation, old, key_only, data.values())


def _delete(data: _Bytes) -> Delete:
    relation = data.number(_RELATION)
    kind = data.byte()
    _expect(kind, "KO")
    return Delete(relation, data.values(), kind == ord("K"))


def _truncate(data: _Bytes) -> Truncate:
    count, _ = data.take(_TRUNCATE)
    return Truncate(tuple(data.number(_RELATION) for _ in range(count)))


def _expect(kind: int, known: str) -> None:
    if chr(kind) not in known:
        raise ValueError(f"a row of the kind {chr(kind)!r}")


_DECODERS: dict[str, Callable[[_Bytes], Message]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
}
