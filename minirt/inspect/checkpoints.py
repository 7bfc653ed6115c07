"""All checkpoints of one storage, and finding one of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from minirt.config import Limits
from minirt.errors import ConfigurationError
from minirt.inspect.checkpoint import StoredCheckpoint
from minirt.monitoring.events import TOTALS
from minirt.monitoring.load import LOAD_ENTRIES_MAX, LoadEntry
from minirt.notebook import table
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.job_events import JobStatus
from minirt.protocol.manifest import ManifestKey, restore_candidates
from minirt.protocol.reports import CheckpointReport, Stored, completed_report
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.history import EVENTS_MAX, HISTORY_MAX, History
from minirt.storage.store import ObjectStore


def open_checkpoints(
    storage: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
) -> Checkpoints:
    """Look into the checkpoints that a job has stored, also while it runs.

    `storage` is what `Checkpointing` was given, or the path of a savepoint; `storage_options` go to fsspec.
    Loading pickles runs whatever code they hold: `allow_pickle` only where the origin is trusted. Where no
    job has stored anything yet there are none: a job may be about to start.
    """
    return Checkpoints(ObjectStore(os.fspath(storage), storage_options), allow_pickle)


class Checkpoints:
    """The checkpoints of one storage, read anew from it by each call.

    Iterating gives those that can be restored, oldest first. Methods raise ConfigurationError for a
    checkpoint that does not exist, CorruptCheckpointError for a manifest that cannot be read, StorageError
    where storage fails.
    """

    def __init__(self, store: ObjectStore, allow_pickle: bool) -> None:
        self._storage = CheckpointStorage(store, Limits().inline_snapshot_bytes, HISTORY_MAX)
        self._allow_pickle = allow_pickle

    def __repr__(self) -> str:
        return f"Checkpoints({self.root!r})"

    def _repr_html_(self) -> str:
        rows = [
            (
                one.checkpoint_id,
                one.status.value,
                one.mode,
                f"{one.duration_s:.3f}",
                one.bytes,
                one.stored,
            )
            for one in self.history()[-20:]
        ]
        head = ("id", "status", "mode", "seconds", "bytes", "on storage")
        return table(f"{'' if rows else 'no '}checkpoints in {self.root}", head, rows)

    @property
    def storage(self) -> CheckpointStorage:
        """What reads and writes it."""
        return self._storage

    @property
    def root(self) -> str:
        """Where the storage is."""
        return self._storage.store.root

    def check_not_empty(self) -> None:
        """Raise ConfigurationError if there is nothing of minirt here."""
        storage = self._storage
        if not (storage.manifest_keys() or storage.claims() or storage.history_runs()):
            raise ConfigurationError(f"{self.root} holds no checkpoints")

    def __iter__(self) -> Iterator[StoredCheckpoint]:
        keys, counting = self._keys()
        return (self._open(key, counts=True) for key in keys if key in counting)

    def __len__(self) -> int:
        return len(self._keys()[1])

    def latest(self) -> StoredCheckpoint:
        """The one that a restore would choose."""
        return self.find("latest")

    def keys(self) -> list[ManifestKey]:
        """What names each completed checkpoint, orphans included, oldest first."""
        return self._keys()[0]

    def find(self, which: int | str) -> StoredCheckpoint:
        """A checkpoint by its id; by "latest" or the name of its folder; or by a path.

        A path is that of a checkpoint's folder, or of a storage for its latest, here or elsewhere.
        """
        if isinstance(which, str) and "/" in which:
            head, _, name = which.rstrip("/").rpartition("/")
            root, within = (head, name) if CheckpointPaths.parse_folder(name) else (which, "latest")
            elsewhere = Checkpoints(self._storage.store.at(root), self._allow_pickle)
            elsewhere.check_not_empty()
            return elsewhere.find(within)
        key = self.key_of(which)
        return self.open(key)

    def open(self, key: ManifestKey) -> StoredCheckpoint:
        """The checkpoint of that name."""
        return self._open(key, counts=key in self._keys()[1])

    def key_of(self, which: int | str) -> ManifestKey:
        """What names the checkpoint on storage; its manifest need not be readable."""
        keys, counting = self._keys()
        matching = [key for key in keys if _matches(key, which)]
        if which == "latest":
            matching = [max(counting)] if counting else []
        if not matching:
            ids = ", ".join(str(key.checkpoint_id) for key in keys[-20:])
            raise ConfigurationError(
                f"no checkpoint {which} in {self.root}, which holds {ids or 'none'}"
            )
        return max(matching, key=lambda key: (key in counting, key))

    def history(self) -> list[CheckpointReport]:
        """How each checkpoint went, oldest first; failed and deleted ones included.

        Each report has `stored`: kept, orphan, deleted or no. A job can be restored from those kept.
        """
        storage = self._storage
        stored = self.stored_states()
        reports = list(readable_reports(storage.history()))
        known = {_key(report) for report in reports}
        # A coordinator may die between the manifest and the history.
        reports += [
            completed_report(storage.read_manifest(key)) for key in stored if key not in known
        ]
        return [
            replace(
                report, stored=stored.get(_key(report), "deleted" if report.completed else "no")
            )
            for report in sorted(reports, key=_key)
        ]

    def stored_states(self) -> dict[ManifestKey, Stored]:
        """Which checkpoints have a manifest, oldest first: those kept, and orphans."""
        keys, counting = self._keys()
        return {key: "kept" if key in counting else "orphan" for key in keys}

    def events(self) -> list[dict[str, Any]]:
        """What happened to the job, oldest first: when it ran, restarted and ended, and its figures then.

        Each has `event`, `job`, `at`, `generation` and `restarts`; where something ended, also `cause`,
        `completed_checkpoints`, `failed_checkpoints` and the totals of its `operators`.
        """
        stored = History(self._storage.store, CheckpointPaths.EVENTS, 0, EVENTS_MAX).read()
        return [event for event in stored if _is_event(event)]

    def load(self) -> list[LoadEntry]:
        """How busy and how backpressured each operator was over time, oldest first."""
        stored = History(self._storage.store, CheckpointPaths.LOAD, 0, LOAD_ENTRIES_MAX).read()
        return list(_readable_load(stored))

    def has_committed(self, checkpoint: StoredCheckpoint) -> bool:
        """Whether its generation ended well here, so that all its output is known to be committed."""
        ended_well = {
            event["generation"]
            for event in self.events()
            if event["event"] in (JobStatus.FINISHED.value, JobStatus.STOPPED.value)
        }
        here = checkpoint.path.startswith(self.root)
        return here and checkpoint.manifest.generation in ended_well

    def _keys(self) -> tuple[list[ManifestKey], frozenset[ManifestKey]]:
        """All manifests, oldest first, and those of them that count."""
        keys = self._storage.manifest_keys()
        return keys, frozenset(restore_candidates(keys, self._storage.claims()))

    def _open(self, key: ManifestKey, *, counts: bool) -> StoredCheckpoint:
        return StoredCheckpoint(
            self._storage.store,
            self._storage.read_manifest(key),
            counts=counts,
            allow_pickle=self._allow_pickle,
        )


def _matches(key: ManifestKey, which: int | str) -> bool:
    if isinstance(which, int):
        return key.checkpoint_id == which
    if which.isdecimal():
        return str(key.checkpoint_id) == which.lstrip("0")
    return CheckpointPaths.parse_folder(which) == key


_EVERY_EVENT: dict[str, type | tuple[type, ...]] = {
    "event": str,
    "job": str,
    "at": (int, float),
    "generation": int,
    "restarts": int,
}
_EVERY_OPERATOR: dict[str, type | tuple[type, ...]] = {
    "operator": str,
    "name": str,
    "parallelism": int,
    **dict.fromkeys(TOTALS, (int, float)),
}


def _key(report: CheckpointReport) -> ManifestKey:
    return ManifestKey(report.checkpoint_id, report.generation)


def readable_reports(entries: Iterable[object]) -> Iterator[CheckpointReport]:
    """What is not the report of a checkpoint is passed over: others may have written it."""
    for entry in entries:
        try:
            yield CheckpointReport.from_plain(entry)
        except ValueError:
            continue


def _readable_load(entries: Iterable[object]) -> Iterator[LoadEntry]:
    for entry in entries:
        try:
            yield LoadEntry.from_plain(entry)
        except ValueError:
            continue


def _is_event(entry: Mapping[str, Any]) -> bool:
    operators = entry.get("operators", [])
    return (
        _has(entry, _EVERY_EVENT)
        and isinstance(entry.get("cause", ""), str | None)
        and isinstance(operators, list)
        and all(_has(operator, _EVERY_OPERATOR) for operator in operators)
    )


def _has(entry: Any, fields: Mapping[str, type | tuple[type, ...]]) -> bool:
    return isinstance(entry, Mapping) and all(
        isinstance(entry.get(name), kind) for name, kind in fields.items()
    )
