"""Checkpoints on an object store: claims of generations, snapshots, manifests and their history."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from minirt.config import Limits
from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ProtocolError,
    StorageError,
)
from minirt.protocol.cleanup import CleanupPlan
from minirt.protocol.manifest import (
    ChannelData,
    CheckpointPaths,
    GenerationClaim,
    InFlightRef,
    Manifest,
    ManifestKey,
    ManifestSummary,
    Reference,
    SnapshotRef,
    next_checkpoint_id,
    next_generation,
    restore_candidates,
)
from minirt.state.stored import entries_in
from minirt.storage.damage import (
    NO_OLDER_CHECKPOINT,
    cannot_restore,
    cannot_restore_if_damaged,
    fallback_to,
)
from minirt.storage.history import History
from minirt.storage.manifests import decode_manifest, encode_manifest
from minirt.storage.parts import part_checksum, part_head
from minirt.storage.retention import Retention, sweep
from minirt.storage.snapshots import check_files, read_object, read_referenced, read_sections
from minirt.storage.store import ObjectStore

_CLAIM_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint to start from. Its snapshots are read from `storage`, which may be another one."""

    manifest: Manifest
    storage: CheckpointStorage
    base: ManifestKey | None
    """What to resolve the generation with; None if it comes from another storage."""
    skipped: tuple[CorruptCheckpointError, ...] = ()
    """What is wrong with the newer checkpoints that were passed over."""
    ignored: tuple[InFlightRef, ...] = ()
    """The in-flight data that was left out of the manifest."""


