"""Output that sinks have handed over and that is not known to be committed.

What sinks had prepared for a checkpoint that failed is not lost with it: those records will not be
replayed, so their handles are *carried* into the next manifest, and stay carried until a commit has
succeeded. The manifest of a checkpoint holds every handle up to it that is not yet committed, and none
of a later one, which may have failed before it is complete: a restore would bring those records again.
"""

from __future__ import annotations

from collections.abc import Iterable

from minirt.protocol.job_events import (
    CommitFailed,
    CommitHandles,
    JobCommand,
    SetTimer,
    StoreTrace,
    Timer,
    TimerKind,
)
from minirt.protocol.manifest import Manifest, SinkHandles
from minirt.protocol.pauses import pause_s
from minirt.protocol.reasons import GenerationFailure, GenerationFailureReason
from minirt.protocol.trace import CheckpointTrace, OpenTraces

_PAUSE_S, _PAUSE_S_MAX = 0.1, 10.0


class Commits:
    """The commits of one generation, and the traces of checkpoints that wait for theirs."""

    def __init__(self) -> None:
        self._carried: list[SinkHandles] = []
        self._traces = OpenTraces()
        self._failures_in_a_row = 0
        self._last_error: Exception | None = None
        self._newest_failed = 0

    def carried(self, checkpoint_id: int) -> tuple[SinkHandles, ...]:
        """What the manifest of this checkpoint has to hold, in the order of committing."""
        return tuple(held for held in self._carried if held.checkpoint_id <= checkpoint_id)

    def carry(self, handles: Iterable[SinkHandles]) -> None:
        """Keep handles of a snapshot until they are committed."""
        self._carried += handles

    def on_stored(self, manifest: Manifest, trace: CheckpointTrace | None) -> list[JobCommand]:
        """A checkpoint is complete: commit what its manifest holds."""
        if trace is not None:
            self._traces.add(trace)
        return [CommitHandles(manifest.checkpoint_id, manifest.sink_handles)]

    def on_committed(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        self._carried = [held for held in self._carried if held.checkpoint_id > checkpoint_id]
        self._failures_in_a_row = 0
        return [*map(StoreTrace, self._traces.committed(checkpoint_id, now))]

    def on_failed(self, event: CommitFailed, now: float) -> list[JobCommand]:
        """The next checkpoint commits again; without one, a timer does."""
        self._newest_failed = max(self._newest_failed, event.checkpoint_id)
        self._last_error = event.error
        self._failures_in_a_row += 1
        again_at = now + pause_s(_PAUSE_S, _PAUSE_S_MAX, self._failures_in_a_row)
        again = SetTimer(Timer(TimerKind.COMMIT, event.checkpoint_id), again_at)
        return [again, *map(StoreTrace, self._traces.take(event.checkpoint_id))]

    def on_timer(self, checkpoint_id: int, *, awaited: bool) -> list[JobCommand]:
        """Commit again what is left; if the commit is awaited, even if nothing is.

        Of several commits that have failed, the timer of the newest does it for all.
        """
        if checkpoint_id < self._newest_failed and not awaited:
            return []
        held = self.carried(checkpoint_id)
        return [CommitHandles(checkpoint_id, held)] if held or awaited else []

    def too_many_failures(self, tolerable: int) -> GenerationFailure | None:
        """Why the job should fail, if more commits failed in a row than tolerated."""
        count, reason = self._failures_in_a_row, GenerationFailureReason.COMMITS_FAILED
        return GenerationFailure(reason, self._last_error, count) if count > tolerable else None
