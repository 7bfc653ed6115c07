"""One stored checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from minirt.errors import ConfigurationError, StorageError
from minirt.inspect.entries import Kind, StoredChannel, StoredEntries, StoredSection
from minirt.inspect.table import StoredTable, table_of_channels, table_of_entries
from minirt.notebook import table
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import Manifest, SnapshotRef, VertexEntry
from minirt.protocol.trace import CheckpointTrace
from minirt.state.stored import STRETCH, SectionName
from minirt.storage.part_reader import PartReader, referred_part, stored_file
from minirt.storage.store import ObjectMissingError, ObjectStore
from minirt.storage.traces import decode_trace


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """What a checkpoint holds of one operator."""

    uid: str
    vertex: VertexEntry
    """The chain that it ran in."""
    entries: tuple[StoredEntries, ...]
    unknown_bytes: int
    """What is stored of it in forms that this version of minirt does not know."""

    @property
    def states(self) -> tuple[StoredEntries, ...]:
        return tuple(found for found in self.entries if found.kind == "state")

    def state(self, name: str = "value") -> StoredEntries:
        """A state by its name; that of `reduce` is called "value". Raises ConfigurationError."""
        return self.named("state", name)

    def named(self, kind: Kind, name: str) -> StoredEntries:
        """A state, timers or splits by name. Raises ConfigurationError if there are none."""
        for found in self.entries:
            if (found.kind, found.name) == (kind, name):
                return found
        names = ", ".join(repr(found.name) for found in self.entries if found.kind == kind)
        raise ConfigurationError(
            f"operator {self.uid!r} has no {kind} {name!r}; there are: {names or 'none'}"
        )


class StoredCheckpoint:
    """A completed checkpoint. Everything in it that is large is read only when it is iterated over.

    `counts` is False for an orphan, which was left behind by a restart. `manifest` has the figures: mode,
    kind, times in unix seconds, statistics of each subtask, handles of sinks. Properties and methods raise
    CorruptCheckpointError for what is damaged, StorageError where storage fails.
    """

    def __init__(
        self, store: ObjectStore, manifest: Manifest, *, counts: bool, allow_pickle: bool
    ) -> None:
        self._store = store
        self._allow_pickle = allow_pickle
        self.manifest = manifest
        self.counts = counts

    def __repr__(self) -> str:
        return f"StoredCheckpoint({self.path!r})"

    def _repr_html_(self) -> str:
        found = self.manifest
        title = f"checkpoint {self.id} ({found.mode}), {found.bytes} bytes, {self.path}"
        rows = (
            (operator.uid, held.kind, held.name, held.bytes)
            for operator in self.operators.values()
            for held in operator.entries
        )
        return table(title, ("operator", "what", "name", "bytes"), rows)

    @property
    def id(self) -> int:
        return self.manifest.checkpoint_id

    @property
    def generation(self) -> int:
        return self.manifest.generation

    @property
    def path(self) -> str:
        """What names it: the folder of its files, which can be given as `restore`."""
        return self._store.full_path(CheckpointPaths.folder(self.manifest.key).rstrip("/"))

    @property
    def parents(self) -> tuple[str, ...]:
        """Files of older checkpoints that it builds on, relative to the storage."""
        references = (found for ref in self.manifest.stored() for found in ref.references)
        return tuple(sorted({reference.path for reference in references}))

    @cached_property
    def operators(self) -> Mapping[str, StoredOperator]:
        """All operators of the job, by uid, those without state included."""
        sections: dict[tuple[int, str, str, str], list[StoredSection]] = {}
        unknown: dict[tuple[int, str], int] = {}
        older = {path: stored_file(self._store, path) for path in self.parents}
        for ref in sorted(self.manifest.snapshots, key=lambda ref: (ref.vertex, ref.subtask)):
            part = self._part(ref)
            own = {section.name for section in part.index.sections}
            for section in part.index.sections:
                uid, kind, name = SectionName.parse(section.name)
                if kind not in get_args(Kind):
                    size = unknown.get((ref.vertex, uid), 0) + section.length
                    unknown[ref.vertex, uid] = size
                    continue
                if name.endswith(STRETCH):
                    continue  # It is part of the state.
                names = section.name, section.name + STRETCH
                pieces = [(part, each) for each in names if each in own] + [
                    (older[of.path], each)
                    for of in reversed(ref.references)
                    for each in names
                    if each in of.sections
                ]
                found = StoredSection(
                    ref.subtask,
                    kind,  # type: ignore[arg-type]
                    part,
                    section,
                    tuple(pieces),
                    self._allow_pickle,
                )
                sections.setdefault((ref.vertex, uid, kind, name), []).append(found)
        operators = {}
        for vertex in self.manifest.vertices:
            for uid in vertex.uids:
                entries = tuple(
                    StoredEntries(uid, kind, name, tuple(stored))  # type: ignore[arg-type]
                    for (at, of, kind, name), stored in sorted(sections.items(), key=_order)
                    if (at, of) == (vertex.id, uid)
                )
                operators[uid] = StoredOperator(
                    uid, vertex, entries, unknown.get((vertex.id, uid), 0)
                )
        return operators

    def operator(self, uid: str) -> StoredOperator:
        """An operator by its uid. Raises ConfigurationError if the job had none of that name."""
        try:
            return self.operators[uid]
        except KeyError:
            raise ConfigurationError(
                f"checkpoint {self.id} has no operator {uid!r}; there are: "
                + ", ".join(map(repr, self.operators))
            ) from None

    @cached_property
    def in_flight(self) -> tuple[StoredChannel, ...]:
        """The channels whose records were captured."""
        return tuple(
            StoredChannel(data, place, self._part(captured.stored), self._allow_pickle)
            for captured in self.manifest.in_flight
            for place, data in enumerate(captured.channels)
        )

    def table(
        self,
        what: Literal["state", "timers", "splits", "in-flight"] = "state",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> StoredTable:
        """All states, timers, splits or in-flight records, or those of one operator, as one table.

        `name` chooses one state, or the timers of one time domain. In-flight records belong to the operator
        that was to get them. Raises ConfigurationError if there is no such operator or name.
        """
        chosen = [*self.operators.values()] if uid is None else [self.operator(uid)]
        if what in ("splits", "in-flight") and name is not None:
            raise ConfigurationError(f"name={name!r} has no effect on {what}, which have none")
        if what == "in-flight":
            return table_of_channels([c for c in self.in_flight if uid in (None, c.receiver_uid)])
        found = [held for operator in chosen for held in operator.entries if held.kind == what]
        named = [held for held in found if name in (None, held.name)]
        if name is not None and not named:
            names = ", ".join(sorted({repr(held.name) for held in found}))
            raise ConfigurationError(
                f"checkpoint {self.id} has no {what} {name!r}; there are: {names or 'none'}"
            )
        return table_of_entries(what, named)

    def trace(self) -> CheckpointTrace | None:
        """What it did, event by event; None unless the job ran with `Options(trace=True)`."""
        path = CheckpointPaths.trace(self.manifest.key)
        try:
            data = self._store.read(path)
        except ObjectMissingError:
            return None
        return decode_trace(data, self._store.full_path(path))

    @property
    def stored_bytes(self) -> int:
        """The size of all that it needs and that is there, files of older checkpoints included."""
        folders = {path.rpartition("/")[0] for path in self.parents}
        sizes = {path: n for at in folders for path, n in self._store.sizes(at).items()}
        return self.manifest.bytes + sum(sizes.get(path, 0) for path in self.parents)

    def verify(self, on_bytes: Callable[[int], None] = lambda count: None) -> list[StorageError]:
        """Read all that it needs and compare every checksum; returns one error for each damaged part.

        `on_bytes` hears how many bytes were read, again and again.
        """
        return [error for part in self._parts() if (error := _verify(part, on_bytes)) is not None]

    def _parts(self) -> Iterator[PartReader]:
        yield from map(self._part, self.manifest.stored())
        yield from (stored_file(self._store, path) for path in self.parents)

    def _part(self, ref: SnapshotRef) -> PartReader:
        return referred_part(self._store, ref, self.manifest.key)


def _order(item: tuple[tuple[int, str, str, str], object]) -> tuple[str, ...]:
    (_, uid, kind, name), _ = item
    return uid, kind, name


def _verify(part: PartReader, on_bytes: Callable[[int], None]) -> StorageError | None:
    try:
        part.verify(on_bytes)
    except StorageError as error:
        return error
    return None
