"""The sections of a snapshot: their names, and what can be read of each kind without its operator.

The name of a stored section is `uid US kind/name`: operator, kind, and what the operator calls it. The
registry KINDS is the one place that tells how a kind is read. An operator that stores something else adds
a kind here, and everything that looks into checkpoints can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack

from minirt.data.codec import MalformedDataError
from minirt.data.plain import unpack_plain
from minirt.state.sections import ByteStream, count_entries, read_section

UID_SEPARATOR = "\x1f"
STATE, TIMERS, SPLITS = "state/", "timers/", "splits"
"""How the names of sections begin, by kind."""

KEYED_TABLE, TIMER_TABLE = b"KEYD", b"TIME"
"""What the heads of sections say that they hold."""

_SPLITS_BYTES_MAX = 1 << 30
_ARRAY_HEADER_BYTES = 5

Entries = Iterator[tuple[list[Any], list[Any]]]
"""Two columns of equal length, in pieces."""


class SectionName(NamedTuple):
    """The name of a stored section, taken apart; `kind` is "" if nobody knows it."""

    uid: str
    kind: str
    name: str

    @classmethod
    def parse(cls, stored: str) -> SectionName:
        uid, _, section = stored.partition(UID_SEPARATOR)
        kind, _, name = section.partition("/")
        return cls(uid, kind, name) if kind in KINDS else cls(uid, "", section)


class SectionKind(NamedTuple):
    """How sections of one kind are read, and what their two columns are called.

    `entries` takes a stream, and whether pickles are loaded rather than given out as Pickled. Both
    functions raise MalformedDataError.
    """

    columns: tuple[str, str]
    count: Callable[[bytes], int]
    entries: Callable[[ByteStream, bool], Entries]


def entries_in(stored_name: str, section: bytes) -> int | None:
    """How many entries a section holds that is to be stored; None if nobody knows its kind."""
    kind = KINDS.get(SectionName.parse(stored_name).kind)
    return None if kind is None else kind.count(section)


def _table(columns: tuple[str, str], holds: bytes) -> SectionKind:
    def entries(stream: ByteStream, allow_pickle: bool) -> Entries:
        return read_section(
            holds, stream, allow_pickle=allow_pickle, opaque_pickles=not allow_pickle
        )

    return SectionKind(columns, lambda section: count_entries(holds, section), entries)


def _splits(stream: ByteStream, allow_pickle: bool) -> Entries:
    splits = unpack_plain(stream.read(_SPLITS_BYTES_MAX))
    names = ("order", "info", "offset", "skip", "finished")
    try:
        rows = [
            (split_id, dict(zip(names, (order, *rest), strict=True)))
            for order, split_id, *rest in splits
        ]
    except (TypeError, ValueError) as error:
        raise MalformedDataError(f"these are not splits ({error})") from error
    yield [split_id for split_id, _ in rows], [progress for _, progress in rows]


def _count_splits(section: bytes) -> int:
    unpacker = msgpack.Unpacker()
    unpacker.feed(section[:_ARRAY_HEADER_BYTES])
    return int(unpacker.read_array_header())


KINDS: dict[str, SectionKind] = {
    "state": _table(("key", "value"), KEYED_TABLE),
    "timers": _table(("time", "key"), TIMER_TABLE),
    "splits": SectionKind(
        ("split", "progress"),
        _count_splits,
        _splits,
    ),
}
