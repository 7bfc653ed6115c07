"""Keys of records: their stable hash, their key group and the subtask that owns it.

A key is None, bool, int, str, bytes, date, datetime, UUID, a numpy integer, bool or str, or a tuple
of these. Keys that are equal hash equally, on every process, version and machine. Equal is what Python
says, but datetimes with a zone are equal if they stand for the same instant, as they are in columns.
Columns have nanoseconds, too: keys that differ in these alone are two keys.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import numpy.typing as npt

from minirt.data import hashing
from minirt.data.batch import Batch, Columns
from minirt.data.civil_time import Nanoseconds, depends_on_fold, plain_datetime, told_apart
from minirt.data.column_keys import (
    check_key_type,
    group_columns,
    hash_column,
    hash_columns,
    nanoseconds_of,
)
from minirt.data.hashing import U64, UnstableKeyError
from minirt.data.values import shown
from minirt.kernels.choice import kernels
from minirt.protocol.key_groups import group_range, subtask_of_group

__all__ = [
    "KeyRouter",
    "UnstableKeyError",
    "are_simple",
    "distinct_keys",
    "key_hash",
    "exact_keys",
    "check_keys",
    "hash_keys",
    "key_group",
    "key_groups",
    "subtask_of_group",
    "group_range",
    "hash_column",
    "hash_columns",
    "group_columns",
    "check_key_type",
]

Target = TypeVar("Target")

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_SIMPLE = frozenset({type(None), bool, int, str, bytes, dt.date, UUID})
"""Types of keys that Python's equality tells apart as it should."""


def key_hash(key: Any) -> int:
    """The stable hash of a key, 64 bits without sign. Raises UnstableKeyError for other types."""
    hash_exact = _HASH_OF.get(type(key))
    return hash_exact(key) if hash_exact is not None else _hash_inexact(key)


def hash_keys(keys: Sequence[Any]) -> U64:
    """As `key_hash`, for many keys at once. Raises UnstableKeyError."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return _hash_texts(keys)
    if kinds == {bytes}:
        return _hash_pieces(b"".join(keys), map(len, keys), len(keys), hashing.BYTES)
    if kinds and kinds <= {int, bool}:
        try:
            return kernels().mix(np.array(keys, np.int64).view(np.uint64), hashing.INT)
        except OverflowError:
            pass
    if kinds == {tuple} and len(set(map(len, keys))) == 1:
        columns = [hash_keys(column) for column in zip(*keys, strict=True)]
        return kernels().hash_tuples(columns, len(keys))
    return np.fromiter(map(key_hash, keys), np.uint64, len(keys))


def check_keys(keys: Sequence[Any]) -> None:
    """Raise UnstableKeyError for the first key of a type that is refused; fast where there is none."""
    kinds = _kinds(keys)
    if not kinds <= _SIMPLE_KINDS and not all(map(_has_hash, kinds)):
        for key in keys:
            key_hash(key)


def _kinds(keys: Sequence[Any]) -> set[type]:
    """The types of keys, and of the elements of those that are tuples."""
    kinds = set(map(type, keys))
    if tuple not in kinds:
        return kinds
    if len(kinds) > 1:
        keys = [key for key in keys if type(key) is tuple]
    elements = set(map(type, chain.from_iterable(keys)))
    if tuple in elements:
        elements = _kinds([*chain.from_iterable(keys)])
    return (kinds - {tuple}) | elements


def _has_hash(kind: type) -> bool:
    """Whether all values of a type have a key hash."""
    return kind in _SIMPLE_KINDS or (issubclass(kind, _INEXACT) and not issubclass(kind, Enum))


def key_group(key: Any, max_parallelism: int) -> int:
    """The key group of a key, from 0 to below `max_parallelism`. Raises UnstableKeyError."""
    return key_hash(key) % max_parallelism


def key_groups(keys: Sequence[Any], max_parallelism: int) -> npt.NDArray[np.int64]:
    """As `key_group`, for many keys at once. Raises UnstableKeyError."""
    return (hash_keys(keys) % np.uint64(max_parallelism)).astype(np.int64)


def distinct_keys(keys: list[Any]) -> list[Any]:
    """The keys in a form in which Python's equality tells them apart as it should, for dicts of keys."""
    return keys if are_simple(keys) else [_distinct(key) for key in keys]


def exact_keys(keys: list[Any], batch: Batch, columns: Sequence[str]) -> list[Any]:
    """The keys of the rows of a batch, with the nanoseconds of its columns that rows do not have.

    `columns` are those of the key; keys that a function makes of rows stay as they are.
    """
    if not isinstance(batch, Columns):
        return keys
    for place, name in enumerate(columns):
        rest = nanoseconds_of(batch.table.column(name))
        if rest is None:
            continue
        for row in np.flatnonzero(rest).tolist():
            key, nanosecond = keys[row], int(rest[row])
            if len(columns) == 1:
                keys[row] = Nanoseconds.of(key, nanosecond)
            else:
                exact = Nanoseconds.of(key[place], nanosecond)
                keys[row] = (*key[:place], exact, *key[place + 1 :])
    return keys


