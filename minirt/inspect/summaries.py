"""A long history as summaries, read piece by piece: what was read once is not read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minirt.clock import SYSTEM_CLOCK
from minirt.inspect.checkpoints import Checkpoints, readable_reports
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.reports import CheckpointReport, Stored, completed_report
from minirt.storage.history import Run

READ_S = 1.0
"""How long one call reads; the next one goes on with older checkpoints."""
SUMMARIES_MAX = 20_000
"""Of how many checkpoints summaries are kept, the newest."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A checkpoint without its parts."""

    checkpoint_id: int
    generation: int
    mode: str
    kind: str
    triggered_at: float
    duration_s: float
    completed: bool
    reason: str | None
    bytes: int | None
    in_flight_bytes: int
    unaligned: bool
    """Whether barriers overtook data in any subtask."""

    @staticmethod
    def of(report: CheckpointReport) -> Summary:
        return Summary(
            *(report.checkpoint_id, report.generation, report.mode, report.kind),
            *(report.triggered_at, report.duration_s, report.completed),
            None if report.failure is None else str(report.failure),
            report.bytes,
            report.in_flight_bytes,
            any(part.unaligned for part in report.subtasks),
        )

    @property
    def key(self) -> ManifestKey:
        return ManifestKey(self.checkpoint_id, self.generation)


class StoredSummaries:
    """The newest checkpoints of a storage. With very many subtasks a history has gigabytes, of which this
    keeps a line for each checkpoint, and reads for `read_s` seconds at a time. Not for several threads.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        read_s: float = READ_S,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._checkpoints = checkpoints
        self._read_s = read_s
        self._monotonic = monotonic
        self._runs: dict[Run, tuple[int, tuple[Summary, ...]]] = {}
        """What was read of each run, and its size then: it grows."""
        self._of_manifests: dict[ManifestKey, Summary] = {}
        self.complete = False
        """Whether everything has been read that is to be read."""

    def read(self) -> list[tuple[Summary, Stored]]:
        """What is known by now, oldest first, and what is left of each checkpoint on storage."""
        until = self._monotonic() + self._read_s
        sizes = self._checkpoints.storage.history_runs()
        self._runs = {run: known for run, known in self._runs.items() if run in sizes}
        whole = self._read_runs(sizes, until)
        known = {one.key: one for _, of_run in self._runs.values() for one in of_run}
        stored = self._checkpoints.stored_states()
        if whole:  # Else the history may still tell of them.
            whole = self._read_manifests([key for key in stored if key not in known], until)
            known |= {key: one for key, one in self._of_manifests.items() if key in stored}
        self.complete = whole
        newest = sorted(known.items())[-SUMMARIES_MAX:]
        return [(one, stored.get(key, "deleted" if one.completed else "no")) for key, one in newest]

    def report(self, key: ManifestKey) -> CheckpointReport | None:
        """A checkpoint that `read` has told of, with its parts, read anew; None if it is gone."""
        for run, (_, of_run) in self._runs.items():
            if any(one.key == key for one in of_run):
                for report in self._reports(run):
                    if (report.checkpoint_id, report.generation) == key:
                        return report
        if key in self._of_manifests:
            return completed_report(self._checkpoints.storage.read_manifest(key))
        return None

    def _read_runs(self, sizes: dict[Run, int], until: float) -> bool:
        """Read what is new, the newest first. Returns whether that is all."""
        count = read = 0
        for run, size in reversed(sizes.items()):
            if count >= SUMMARIES_MAX:
                self._runs.pop(run, None)
                continue
            known = self._runs.get(run)
            if known is None or known[0] != size:
                if read and self._monotonic() >= until:
                    return False
                read += 1
                known = size, tuple(map(Summary.of, self._reports(run)))
                self._runs[run] = known
            count += len(known[1])
        return True

    def _read_manifests(self, keys: list[ManifestKey], until: float) -> bool:
        """Those that the history does not tell of: a coordinator may die between the two."""
        read = 0
        for key in sorted(keys, reverse=True)[:SUMMARIES_MAX]:
            if key not in self._of_manifests:
                if read and self._monotonic() >= until:
                    return False
                read += 1
                manifest = self._checkpoints.storage.read_manifest(key)
                self._of_manifests[key] = Summary.of(completed_report(manifest))
        return True

    def _reports(self, run: Run) -> list[CheckpointReport]:
        return list(readable_reports(self._checkpoints.storage.history_of(run)))
