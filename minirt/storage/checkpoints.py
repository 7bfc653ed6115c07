"""Checkpoints on an object store: claims of generations, snapshots, manifests and their history."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from minirt.config import Limits
from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ProtocolError,
    StorageError,
    SupersededError,
)
from minirt.process_names import name_of_this_process
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.cleanup import CleanupPlan, plan_records
from minirt.protocol.manifest import (
    GenerationClaim,
    Manifest,
    ManifestKey,
    ManifestSummary,
    SnapshotRef,
    next_generation,
)
from minirt.protocol.trace import CheckpointTrace
from minirt.storage.history import History, Run
from minirt.storage.manifests import decode_manifest, encode_manifest
from minirt.storage.part_files import read_stored
from minirt.storage.part_writer import PartWriter, SharedFiles
from minirt.storage.retention import Retention, sweep
from minirt.storage.snapshots import read_referenced, read_sections
from minirt.storage.store import ObjectStore
from minirt.storage.traces import encode_trace

COMMITTED = "committed"
"""Says in an entry of the history that all output of the checkpoint was committed."""

_CLAIM_ATTEMPTS = 1000
_RECORDS_DELETED_MAX = 1000
"""How many records of old generations a start deletes, one after the other."""
_SINCE = " at "
"""Stands in a claim between who has made it and when."""


class CheckpointStorage(PartWriter):
    """All checkpoints of one job under one root.

    Workers get it by pickle; they write and read snapshots from any thread. The coordinator does all the
    rest from one thread; `minirt.protocol.manifest` says in which order and why. A snapshot of at most
    `inline_bytes_max` bytes is stored in the manifest. Raises StorageError where storage fails and
    CorruptCheckpointError where it holds something unusable.
    """

    def __init__(
        self,
        store: ObjectStore,
        inline_bytes_max: int,
        history_entries: int = Limits().history_entries,
    ) -> None:
        super().__init__(inline_bytes_max)
        self.store = store
        self._history_entries = history_entries
        self._generation = 0
        self._created: set[str] = set()
        """The objects that this process has created and not deleted: a listing may not show them yet."""
        self._retention: Retention | None = None
        self._base: ManifestSummary | None = None
        self._undecided: dict[ManifestKey, ManifestSummary] = {}
        """Manifests whose creation has failed, as far as this process knows: storage may hold them all the
        same."""
        self._history = History(store, CheckpointPaths.HISTORY, 0, history_entries)

    def __reduce__(self) -> tuple[type[CheckpointStorage], tuple[ObjectStore, int, int]]:
        return (type(self), (self.store, self._inline_bytes_max, self._history_entries))

    @property
    def generation(self) -> int:
        """The generation that was claimed last through this object; 0 before the first. For any thread."""
        return self._generation

    @property
    def staging(self) -> ObjectStore:
        """Where sinks of the job may keep output until its commit."""
        return self.store.at(self.store.full_path(CheckpointPaths.STAGED).rstrip("/"))

    def near(self, folder: str, bytes_max: int) -> CheckpointStorage:
        """The same storage, with copies in a local folder of what this host stores."""
        store = self.store.near(folder, bytes_max)
        return CheckpointStorage(store, self._inline_bytes_max, self._history_entries)

    def check_writable(self) -> None:
        """Raise StorageError if nothing can be stored here, before a job starts to rely on it."""
        self.store.write(CheckpointPaths.PROBE, b"")
        self.store.delete(CheckpointPaths.PROBE)

    # Generations

    def claim_generation(self) -> int:
        """Start a new generation, above all others; from now on older ones are not current.

        Raises SupersededError if somebody else has claimed one since this object did: the job is his, and
        who was frozen meanwhile must not take it back.
        """
        generation = self._generation + 1
        if self._generation == 0:
            generation = next_generation(self.manifest_keys(), self.claims())
        claimant = f"{self._holder()}{_SINCE}{time.time():.3f}\n".encode() + self._mark
        for _ in range(_CLAIM_ATTEMPTS):
            path = CheckpointPaths.claim(generation)
            if self._create_surely(path, claimant) or self._is_own(path):
                self._check_create_refuses(path, claimant)
                newest = self._newest_claim()
                if newest > generation and not self.store.exists(
                    CheckpointPaths.claim(generation + 1)
                ):  # This claim was free because it had been cleaned up.
                    if self._generation > 0:
                        raise self.superseded()
                    generation = newest + 1
                    continue
                self._generation, self._retention, self._base = generation, None, None
                self._undecided.clear()
                entries_max = self._history_entries
                self._history = History(
                    self.store, CheckpointPaths.HISTORY, generation, entries_max
                )
                return generation
            if self._generation > 0:
                raise self.superseded()
            generation += 1
        raise StorageError(
            f"{_CLAIM_ATTEMPTS} generations in a row were taken by others; is a job being started in"
            " an endless loop?",
            self.store.full_path(CheckpointPaths.GENERATIONS),
        )

    def resolve_generation(self, generation: int, base: ManifestKey | None) -> bool:
        """Record what the generation restored, None for nothing. False if the generation has been replaced
        and must stop.

        Raises StorageError if the checkpoint has just been deleted. Who deletes one looks at these records
        after its manifest is gone: so at least one of the two sees the other.
        """
        if base is not None and base.generation > generation:
            return False
        self._create_surely(CheckpointPaths.base(generation, base), b"")
        if base is not None and not self.store.exists(CheckpointPaths.manifest(base)):
            raise StorageError(
                f"checkpoint {base.checkpoint_id} was deleted while the job was about to restore it"
            )
        return self.is_current(generation)

    def is_current(self, generation: int) -> bool:
        """Return True if nobody has claimed a higher generation.

        Claims have no gaps above the generation's own, and are deleted oldest first: a coordinator that was
        replaced finds either the next claim, or its own claim gone.
        """
        return not self.store.exists(CheckpointPaths.claim(generation + 1)) and self.store.exists(
            CheckpointPaths.claim(generation)
        )

    def _newest_claim(self) -> int:
        claims = CheckpointPaths.parse_claims(self.store.list(CheckpointPaths.GENERATIONS))
        return max((claim.generation for claim in claims), default=0)

    def is_superseded(self) -> bool:
        """Whether somebody else has claimed a generation since this object did; for any thread."""
        generation = self._generation
        path = CheckpointPaths.claim(generation + 1)
        if generation == 0:
            return False
        if self.store.exists(path):
            return not self._is_own(path)
        return not self.store.exists(CheckpointPaths.claim(generation))

    def superseded(self) -> SupersededError:
        """The error of a coordinator that was replaced. Names the newest one, if storage tells; for any
        thread."""
        try:
            newest = self._newest_claim()
            claim = CheckpointPaths.claim(newest)
            if newest <= self._generation or self._is_own(claim):
                return SupersededError()
            who, since, _ = self.store.read(claim).decode(errors="replace").partition(_SINCE)
        except (Exception, SystemExit):  # Whatever storage raises, the job is another's.
            return SupersededError()
        return SupersededError(who if since and who.isprintable() else None)

    def claims(self) -> list[GenerationClaim]:
        """Return the generations that storage knows, oldest first; the newest is always among them."""
        return CheckpointPaths.parse_claims(self._list(CheckpointPaths.GENERATIONS))

    # Snapshots

    def put(self, path: str, size: int, chunks: Iterable[bytes]) -> str:
        """Store a part in a file of its own, durable on return."""
        self.store.write(path, chunks)
        return path

    @contextmanager
    def together(self) -> Iterator[PartWriter]:
        """A writer of snapshots of several subtasks, which all are durable once the body is over.

        Raises StorageError where storage fails, in the body or at its end: then none of them counts.
        """
        files = SharedFiles(self.store, self._inline_bytes_max)
        yield files
        files.flush()

    def read_snapshot(self, ref: SnapshotRef, checkpoint: ManifestKey) -> dict[str, bytes]:
        """The sections that a snapshot of the checkpoint holds itself, all checksums verified."""
        return read_sections(self.store, ref, checkpoint)

    def read_state(
        self, ref: SnapshotRef, checkpoint: ManifestKey
    ) -> Iterator[tuple[str | None, dict[str, bytes]]]:
        """All sections of a snapshot: those that it builds on, oldest first, then those that it holds.

        Each comes with the path of its file, None if it is in the manifest.
        """
        for reference in ref.references:
            yield reference.path, read_referenced(self.store, reference)
        yield ref.path, self.read_snapshot(ref, checkpoint)

    # Manifests

    def create_manifest(self, manifest: Manifest) -> bool:
        """Complete the checkpoint; True if storage then holds its manifest, even from an earlier attempt.

        Unless `is_current` is true afterwards, the caller must not act on it: neither commit nor clean up.
        """
        path, chunks = CheckpointPaths.manifest(manifest.key), encode_manifest(manifest)
        try:
            created = self._create(path, chunks)
        except StorageError:
            self._undecided[manifest.key] = manifest.summary()
            if self._decided(manifest.key) is not True:
                raise
            return True
        if not created and self.store.read(path) != b"".join(chunks):
            return False
        if self._retention is not None:
            self._retention.add(manifest.summary())
        return True

    def _all_decided(self) -> bool:
        return None not in [self._decided(key) for key in list(self._undecided)]

    def _decided(self, key: ManifestKey) -> bool | None:
        """Whether storage holds a manifest whose creation has failed; None if nobody can tell at the
        moment."""
        try:
            exists = self.store.exists(CheckpointPaths.manifest(key))
        except StorageError:
            return None
        summary = self._undecided.pop(key)
        if exists and self._retention is not None:
            self._retention.add(summary)
        return exists

    def read_manifest(self, key: ManifestKey) -> Manifest:
        """The manifest of a checkpoint."""
        path = CheckpointPaths.manifest(key)
        full_path = self.store.full_path(path)
        manifest = decode_manifest(read_stored(self.store, path), full_path)
        if manifest.key != key:
            raise CorruptCheckpointError(
                f"holds the manifest of another checkpoint, {manifest.key}", full_path
            )
        return manifest

    def manifest_keys(self) -> list[ManifestKey]:
        """Every completed checkpoint, orphans included, oldest first; from a listing alone."""
        paths = self._list(CheckpointPaths.MANIFESTS)
        return sorted(key for path in paths if (key := CheckpointPaths.parse_manifest(path)))

    def drain_is_over(self, key: ManifestKey) -> bool:
        """Whether it is on record that the drain which took the checkpoint is over."""
        return self.store.exists(CheckpointPaths.drained(key))

    def build_on(self, restored: Manifest) -> None:
        """Keep the files of the checkpoint that the generation builds on, until its first own one is
        complete."""
        self._base = restored.summary()

    def end_drain(self, key: ManifestKey) -> None:
        """Put on record that the drain which took the checkpoint is over: a job may read on from it."""
        self.store.write(CheckpointPaths.drained(key), b"")

    def cleanup(
        self,
        retain: int,
        active: Collection[ManifestKey] = (),
        unneeded: Collection[str] = (),
    ) -> CleanupPlan:
        """Delete all but the newest `retain` checkpoints and the savepoints; returns what was deleted.

        `active` are the checkpoints in progress; files that are `unneeded` go, unless a manifest refers to
        them. Only for the generation that is current, after it is resolved. The first call of a generation
        lists the storage, later ones only folders of checkpoints that failed. As long as nobody knows
        whether a manifest exists, nothing is deleted.
        """
        if not self._all_decided():
            return CleanupPlan((), ())
        if self._retention is None:
            claims = self.claims()
            if GenerationClaim(self._generation) in claims or self._generation == 0:
                raise ProtocolError("cleanup needs a generation that is claimed and resolved")
            manifests = [self._summary(key) for key in self.manifest_keys()]
            complete = any(manifest.key.generation == self._generation for manifest in manifests)
            base = None if complete else self._base
            self._retention = Retention(self.store, self._generation, claims, manifests, base)
        plan = self._retention.cleanup(retain, active, unneeded)
        self._created.difference_update(map(CheckpointPaths.manifest, plan.manifests_to_delete))
        return plan

    def sweep(self) -> None:
        """Remove what crashed writers of earlier generations left, and records that nothing needs."""
        sweep(self.store, self._generation)
        stored = self.store.list(CheckpointPaths.GENERATIONS)
        plan = plan_records(stored, self.manifest_keys())
        if plan.disowning is not None:
            self._create_surely(plan.disowning, b"")
        for path in plan.outdated[:_RECORDS_DELETED_MAX]:
            self.store.delete(path)
            self._created.discard(path)

    # Traces

    def write_trace(self, trace: CheckpointTrace) -> None:
        """Keep what a checkpoint did for as long as the checkpoint."""
        path = CheckpointPaths.trace(ManifestKey(trace.checkpoint_id, trace.generation))
        self.store.write(path, encode_trace(trace))
        if self._retention is not None:
            self._retention.add_file(path)

    # History

    def append_history(self, entry: dict[str, Any]) -> None:
        """Remember how a checkpoint ended; `entry` holds only values that msgpack carries."""
        self._history.append(entry)

    def output_is_committed(self, key: ManifestKey) -> bool:
        """Return True if it is on record that all output of the checkpoint was committed.

        False if that is not known: the job may have ended between the commit and its record.
        """
        for run in reversed(self.history_runs()):
            for entry in reversed(self.history_of(run)):
                if (entry.get("checkpoint_id"), entry.get("generation")) == (
                    key.checkpoint_id,
                    key.generation,
                ):
                    return entry.get(COMMITTED) is True
            if run[1] < key.generation:  # Runs of earlier generations know nothing of this one.
                break
        return False

    def history(self) -> list[dict[str, Any]]:
        """The entries that `append_history` was given, newest last, over all generations."""
        return self._history.read()

    def history_runs(self) -> dict[Run, int]:
        """The objects that hold these entries, oldest first, and their sizes in bytes."""
        return self._history.runs()

    def history_of(self, run: Run) -> list[dict[str, Any]]:
        """The entries that one of them holds; none if it is gone by now."""
        return self._history.read_run(run)

    def at(self, root: str) -> CheckpointStorage:
        """The storage at another root; this one if it is the same."""
        if not root:
            return self
        store = self.store.at(root)
        if store.root == self.store.root:
            return self
        return CheckpointStorage(store, self._inline_bytes_max, self._history_entries)

    # Internals

    def _holder(self) -> str:
        """What messages call the coordinator that has claimed a generation through this object."""
        return f"process {os.getpid()} of host {socket.gethostname()}"

    def _create(self, path: str, data: bytes | Iterable[bytes]) -> bool:
        self._created.add(path)
        return self.store.create(path, data)

    def _create_surely(self, path: str, data: bytes) -> bool:
        self._created.add(path)
        return self.store.create_surely(path, data)

    @property
    def _mark(self) -> bytes:
        """Tells claims of this object from all others, also those whose creation got no answer."""
        return f"run {name_of_this_process()} {id(self)}\n".encode()

    def _is_own(self, claim: str) -> bool:
        return self.store.read(claim).endswith(self._mark)

    def _list(self, folder: str) -> list[str]:
        """The objects in the folder, including those that this process created and a lagging listing leaves
        out."""
        listed = self.store.list(folder)
        own = {path for path in self._created if path.startswith(folder)}
        return sorted([*listed, *filter(self.store.exists, sorted(own.difference(listed)))])

    def _check_create_refuses(self, path: str, data: bytes) -> None:
        if self.store.create_surely(path, data):
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