def are_simple(keys: list[Any]) -> bool:
    """Whether Python's equality tells these keys apart as it should, and from all others."""
    types = [*map(type, keys)]
    if types and types[0] in _SIMPLE and types.count(types[0]) == len(types):
        return True  # As is mostly so, and found out faster than with a set.
    kinds = set(types)
    return kinds <= _SIMPLE or (kinds == {tuple} and set(map(type, chain(*keys))) <= _SIMPLE)


def _distinct(key: Any) -> Any:
    if type(key) is tuple:
        return tuple(map(_distinct, key))
    return told_apart(key) if type(key) is dt.datetime else key


def _depends_on_fold(key: Any) -> bool:
    if type(key) is tuple:
        return any(map(_depends_on_fold, key))
    return isinstance(key, dt.datetime) and depends_on_fold(key)


class KeyRouter(dict[Any, Target]):
    """Maps a key to the one of `targets` that stands for its subtask: `router[key]`.

    Answers are remembered, at most `entries_max` of them, so that a known key costs a dict lookup.
    A key of a type that is refused goes unnoticed while an equal one is known (1.0 after 1): it
    belongs to the same subtask. Operators that keep state by it look at types, with `check_keys`.
    """

    def __init__(self, targets: Sequence[Target], max_parallelism: int, entries_max: int) -> None:
        super().__init__()
        self._targets = targets
        self._max_parallelism = max_parallelism
        self._entries_max = entries_max

    def __missing__(self, key: Any) -> Target:
        group = key_group(key, self._max_parallelism)
        if len(self) >= self._entries_max:
            self.clear()
        subtask = subtask_of_group(group, len(self._targets), self._max_parallelism)
        target = self._targets[subtask]
        if not _depends_on_fold(key):  # Otherwise the router would take another key for this one.
            self[key] = target
        return target


def _hash_int(key: int) -> int:
    if -(2**63) <= key < 2**64:
        return hashing.mix(key, hashing.INT)
    data = key.to_bytes(key.bit_length() // 8 + 1, "little", signed=True)
    return hashing.hash_bytes(data, hashing.BIG_INT)


def _hash_text(key: str) -> int:
    return hashing.hash_bytes(key.encode("utf-8", "surrogatepass"), hashing.TEXT)


def _hash_datetime(key: dt.datetime) -> int:
    # By its instant, as in columns, whichever zone it is told in.
    instant = key if key.tzinfo is not None else key.replace(tzinfo=dt.UTC)
    return hashing.mix((instant - _EPOCH) // _MICROSECOND, hashing.DATETIME)


_HASH_OF: dict[type, Callable[[Any], int]] = {
    type(None): lambda key: hashing.NONE_HASH,
    bool: lambda key: hashing.mix(key, hashing.INT),
    int: _hash_int,
    str: _hash_text,
    bytes: lambda key: hashing.hash_bytes(key, hashing.BYTES),
    dt.date: lambda key: hashing.mix(key.toordinal() - _EPOCH_DAY, hashing.DATE),
    dt.datetime: _hash_datetime,
    UUID: lambda key: hashing.hash_bytes(key.bytes, hashing.UUID_KIND),
    tuple: lambda key: hashing.hash_tuple([key_hash(element) for element in key]),
}

_SIMPLE_KINDS = _HASH_OF.keys() - {tuple}
_INEXACT = (np.integer, np.bool_, np.str_, dt.datetime)
"""Their subclasses are keys as well."""


def _hash_inexact(key: Any) -> int:
    if isinstance(key, Enum):
        raise UnstableKeyError(_refusal(key, "an Enum may be renumbered; use its value or name"))
    if isinstance(key, np.integer | np.bool_):
        return _hash_int(int(key))
    if isinstance(key, np.str_):
        return _hash_text(str(key))
    if isinstance(key, dt.datetime):
        return _hash_datetime(plain_datetime(key))
    raise UnstableKeyError(_refusal(key, _reason(key)))


def _reason(key: Any) -> str:
    if isinstance(key, float | np.floating):
        return "floats that look the same can differ; round to an int or use text"
    if isinstance(key, list | dict | set | frozenset | bytearray):
        return "it has no stable hash; use a tuple of its parts"
    return "it has no hash that is the same on every machine; use a tuple of its parts"


def _refusal(key: Any, reason: str) -> str:
    return (
        f"a {type(key).__module__}.{type(key).__qualname__} cannot be a key ({reason}): "
        f"{shown(key)}. Keys are None, bool, int, str, bytes, date, datetime, UUID or tuples "
        "of these"
    )


def _hash_texts(keys: Sequence[str]) -> U64:
    text = "".join(keys)
    if text.isascii():
        return _hash_pieces(text.encode(), map(len, keys), len(keys), hashing.TEXT)
    encoded = [key.encode("utf-8", "surrogatepass") for key in keys]
    return _hash_pieces(b"".join(encoded), map(len, encoded), len(keys), hashing.TEXT)


def _hash_pieces(data: bytes, lengths: Iterable[int], count: int, kind: int) -> U64:
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, count), out=offsets[1:])
    return kernels().hash_pieces(np.frombuffer(data, np.uint8), offsets, kind)
