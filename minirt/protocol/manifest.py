"""Manifests and generations: which checkpoints exist, and which of them count.

A checkpoint is complete once its manifest exists; nothing else says so. Each start and each restart
of a job takes these steps, in this order:

1. *claim* the next generation by an atomic create. Generations have no gaps.
2. list the manifests, then the claims, and *choose* the newest manifest that counts.
3. *resolve*: record in storage which manifest it starts from. If that is of a higher generation, stop.
4. check that nobody has claimed a higher generation. Only then commit that manifest's output and run.

And for each checkpoint of a running job: create the manifest, check that nobody has claimed a higher
generation, and only then commit and clean up. What is committed was thus visible before any higher
claim existed, so every later generation finds it when it lists, and builds on it.

A coordinator that was replaced without noticing (a zombie) can still create a manifest before its check
fails; it can even resolve late. Such a manifest is an *orphan*: it counts only if it lies on the line
of the newest resolved claim, which runs from that claim to its base, on to the base of the base's
generation, and so forth. The newest resolved claim alone decides. Asking instead whether any resolved
claim disowns a manifest is wrong: a zombie that resolves late would disown what its successor committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from minirt.errors import CorruptCheckpointError, ProtocolError
from minirt.protocol import plain
from minirt.protocol.barriers import Switch
from minirt.protocol.key_groups import MAX_PARALLELISM_LIMIT
from minirt.protocol.part_paths import file_of
from minirt.protocol.stored_edges import EdgeEntry, UnnamedEntry
from minirt.protocol.stored_watermarks import SubtaskWatermarks

MANIFEST_VERSION = 2
"""Since version 2, parts of a checkpoint may share a file."""

Bytes = bytes  # Where a field is called `bytes`, annotations cannot say it.

CheckpointKind = Literal["checkpoint", "final", "savepoint"]


class ManifestKey(NamedTuple):
    """What names a manifest. Ids grow over restarts, so sorting keys sorts by age."""

    checkpoint_id: int
    generation: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Sections in the file of an older checkpoint that a snapshot builds on."""

    path: str
    sections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """Where the snapshot of one subtask is: a path relative to the storage, or the bytes themselves.

    The path may be that of a part which shares its file, as may be those of references.
    """

    vertex: int
    subtask: int
    path: str | None
    inline: Bytes | None
    bytes: int
    """Its stored size."""
    crc: int
    """Checksum of its frame, which holds the checksums of all its sections."""
    references: tuple[Reference, ...] = ()
    """What it builds on, oldest first; these files stay as long as this one."""

    def paths(self) -> Iterator[str]:
        """Where all is that must stay for this snapshot to be readable."""
        if self.path is not None:
            yield self.path
        yield from (reference.path for reference in self.references)


@dataclass(frozen=True, slots=True)
class ChannelData:
    """In-flight data of one channel, as its sending or receiving end held it.

    `link` is the key of the link, `partitioning` and `receivers` what dealt its records then.
    """

    link: str
    partitioning: str
    sender: int
    receiver: int
    receivers: int
    side: Literal["out", "in"]
    bytes: int
    recoveries: int = 0
    """How often it was restored and captured again. At a receiver, what has more of them is older."""
    records: int | None = None
    """How many records these are; None in checkpoints of versions that did not count them."""


@dataclass(frozen=True, slots=True)
class InFlightRef:
    """Where the in-flight data is that one subtask captured: section `i` is that of `channels[i]`."""

    stored: SnapshotRef
    channels: tuple[ChannelData, ...]


@dataclass(frozen=True, slots=True)
class SubtaskStats:
    """How the checkpoint went in one subtask. Durations in seconds, sizes in bytes."""

    vertex: int
    subtask: int
    name: str
    start_delay_s: float
    """From the trigger to the first barrier that was processed: reached, or handled by overtaking."""
    alignment_s: float
    """From the first barrier to the last one."""
    sync_s: float
    async_s: float
    """From the end of the synchronous part until all is stored."""
    acknowledged_after_s: float
    """From the trigger to the acknowledgement."""
    state_bytes: int
    in_flight_bytes: int
    processed_bytes: int
    """How much the subtask took in during alignment."""
    unaligned: bool
    """Whether barriers overtook data here."""
    switches: tuple[Switch, ...] = ()
    local: int = 0
    """The number of its local snapshot; 0 for one with barriers."""
    age_s: float = 0.0
    """How long before the trigger a local snapshot was taken, about; 0 for one with barriers."""
    skipped: int = 0
    """Local snapshots since the line before that no checkpoint is made of."""
    forced: int = 0
    """Local snapshots since the line before that marks have forced."""


