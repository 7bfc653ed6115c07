"""The sections of a snapshot: their names, and what can be read of each kind without its operator.

The name of a stored section is `uid US kind/name`: operator, kind, and what the operator calls it. The
registry KINDS is the one place that tells how a kind is read. An operator that stores something else adds
a kind here, and everything that looks into checkpoints can read it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgpack

from minirt.data.errors import MalformedDataError
from minirt.data.plain import unpack_plain
from minirt.state import array_layout, keyed_changes
from minirt.state.run_sections import count_run, entries_of_run
from minirt.state.sections import (
    HEAD_BYTES,
    ByteStream,
    check_head,
    count_entries,
    kind_of,
    read_chunks,
    read_section,
)

UID_SEPARATOR = "\x1f"
STATE, TIMERS, SPLITS, EVENT_TIME = "state/", "timers/", "splits", "time"
STATE_CLOCK, WINDOW_SHAPE, HELD_FOR = "clock", "window", "for"
REQUESTS = "asked"
STATE_KINDS = "kinds"
AGGREGATED = f"{STATE}value"
"""The section of `aggregate`."""
STRETCH = "@stretch"
"""How the names of sections end that hold, of a state in a dict, keys that have not changed."""
JOINED, GIVEN_OUT, RANKED, BROADCAST = "joined/", "given/", "ranked/", "broadcast/"
"""How the names of sections begin, by kind."""

KEYED_TABLE, TIMER_TABLE, REQUEST_TABLE = b"KEYD", b"TIME", b"ASKD"
"""The kinds of content that the heads of sections name."""

_WHOLE_BYTES_MAX = 1 << 30
"""The largest section in bytes that is read at once, if it cannot be read in pieces."""

_ARRAY_HEADER_BYTES = 5
_GIVEN_BYTES = 8
_EVENT_TIME = struct.Struct("<q")
_GROUP_TIMES = struct.Struct("<IIq")
NO_WATERMARK = -(2**63)
"""The event time before the first watermark."""

Entries = Iterator[tuple[list[Any], list[Any]]]
"""Two columns of equal length, in pieces."""


class GroupTimes(NamedTuple):
    """How far event time had advanced for the keys of some key groups, in milliseconds."""

    groups: range
    time: int

    def within(self, owned: range) -> slice:
        """The places of those groups among `owned`, which a subtask has."""
        first = max(self.groups.start - owned.start, 0)
        return slice(first, max(first, min(self.groups.stop, owned.stop) - owned.start))


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


class Content(NamedTuple):
    """The content of a section: keys whose older entries do not count, and entries, which replace older
    ones."""

    gone: Sequence[Any]
    entries: Entries


class SectionKind(NamedTuple):
    """How sections of one kind are read, and what their two columns are called.

    `count` tells the entries that there are in all, those in older files that the section builds on
    included. `read` takes a stream, and whether pickles are loaded rather than given out as Pickled. Both
    functions raise MalformedDataError.
    """

    columns: tuple[str, str]
    count: Callable[[bytes], int]
    read: Callable[[ByteStream, bool], Content]


def entries_in(stored_name: str, section: bytes) -> int | None:
    """How many entries there are as of a section that is to be stored; None if nobody knows its kind."""
    kind = KINDS.get(SectionName.parse(stored_name).kind)
    return None if kind is None else kind.count(section)


def pack_event_time(watermark: int, known: Iterable[GroupTimes] = ()) -> bytes:
    """How far event time had advanced for all keys, in milliseconds, and by key group, as a section."""
    runs = (_GROUP_TIMES.pack(run.groups.start, run.groups.stop, run.time) for run in known)
    return _EVENT_TIME.pack(watermark) + b"".join(runs)


def unpack_event_time(section: bytes) -> tuple[int, list[GroupTimes]]:
    """As it was packed. Sections may lack what is by key group. Raises MalformedDataError."""
    try:
        (watermark,) = _EVENT_TIME.unpack_from(section)
        runs = list(_GROUP_TIMES.iter_unpack(section[_EVENT_TIME.size :]))
    except struct.error as error:
        raise MalformedDataError(f"{len(section)} bytes are no event time") from error
    return watermark, [GroupTimes(range(first, stop), time) for first, stop, time in runs]


def _count_state(section: bytes) -> int:
    match kind_of(section):
        case keyed_changes.KEYED_CHANGES:
            return keyed_changes.total_of(section)
        case array_layout.ARRAY_TABLE:
            return array_layout.total_of(section)
    return count_entries(KEYED_TABLE, section)


def _read_state(stream: ByteStream, allow_pickle: bool) -> Content:
    """State of any kind: a dict, what has changed in one, or arrays."""
    head = stream.read(HEAD_BYTES)
    if kind_of(head) == array_layout.ARRAY_TABLE:
        section = head + stream.read(_WHOLE_BYTES_MAX)
        return Content(array_layout.gone_of(section), array_layout.entries_of(section))
    gone: Sequence[Any] = ()
    if kind_of(head) == keyed_changes.KEYED_CHANGES:
        version = check_head(keyed_changes.KEYED_CHANGES, head)
        gone = keyed_changes.read_gone(stream, version)
        head = stream.read(HEAD_BYTES)
    version = check_head(KEYED_TABLE, head)
    entries = read_chunks(
        stream, version, allow_pickle=allow_pickle, opaque_pickles=not allow_pickle
    )
    return Content(gone, entries)


def _read_timers(stream: ByteStream, allow_pickle: bool) -> Content:
    timers = read_section(
        TIMER_TABLE, stream, allow_pickle=allow_pickle, opaque_pickles=not allow_pickle
    )
    return Content((), timers)


def _read_requests(stream: ByteStream, allow_pickle: bool) -> Content:
    requests = read_section(
        REQUEST_TABLE, stream, allow_pickle=allow_pickle, opaque_pickles=not allow_pickle
    )
    return Content((), requests)


def _read_splits(stream: ByteStream, allow_pickle: bool) -> Content:
    return Content((), _splits(stream))


def _splits(stream: ByteStream) -> Entries:
    splits = unpack_plain(stream.read(_WHOLE_BYTES_MAX))
    names = ("order", "info", "offset", "skip", "finished")
    try:
        rows = [
            (split_id, dict(zip(names, (order, *rest), strict=True)))
            for order, split_id, *rest in splits
        ]
    except (TypeError, ValueError) as error:
        raise MalformedDataError(f"these are not splits ({error})") from error
    yield [split_id for split_id, _ in rows], [progress for _, progress in rows]


def _read_event_time(stream: ByteStream, allow_pickle: bool) -> Content:
    watermark, known = unpack_event_time(stream.read(_WHOLE_BYTES_MAX))
    shown = {"watermark": watermark}
    if len(known) > 1:
        shown |= {f"key groups {g.start} to {g.stop - 1}": time for g, time in known}
    times = [None if time == NO_WATERMARK else time for time in shown.values()]
    return Content((), iter([(list(shown), times)]))


def _read_run(stream: ByteStream, allow_pickle: bool) -> Content:
    return Content((), entries_of_run(stream.read(_WHOLE_BYTES_MAX)))


def _count_given(section: bytes) -> int:
    return -(-len(section) // _GIVEN_BYTES)


def _read_given(stream: ByteStream, allow_pickle: bool) -> Content:
    """Bits, in lines of 64."""
    return Content((), _given(stream))


def _given(stream: ByteStream) -> Entries:
    place = 0
    while bits := stream.read(_GIVEN_BYTES):
        yield [place], ["".join(f"{byte:08b}" for byte in bits)]
        place += 8 * len(bits)


def _read_clock(stream: ByteStream, allow_pickle: bool) -> Content:
    ms, _ = unpack_event_time(stream.read(_EVENT_TIME.size))
    return Content((), iter([(["processing"], [ms])]))


def _read_text(of: str, stream: ByteStream, allow_pickle: bool) -> Content:
    return Content((), iter([([of], [stream.read(_WHOLE_BYTES_MAX).decode(errors="replace")])]))


def _read_kinds(stream: ByteStream, allow_pickle: bool) -> Content:
    kinds = unpack_plain(stream.read(_WHOLE_BYTES_MAX))
    try:
        names, told = [name for name, _ in kinds], [kind for _, kind in kinds]
    except (TypeError, ValueError) as error:
        raise MalformedDataError(f"these are not kinds of state ({error})") from error
    return Content((), iter([(names, told)]))


def _count_event_times(section: bytes) -> int:
    runs = (len(section) - _EVENT_TIME.size) // _GROUP_TIMES.size
    return 1 if runs < 2 else 1 + runs


def _count_splits(section: bytes) -> int:
    unpacker = msgpack.Unpacker()
    unpacker.feed(section[:_ARRAY_HEADER_BYTES])
    return int(unpacker.read_array_header())


KINDS: dict[str, SectionKind] = {
    "state": SectionKind(("key", "value"), _count_state, _read_state),
    "broadcast": SectionKind(("field", "value"), _count_state, _read_state),
    "timers": SectionKind(("time", "key"), partial(count_entries, TIMER_TABLE), _read_timers),
    "time": SectionKind(("clock", "ms"), _count_event_times, _read_event_time),
    "clock": SectionKind(("clock", "ms"), _count_event_times, _read_clock),
    "window": SectionKind(("of", "shape"), lambda section: 1, partial(_read_text, "windows")),
    "for": SectionKind(("of", "use"), lambda section: 1, partial(_read_text, "records")),
    "kinds": SectionKind(("state", "kind"), _count_splits, _read_kinds),
    "joined": SectionKind(("time", "record"), count_run, _read_run),
    "ranked": SectionKind(("number", "record"), count_run, _read_run),
    "given": SectionKind(("from record", "records"), _count_given, _read_given),
    "asked": SectionKind(("record", "time"), partial(count_entries, REQUEST_TABLE), _read_requests),
    "splits": SectionKind(("split", "progress"), _count_splits, _read_splits),
}
