"""Keeps on storage what became of a job and its checkpoints, so that people can read it after the job has
died."""

from __future__ import annotations

from typing import Any

import msgpack

from minirt.data.errors import MalformedDataError
from minirt.data.plain import unpack_plain
from minirt.errors import CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.storage.parts import decode_part, encode_part
from minirt.storage.store import ObjectMissingError, ObjectStore

_RUN_ENTRIES = 64
_RUN_BYTES = 64 * 1024
EVENTS_MAX = 200
"""How many events of a job are remembered."""
HISTORY_MAX = 100_000
"""How many checkpoints are read of a history, however many its job was told to remember."""

Run = tuple[int, int]
"""What names a run: the number of its first entry, and the generation that wrote it."""


class History:
    """The newest `entries_max` entries, in runs: objects of consecutive entries, rewritten as they grow.

    `folder` is `CheckpointPaths.HISTORY`, for checkpoints, or `EVENTS`, for what happened to the job.

    A run's name holds the number of its first entry, so a listing tells how many entries each run has.
    Appending costs one write, and one deletion where a run has become too old. Not for several threads.
    """

    def __init__(self, store: ObjectStore, folder: str, generation: int, entries_max: int) -> None:
        self._store = store
        self._folder = folder
        self.generation = generation
        self._entries_max = entries_max
        self._older: list[Run] | None = None
        self._first = 0
        self._run: list[bytes] = []

    def append(self, entry: dict[str, Any]) -> None:
        """Add an entry of values that msgpack carries; durable on return. Raises StorageError."""
        older = self._older
        if older is None:
            older = self._older = self._runs()
            self._first = self._continue_after(older)
        if len(self._run) >= _RUN_ENTRIES or sum(map(len, self._run)) >= _RUN_BYTES:
            older.append((self._first, self.generation))
            self._first += len(self._run)
            self._run = []
        run = [*self._run, _packed(entry)]
        self._store.write(
            CheckpointPaths.entries(self._folder, self._first, self.generation),
            encode_part({"entries": msgpack.packb(run)}),
        )
        self._run = run
        self._forget(older)

    def read(self) -> list[dict[str, Any]]:
        """The entries, newest last. Raises CorruptCheckpointError for a damaged run."""
        runs: list[list[dict[str, Any]]] = []
        for run in reversed(self._runs()):
            runs.append(self.read_run(run))
            if sum(map(len, runs)) >= self._entries_max:
                break
        return [entry for run in reversed(runs) for entry in run][-self._entries_max :]

    def runs(self) -> dict[Run, int]:
        """The size of each run in bytes, the oldest run first. One that grows has another size then."""
        sizes = self._store.sizes(self._folder)
        named = {
            run: size
            for path, size in sizes.items()
            if (run := CheckpointPaths.parse_entries(path))
        }
        return dict(sorted(named.items()))

    def _runs(self) -> list[Run]:
        return list(self.runs())

    def read_run(self, run: Run) -> list[dict[str, Any]]:
        """The entries of one run; none if it is gone by now. Raises CorruptCheckpointError."""
        path = CheckpointPaths.entries(self._folder, *run)
        try:
            data = self._store.read(path)
        except ObjectMissingError:  # Too old by now: a running job has removed it.
            return []
        sections = decode_part(data, self._store.full_path(path))
        try:
            entries = [unpack_plain(entry) for entry in unpack_plain(sections["entries"])]
        except (KeyError, TypeError, MalformedDataError) as error:
            raise _not_a_run(self._store.full_path(path)) from error
        if not all(isinstance(entry, dict) for entry in entries):
            raise _not_a_run(self._store.full_path(path))
        return entries

    def _continue_after(self, runs: list[Run]) -> int:
        """The number of the next entry."""
        if not runs:
            return 0
        try:
            count = len(self.read_run(runs[-1]))
        except CorruptCheckpointError:  # Numbers may have gaps; a damaged run must not stop a job.
            count = _RUN_ENTRIES
        return runs[-1][0] + count

    def _forget(self, older: list[Run]) -> None:
        """Delete the runs all of whose entries are too old."""
        oldest = self._first + len(self._run) - self._entries_max
        while older and self._end_of(older) <= oldest:
            self._store.delete(CheckpointPaths.entries(self._folder, *older[0]))
            older.pop(0)

    def _end_of(self, older: list[Run]) -> int:
        """Where the first of these runs ends: the next one starts there."""
        return older[1][0] if len(older) > 1 else self._first


def _packed(entry: dict[str, Any]) -> bytes:
    """Texts are for people: characters that no encoding has are written out, as `\\udc80`."""
    packed: bytes = msgpack.packb(entry, unicode_errors="backslashreplace")
    return packed


def _not_a_run(path: str) -> CorruptCheckpointError:
    return CorruptCheckpointError("not a run of history entries", path)
