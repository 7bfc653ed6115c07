"""What a checkpoint holds, entry by entry: state, timers and splits of operators, records of channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, Literal

from minirt.data.codec import RowCodec
from minirt.data.errors import MalformedDataError
from minirt.data.keys import distinct_keys
from minirt.errors import CorruptCheckpointError
from minirt.protocol.manifest import ChannelData
from minirt.runtime.channels.batches import batch_of
from minirt.runtime.input.in_flight import stored_frames
from minirt.state.stored import KINDS, Entries
from minirt.storage.part_reader import PartReader
from minirt.storage.parts import Section

Kind = Literal["state", "timers", "splits", "time"]


@dataclass(frozen=True, slots=True)
class StoredSection:
    """The part of a state, of timers or of splits that one subtask stored."""

    subtask: int
    kind: Kind
    part: PartReader
    section: Section
    pieces: tuple[tuple[PartReader, str], ...]
    """All that holds some of it, this section included: parts, names of sections there; newest first."""
    allow_pickle: bool

    @property
    def path(self) -> str:
        """Where it is stored."""
        return self.part.path

    @property
    def bytes(self) -> int:
        """Its stored size, without what older checkpoints hold."""
        own = (name for part, name in self.pieces if part is self.part)
        return sum(_section_of(self.part, name).length for name in own)

    @property
    def entries(self) -> int | None:
        """How many keys, timers or splits, those in older checkpoints included.

        None in checkpoints of versions that did not count them.
        """
        return self.section.entries

    def chunks(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """The entries as two columns of equal length, piece by piece. Raises CorruptCheckpointError."""
        newer: set[Any] | None = set() if len(self.pieces) > 1 else None
        for part, name in self.pieces:
            with _damage_at(part.path):
                stream = part.section(_section_of(part, name))
                gone, entries = KINDS[self.kind].read(stream, self.allow_pickle)
                yield from entries if newer is None else _without(newer, entries)
                if newer is not None:
                    newer.update(distinct_keys(list(gone)))


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """A state of an operator, its timers of one time domain, or its splits, over all subtasks.

    Iterating gives (key, value) of a state, (time in ms, key) of timers, (split, progress) of splits, as
    they were stored, without order. Values of types that only pickle can store are Pickled, unless the
    checkpoints were opened with `allow_pickle`. Raises CorruptCheckpointError where it is damaged.
    """

    uid: str
    kind: Kind
    name: str
    """The name of the state; for timers "event" or "processing"."""
    sections: tuple[StoredSection, ...]
    """One for each subtask that has any, in order."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for left, right in self.chunks():
            yield from zip(left, right, strict=True)

    def chunks(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """As iterating, but the two sides as lists, many entries at a time."""
        return chain.from_iterable(section.chunks() for section in self.sections)

    @property
    def columns(self) -> tuple[str, str]:
        """What the two sides are called."""
        return KINDS[self.kind].columns

    @property
    def entries(self) -> int | None:
        """How many there are; None in checkpoints of versions that did not count them."""
        counts = [section.entries for section in self.sections]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def bytes(self) -> int:
        """The stored size, without what older checkpoints hold."""
        return sum(section.bytes for section in self.sections)


@dataclass(frozen=True, slots=True)
class StoredChannel:
    """The in-flight data of one channel, as its sending or receiving end held it.

    Iterating gives (record, timestamp in ms or None), in the order in which they travelled. Raises
    CorruptCheckpointError where it is damaged.
    """

    data: ChannelData
    place: int
    """Which section of the part it is."""
    part: PartReader
    allow_pickle: bool

    @property
    def link(self) -> str:
        """The edge that the records were on: `sender's uid > receiver's uid:input`."""
        return self.data.link

    @property
    def receiver_uid(self) -> str:
        """The operator that was to get the records."""
        return self.link.rpartition(" > ")[2].rpartition(":")[0]

    @property
    def bytes(self) -> int:
        return self.data.bytes

    @property
    def records(self) -> int | None:
        """How many records; None in checkpoints of versions that did not count them."""
        return self.data.records

    def __iter__(self) -> Iterator[tuple[Any, int | None]]:
        for records, times in self.chunks():
            yield from zip(records, times, strict=True)

    def chunks(self) -> Iterator[tuple[list[Any], Sequence[int | None]]]:
        """The records and their timestamps, a frame at a time."""
        codec = RowCodec(allow_pickle=self.allow_pickle, opaque_pickles=not self.allow_pickle)
        with _damage_at(self.part.path):
            for frame in stored_frames(self.part.section(self._section), self.part.path):
                rows = batch_of(frame, codec).rows()
                yield rows.records, rows.timestamps or [None] * len(rows)

    @property
    def _section(self) -> Section:
        found = next(islice(self.part.index.sections, self.place, None), None)
        if found is None:
            raise CorruptCheckpointError(
                f"has no section {self.place} for the channel {self.link!r}", self.part.path
            )
        return found


def _section_of(part: PartReader, name: str) -> Section:
    for section in part.index.sections:
        if section.name == name:
            return section
    raise CorruptCheckpointError(f"has no section {name!r}", part.path)


def _without(newer: set[Any], entries: Entries) -> Entries:
    """The entries whose keys are not among the newer ones, which they join."""
    for stored, values in entries:
        keys = distinct_keys(stored)
        mask = [key not in newer for key in keys]
        newer.update(keys)
        yield list(compress(keys, mask)), list(compress(values, mask))


@contextmanager
def _damage_at(path: str) -> Iterator[None]:
    """The error for bytes with right checksums that minirt did not write."""
    try:
        yield
    except (MalformedDataError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(f"cannot be decoded, {error}", path) from error