@dataclass(frozen=True, slots=True)
class VertexEntry:
    """A vertex as it was, so that its snapshots can be dealt to another parallelism.

    `edges` are those that lead into it or within it, `unnamed` its operators to which no uid was given.
    """

    id: int
    uids: tuple[str, ...]
    name: str
    parallelism: int
    max_parallelism: int
    edges: tuple[EdgeEntry, ...] = ()
    unnamed: tuple[UnnamedEntry, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.parallelism <= self.max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise ValueError(
                f"parallelism {self.parallelism} of {self.name} is not from 1 to its maximum "
                f"({self.max_parallelism}, itself at most {MAX_PARALLELISM_LIMIT})"
            )


@dataclass(frozen=True, slots=True)
class SinkHandles:
    """Output of one sink subtask that `checkpoint_id` prepared and nobody has surely committed yet."""

    uid: str
    checkpoint_id: int
    subtask: int
    handles: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """The newest checkpoint of which output of a sink was known to be committed when this was written."""

    uid: str
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Drain:
    """With this checkpoint the job ends: its input and event time have ended in it.

    `path` is where its savepoint was wanted, None in the job's own storage.
    """

    path: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a restore needs to know of a completed checkpoint. Times in unix seconds."""

    version: int
    job: str
    checkpoint_id: int
    generation: int
    mode: str
    kind: CheckpointKind
    triggered_at: float
    completed_at: float
    vertices: tuple[VertexEntry, ...]
    snapshots: tuple[SnapshotRef, ...]
    sink_handles: tuple[SinkHandles, ...]
    """All that may be uncommitted, in the order of committing."""
    stats: tuple[SubtaskStats, ...]
    in_flight: tuple[InFlightRef, ...] = ()
    watermarks: tuple[SubtaskWatermarks, ...] = ()
    drain: Drain | None = None
    identity: str = ""
    """Which job's it is: that of one storage in one place. Empty in checkpoints of older versions."""
    committed: tuple[CommittedOutput, ...] = ()

    @property
    def key(self) -> ManifestKey:
        return ManifestKey(self.checkpoint_id, self.generation)

    @property
    def duration_s(self) -> float:
        return self.completed_at - self.triggered_at

    @property
    def bytes(self) -> int:
        """The size of its snapshots, without what they refer to in older checkpoints."""
        return sum(ref.bytes for ref in self.stored())

    def stored(self) -> Iterator[SnapshotRef]:
        """Everything that it needs to be readable: state and in-flight data."""
        yield from self.snapshots
        yield from (captured.stored for captured in self.in_flight)

    def summary(self) -> ManifestSummary:
        paths = (path for ref in self.stored() for path in ref.paths())
        files = frozenset(map(file_of, paths))
        return ManifestSummary(self.key, files, pinned=self.kind == "savepoint")

    def to_plain(self) -> dict[str, Any]:
        """As a dict that msgpack can carry."""
        result: dict[str, Any] = plain.to_plain(self)
        return result

    @classmethod
    def from_plain(cls, value: object, path: str) -> Manifest:
        """The manifest stored at `path`. Raises CorruptCheckpointError for anything else."""
        version = value.get("version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > MANIFEST_VERSION:
            raise CorruptCheckpointError(
                f"the manifest has version {version}, this minirt reads up to {MANIFEST_VERSION};"
                " use the version of minirt that wrote it, or a later one",
                path,
            )
        try:
            manifest = plain.from_plain(cls, value)
        except ValueError as error:
            raise CorruptCheckpointError(f"not a manifest, {error}", path) from error
        if manifest.version < 1:
            raise CorruptCheckpointError(f"unknown manifest version {manifest.version}", path)
        return manifest


@dataclass(frozen=True, slots=True)
class ManifestSummary:
    """What deciding about deletions needs of a manifest."""

    key: ManifestKey
    paths: frozenset[str]
    """The files it refers to."""
    pinned: bool = False
    """Stays whatever its age: a savepoint, or a manifest that cannot be read."""


@dataclass(frozen=True, slots=True)
class GenerationClaim:
    """One start of the job; once `resolved`, `base` is what it restored, None for an empty start."""

    generation: int
    base: ManifestKey | None = None
    resolved: bool = False

    def __post_init__(self) -> None:
        if self.base is not None and self.base.generation >= self.generation:
            raise ProtocolError(f"generation {self.generation} cannot restore {self.base}")


def choose_restore_point(
    manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]
) -> ManifestKey | None:
    """The manifest to start from: the newest one that counts; None if there is none."""
    return next(iter(restore_candidates(manifests, claims)), None)


def restore_candidates(
    manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]
) -> list[ManifestKey]:
    """All manifests that count, newest first. Orphans are left out."""
    bases = {claim.generation: claim.base for claim in claims if claim.resolved}
    return sorted((key for key in manifests if _counts(key, bases)), reverse=True)


def _counts(key: ManifestKey, bases: Mapping[int, ManifestKey | None]) -> bool:
    """Walk down the line of the newest resolved claim until it reaches the key's generation."""
    if not bases or key.generation >= max(bases):
        return True
    generation = max(bases)
    while True:
        base = bases[generation]
        if base is None or base.generation < key.generation:
            return False
        if base.generation == key.generation:
            return key.checkpoint_id <= base.checkpoint_id
        if base.generation not in bases:  # Its record is lost: nothing disowns what is older.
            return key.checkpoint_id < base.checkpoint_id
        generation = base.generation


def next_checkpoint_id(manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]) -> int:
    """An id above every id that storage knows of, orphans included."""
    bases = (claim.base.checkpoint_id for claim in claims if claim.base is not None)
    return 1 + max([0, *(key.checkpoint_id for key in manifests), *bases])


def next_generation(manifests: Iterable[ManifestKey], claims: Iterable[GenerationClaim]) -> int:
    """The generation to claim next."""
    claimed = (claim.generation for claim in claims)
    return 1 + max([0, *(key.generation for key in manifests), *claimed])