class CheckpointStorage:
    """All checkpoints of one job under one root.

    Workers, which get it by pickle, write and read snapshots, from any thread. The coordinator does all
    the rest, from one thread; `minirt.protocol.manifest` says in which order and why. A snapshot of at
    most `inline_bytes_max` bytes is stored in the manifest. Raises StorageError where storage fails and
    CorruptCheckpointError where it holds something unusable.
    """

    def __init__(
        self,
        store: ObjectStore,
        inline_bytes_max: int,
        history_entries: int = Limits().history_entries,
    ) -> None:
        self.store = store
        self._inline_bytes_max = inline_bytes_max
        self._history_entries = history_entries
        self._generation = 0
        self._created: set[str] = set()
        """What this process has created and not deleted: a listing may not show it yet."""
        self._retention: Retention | None = None
        self._history = History(store, CheckpointPaths.HISTORY, 0, history_entries)

    def __reduce__(self) -> tuple[type[CheckpointStorage], tuple[ObjectStore, int, int]]:
        return (type(self), (self.store, self._inline_bytes_max, self._history_entries))

    def check_writable(self) -> None:
        """Raise StorageError if nothing can be stored here, before a job starts to rely on it."""
        self.store.write(CheckpointPaths.PROBE, b"")
        self.store.delete(CheckpointPaths.PROBE)

    # Generations

    def claim_generation(self) -> int:
        """Start a new generation, above all others; from now on older ones are not current."""
        generation = next_generation(self.manifest_keys(), self.claims())
        claimant = f"{socket.gethostname()} process {os.getpid()} at {time.time():.3f}\n".encode()
        for _ in range(_CLAIM_ATTEMPTS):
            path = CheckpointPaths.claim(generation)
            if self._create(path, claimant):
                self._check_create_refuses(path, claimant)
                self._generation = generation
                entries_max = self._history_entries
                self._history = History(
                    self.store, CheckpointPaths.HISTORY, generation, entries_max
                )
                return generation
            generation += 1
        raise StorageError(
            f"{_CLAIM_ATTEMPTS} generations in a row were taken by others; is a job being started in"
            " an endless loop?",
            self.store.full_path(CheckpointPaths.GENERATIONS),
        )

    def resolve_generation(self, generation: int, base: ManifestKey | None) -> bool:
        """Record what the generation restored, None for nothing. False: it has been replaced, stop."""
        if base is not None and base.generation > generation:
            return False
        self._create(CheckpointPaths.base(generation, base), b"")
        return self.is_current(generation)

    def is_current(self, generation: int) -> bool:
        """Whether nobody has claimed a higher generation: claims have no gaps, so one look is enough."""
        return not self.store.exists(CheckpointPaths.claim(generation + 1))

    def claims(self) -> list[GenerationClaim]:
        """Every generation ever started, oldest first."""
        return CheckpointPaths.parse_claims(self._list(CheckpointPaths.GENERATIONS))

    # Snapshots

    def write_snapshot(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        sections: Mapping[str, bytes],
        references: Sequence[Reference] = (),
    ) -> SnapshotRef:
        """Store one subtask's snapshot, durable on return, or put it into the reference if it is small.

        It builds on what it refers to in files that were written before.
        """
        path = CheckpointPaths.snapshot(ManifestKey(checkpoint_id, generation), vertex, subtask)
        chunks = {name: (section,) for name, section in sections.items()}
        entries = {name: entries_in(name, section) for name, section in sections.items()}
        written = self._write_part(path, vertex, subtask, chunks, entries)
        return replace(written, references=tuple(references))

    def write_in_flight(
        self,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        channels: Sequence[tuple[ChannelData, Iterable[bytes]]],
    ) -> InFlightRef:
        """Store the in-flight data that one subtask captured, as `write_snapshot` does with state.

        It comes in chunks and need not be in memory: it is gone through twice, first for the checksums.
        """
        path = CheckpointPaths.in_flight(ManifestKey(checkpoint_id, generation), vertex, subtask)
        sections = {str(place): data for place, (_, data) in enumerate(channels)}
        entries = {str(place): channel.records for place, (channel, _) in enumerate(channels)}
        stored = self._write_part(path, vertex, subtask, sections, entries)
        return InFlightRef(stored, tuple(channel for channel, _ in channels))

    def read_snapshot(self, ref: SnapshotRef, checkpoint: ManifestKey) -> dict[str, bytes]:
        """What a snapshot of the checkpoint holds itself, all checksums verified."""
        with cannot_restore_if_damaged(checkpoint.checkpoint_id):
            return read_sections(self.store, ref, checkpoint)

    def read_state(
        self, ref: SnapshotRef, checkpoint: ManifestKey
    ) -> Iterator[tuple[str | None, dict[str, bytes]]]:
        """All that a snapshot consists of: what it builds on, oldest first, and at last what it holds.

        Each with the path of its file, None if it is in the manifest.
        """
        for reference in ref.references:
            with cannot_restore_if_damaged(checkpoint.checkpoint_id):
                yield reference.path, read_referenced(self.store, reference)
        yield ref.path, self.read_snapshot(ref, checkpoint)

    # Manifests

    def create_manifest(self, manifest: Manifest) -> bool:
        """Complete the checkpoint; True if storage now holds this manifest, also by an earlier attempt.

        Unless `is_current` afterwards, it must not be acted on: neither commit nor clean up.
        """
        path, chunks = CheckpointPaths.manifest(manifest.key), encode_manifest(manifest)
        if not self._create(path, chunks) and self.store.read(path) != b"".join(chunks):
            return False
        if self._retention is not None:
            self._retention.add(manifest.summary())
        return True

    def read_manifest(self, key: ManifestKey) -> Manifest:
        """The manifest of a checkpoint."""
        path = CheckpointPaths.manifest(key)
        full_path = self.store.full_path(path)
        manifest = decode_manifest(read_object(self.store, path), full_path)
        if manifest.key != key:
            raise CorruptCheckpointError(
                f"holds the manifest of another checkpoint, {manifest.key}", full_path
            )
        return manifest

    def manifest_keys(self) -> list[ManifestKey]:
        """Every completed checkpoint, orphans included, oldest first; from a listing alone."""
        paths = self._list(CheckpointPaths.MANIFESTS)
        return sorted(key for path in paths if (key := CheckpointPaths.parse_manifest(path)))

    def next_checkpoint_id(self, point: RestorePoint | None = None) -> int:
        """An id that is newer than all that this storage, and the restored checkpoint, know of."""
        restored = [point.manifest.key] if point is not None else []
        return next_checkpoint_id([*self.manifest_keys(), *restored], self.claims())

    def restore_point(
        self,
        which: str | int = "latest",
        *,
        allow_fallback: bool = False,
        exclude: Collection[ManifestKey] = (),
        without_in_flight_of: int | None = None,
    ) -> RestorePoint | None:
        """The checkpoint to start from, with all its files present; None if "latest" finds none at all.

        `which` is "latest", a checkpoint id, or a path: of a manifest, of a checkpoint's folder, or of a
        storage, for its latest; of this storage or of a copy elsewhere. `allow_fallback` lets the next
        older one stand in for a damaged one; what the damaged one committed is then produced again.
        `exclude` names those whose damage was noticed while reading them. The in-flight data of the
        checkpoint with the id `without_in_flight_of` is left out, whether it is there or not. Raises
        ConfigurationError if there is no such checkpoint.
        """
        storage, key = (self, None) if which == "latest" else self._locate(which)
        keys = storage.manifest_keys()
        candidates = restore_candidates(keys, storage.claims())
        if key is not None:
            if key not in keys:
                raise ConfigurationError(
                    f"restore: no checkpoint {which!r} in {_describe(storage, keys)}"
                )
            candidates = [key, *(older for older in candidates if older < key)]
        elif not candidates and which != "latest":
            raise ConfigurationError(f"restore: no checkpoint at {which!r}")
        if not candidates:
            return None
        point = storage._newest_whole(candidates, allow_fallback, exclude, without_in_flight_of)
        return point if storage.store.root == self.store.root else replace(point, base=None)

    def cleanup(self, retain: int, active: Collection[ManifestKey] = ()) -> CleanupPlan:
        """Delete all but the newest `retain` checkpoints and the savepoints; returns what was deleted.

        `active` are the checkpoints in progress. Only for the generation that is current, after it is
        resolved. The first call lists the storage, later ones only folders of checkpoints that failed.
        """
        if self._retention is None:
            claims = self.claims()
            if GenerationClaim(self._generation) in claims or self._generation == 0:
                raise ProtocolError("cleanup needs a generation that is claimed and resolved")
            manifests = [self._summary(key) for key in self.manifest_keys()]
            self._retention = Retention(self.store, self._generation, claims, manifests)
        plan = self._retention.cleanup(retain, active)
        self._created.difference_update(map(CheckpointPaths.manifest, plan.manifests_to_delete))
        return plan

    def sweep(self) -> None:
        """Remove what crashed writers of earlier generations left half written."""
        sweep(self.store, self._generation)

    # History

    def append_history(self, entry: dict[str, Any]) -> None:
        """Remember how a checkpoint ended; `entry` holds only values that msgpack carries."""
        self._history.append(entry)

    def history(self) -> list[dict[str, Any]]:
        """What `append_history` was given, newest last, over all generations."""
        return self._history.read()

    def at(self, root: str) -> CheckpointStorage:
        """The storage at another root; this one if it is the same."""
        if not root:
            return self
        store = self.store.at(root)
        if store.root == self.store.root:
            return self
        return CheckpointStorage(store, self._inline_bytes_max, self._history_entries)

    # Internals

    def _create(self, path: str, data: bytes | Iterable[bytes]) -> bool:
        self._created.add(path)
        return self.store.create(path, data)

    def _list(self, folder: str) -> list[str]:
        """What is in the folder, with what this process has created and a listing that lags leaves out."""
        listed = self.store.list(folder)
        own = {path for path in self._created if path.startswith(folder)}
        return sorted([*listed, *filter(self.store.exists, own.difference(listed))])

    def _write_part(
        self,
        path: str,
        vertex: int,
        subtask: int,
        sections: Mapping[str, Iterable[bytes]],
        entries: Mapping[str, int | None],
    ) -> SnapshotRef:
        head, size = part_head(sections, entries)
        checksum, chunks = part_checksum(head), chain([head], *sections.values())
        if size <= self._inline_bytes_max:
            return SnapshotRef(vertex, subtask, None, b"".join(chunks), size, checksum)
        self.store.write(path, chunks)
        return SnapshotRef(vertex, subtask, path, None, size, checksum)

    def _check_create_refuses(self, path: str, data: bytes) -> None:
        if self.store.create(path, data):
            raise ConfigurationError(
                f"{self.store.root} ignores the condition of a conditional write, so it cannot keep two"
                " runs of a job apart; use a storage that supports If-None-Match"
            )

    def _summary(self, key: ManifestKey) -> ManifestSummary:
        try:
            return self.read_manifest(key).summary()
        except CorruptCheckpointError:
            files = self.store.list(CheckpointPaths.folder(key))
            return ManifestSummary(key, frozenset(files), pinned=True)

    def _newest_whole(
        self,
        candidates: Sequence[ManifestKey],
        allow_fallback: bool,
        exclude: Collection[ManifestKey],
        without_in_flight_of: int | None,
    ) -> RestorePoint:
        skipped: list[CorruptCheckpointError] = []
        for index, key in enumerate(candidates):
            if key in exclude:
                continue
            try:
                manifest = self.read_manifest(key)
                ignored = manifest.in_flight if key.checkpoint_id == without_in_flight_of else ()
                if ignored:
                    manifest = replace(manifest, in_flight=())
                check_files(self.store, manifest)
            except CorruptCheckpointError as error:
                if not allow_fallback:
                    fallback = self._fallback(candidates[index + 1 :])
                    raise cannot_restore(error, key.checkpoint_id, fallback) from error
                skipped.append(cannot_restore(error, key.checkpoint_id, None))
                continue
            return RestorePoint(manifest, self, key, tuple(skipped), ignored)
        newest = f"; the newest: {skipped[0]}" if skipped else ""
        raise CorruptCheckpointError(
            f"none of {len(candidates)} checkpoints can be restored{newest}",
            self.store.full_path(CheckpointPaths.MANIFESTS),
        )

    def _fallback(self, older: Sequence[ManifestKey]) -> str:
        if not older:
            return NO_OLDER_CHECKPOINT
        return fallback_to(self.store.full_path(CheckpointPaths.folder(older[0]).rstrip("/")))

    def _locate(self, which: str | int) -> tuple[CheckpointStorage, ManifestKey | None]:
        """The storage that a path or id points into, and the checkpoint; None for its latest."""
        if not isinstance(which, str):
            return self, self._key_of(which)
        path = which.rstrip("/")
        head, _, name = path.rpartition("/")
        if (key := CheckpointPaths.parse_folder(name)) is not None:
            root = head
        elif (key := CheckpointPaths.parse_manifest("/".join(path.split("/")[-2:]))) is not None:
            root = head.rpartition("/")[0]
        else:
            root = path
        return self.at(root), key

    def _key_of(self, checkpoint_id: int) -> ManifestKey:
        keys = self.manifest_keys()
        matching = [key for key in keys if key.checkpoint_id == checkpoint_id]
        counting = restore_candidates(matching, self.claims())
        if counting:
            return counting[0]
        if matching:
            path = self.store.full_path(CheckpointPaths.folder(matching[-1]).rstrip("/"))
            raise ConfigurationError(
                f"restore: checkpoint {checkpoint_id} was left behind when the job restarted from an"
                f' older one, its output was not committed since; to restore it all the same: "{path}"'
            )
        raise ConfigurationError(
            f"restore: no checkpoint {checkpoint_id} in {_describe(self, keys)}"
        )


def _describe(storage: CheckpointStorage, keys: list[ManifestKey]) -> str:
    ids = ", ".join(str(key.checkpoint_id) for key in keys[-20:])
    return f"{storage.store.root}, which holds {ids or 'none'}"
