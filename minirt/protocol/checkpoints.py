"""The checkpoints of one job at its coordinator: when to take one, who still owes a part, what to commit.

Theory of operation. One checkpoint is under way at a time. It is *pending* until every subtask has
acknowledged, then *storing* until its manifest exists, which completes it; only then are sink handles
committed. A pending checkpoint ends early if a subtask declines or it takes too long. What sinks had
prepared for a checkpoint that failed is not lost with it: those records will not be replayed, so
their handles are *carried* into the next manifest, and stay carried until a commit has succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from minirt.graph.execution import SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.job_events import (
    AbortCheckpoint,
    CleanUp,
    CommitHandles,
    JobCommand,
    RecordHistory,
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StoreManifest,
    Timer,
    TimerKind,
    TriggerCheckpoint,
)
from minirt.protocol.manifest import (
    MANIFEST_VERSION,
    InFlightRef,
    Manifest,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
    VertexEntry,
)


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`interval_s` None takes only the final checkpoint. Durations are seconds."""

    mode: str
    interval_s: float | None
    timeout_s: float = 600.0
    min_pause_s: float = 0.0
    tolerable_failures: int = 10


@dataclass(slots=True)
class _Pending:
    barrier: Barrier
    final: bool
    awaited: set[SubtaskId]
    snapshots: list[SnapshotRef] = field(default_factory=list)
    in_flight: list[InFlightRef] = field(default_factory=list)
    stats: list[SubtaskStats] = field(default_factory=list)
    handles: list[SinkHandles] = field(default_factory=list)
    manifest: Manifest | None = None
    """Set once all parts are there and the manifest is being stored."""


class CheckpointCoordinator:
    """The checkpoints of one generation of a job."""

    def __init__(
        self,
        job: str,
        generation: int,
        next_checkpoint_id: int,
        settings: CheckpointSettings,
        vertices: tuple[VertexEntry, ...],
        subtasks: frozenset[SubtaskId],
    ) -> None:
        self._job = job
        self._generation = generation
        self._next_id = next_checkpoint_id
        self._settings = settings
        self._vertices = vertices
        self._subtasks = subtasks
        self._pending: _Pending | None = None
        self._carried: list[SinkHandles] = []
        self._drained: set[SubtaskId] = set()
        self._trigger_at: float | None = None
        """When the next checkpoint is due; timers of an earlier generation come before that."""
        self._last_triggered_at = 0.0
        self._last_ended_at = 0.0
        self._failures_in_a_row = 0
        self._commit_failures_in_a_row = 0
        self._reason = ""
        """Why a checkpoint or a commit failed most recently."""
        self._final_id: int | None = None
        self.final_committed = False
        """The last checkpoint of the job is complete and its output published."""

    @property
    def too_many_failures(self) -> str | None:
        """Why the job should fail, if more checkpoints or commits failed in a row than tolerated."""
        if self._failures_in_a_row > self._settings.tolerable_failures:
            return f"{self._failures_in_a_row} checkpoints in a row failed, at last: {self._reason}"
        if self._commit_failures_in_a_row > self._settings.tolerable_failures:
            return (
                f"{self._commit_failures_in_a_row} commits in a row failed, at last: {self._reason}"
            )
        return None

    def on_running(self, now: float) -> list[JobCommand]:
        """All subtasks run: checkpoints may begin."""
        self._last_triggered_at = self._last_ended_at = now
        return self._plan_next(now)

    def on_drained(self, subtask: SubtaskId, now: float) -> list[JobCommand]:
        """A subtask has processed all its input; after the last one comes the final checkpoint."""
        self._drained.add(subtask)
        return self._trigger(now) if self._all_drained and self._pending is None else []

    def on_trigger_timer(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        due = self._trigger_at is not None and now >= self._trigger_at
        if not due or checkpoint_id != self._next_id or self._pending is not None:
            return []
        return self._trigger(now)

    def on_acknowledged(self, event: SnapshotAcknowledged, now: float) -> list[JobCommand]:
        pending = self._pending_for(event.checkpoint_id)
        if pending is None or event.subtask not in pending.awaited:
            self._carried += event.handles
            return []
        pending.awaited.remove(event.subtask)
        if event.snapshot is not None:
            pending.snapshots.append(event.snapshot)
        if event.in_flight is not None:
            pending.in_flight.append(event.in_flight)
        after = now - pending.barrier.created_at
        pending.stats.append(replace(event.stats, acknowledged_after_s=after))
        pending.handles += event.handles
        return [] if pending.awaited else self._store(pending, now)

    def on_declined(self, event: SnapshotDeclined, now: float) -> list[JobCommand]:
        self._carried += event.handles
        if self._pending_for(event.checkpoint_id) is None:
            return []
        return self._give_up(f"declined: {event.reason}", now)

    def on_expired(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        pending = self._pending_for(checkpoint_id)
        if pending is None or now < pending.barrier.created_at + self._settings.timeout_s:
            return []
        missing = len(pending.awaited)
        return self._give_up(
            f"expired after {self._settings.timeout_s:g} s with {missing} subtasks missing", now
        )

    def on_manifest_stored(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        manifest = self._take_stored(checkpoint_id)
        if manifest is None:
            return []
        self._failures_in_a_row = 0
        self._last_ended_at = now
        if self._all_drained and manifest.kind == "final":
            self._final_id = checkpoint_id
        return [
            CommitHandles(checkpoint_id, manifest.sink_handles),
            RecordHistory(history_entry(manifest)),
            CleanUp(),
            *self._plan_next(now),
        ]

    def on_manifest_refused(self, checkpoint_id: int, reason: str, now: float) -> list[JobCommand]:
        manifest = self._take_stored(checkpoint_id)
        if manifest is None:
            return []
        return self._failed(manifest.checkpoint_id, manifest.triggered_at, reason, now)

    def on_committed(self, checkpoint_id: int) -> None:
        # The manifest of a checkpoint holds every handle up to it that is not yet committed.
        self._carried = [held for held in self._carried if held.checkpoint_id > checkpoint_id]
        self._commit_failures_in_a_row = 0
        if checkpoint_id == self._final_id:
            self.final_committed = True

    def on_commit_failed(self, checkpoint_id: int, reason: str, now: float) -> list[JobCommand]:
        """The next checkpoint commits again; without one, a timer does."""
        self._reason = reason
        self._commit_failures_in_a_row += 1
        delay = min(10.0, 0.1 * 2**self._commit_failures_in_a_row)
        return [SetTimer(Timer(TimerKind.COMMIT, checkpoint_id), now + delay)]

    def on_commit_timer(self, checkpoint_id: int) -> list[JobCommand]:
        held = tuple(held for held in self._carried if held.checkpoint_id <= checkpoint_id)
        if not held and checkpoint_id != self._final_id:
            return []
        return [CommitHandles(checkpoint_id, held)]

    def on_generation_ended(self, reason: str, now: float) -> list[JobCommand]:
        """The subtasks are gone: a checkpoint that was pending has failed."""
        pending, self._pending = self._pending, None
        if pending is None or pending.manifest is not None:
            return []
        return [RecordHistory(self._failure_entry(pending.barrier, reason, now))]

    @property
    def _all_drained(self) -> bool:
        return self._drained >= self._subtasks

    def _pending_for(self, checkpoint_id: int) -> _Pending | None:
        pending = self._pending
        if pending is None or pending.barrier.checkpoint_id != checkpoint_id or pending.manifest:
            return None
        return pending

    def _take_stored(self, checkpoint_id: int) -> Manifest | None:
        pending = self._pending
        if pending is None or pending.manifest is None:
            return None
        if pending.barrier.checkpoint_id != checkpoint_id:
            return None
        self._pending = None
        return pending.manifest

    def _plan_next(self, now: float) -> list[JobCommand]:
        """The timer for the next checkpoint, or at once the final one."""
        settings = self._settings
        if self._final_id is not None:
            return []
        if self._all_drained and not self._failures_in_a_row:
            return self._trigger(now)
        if self._all_drained:
            self._trigger_at = now + 0.1 * 2 ** min(self._failures_in_a_row, 6)
        elif settings.interval_s is None:
            return []
        else:
            self._trigger_at = max(
                self._last_triggered_at + settings.interval_s,
                self._last_ended_at + settings.min_pause_s,
                now,
            )
        return [SetTimer(Timer(TimerKind.TRIGGER, self._next_id), self._trigger_at)]

    def _trigger(self, now: float) -> list[JobCommand]:
        if self._final_id is not None:
            return []
        checkpoint_id = self._next_id
        self._next_id += 1
        self._last_triggered_at = now
        barrier = Barrier(checkpoint_id, self._settings.mode, created_at=now)
        self._pending = _Pending(barrier, final=self._all_drained, awaited=set(self._subtasks))
        return [
            TriggerCheckpoint(self._generation, barrier),
            SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), now + self._settings.timeout_s),
        ]

    def _store(self, pending: _Pending, now: float) -> list[JobCommand]:
        self._carried += sorted(pending.handles, key=_handle_order)
        pending.manifest = Manifest(
            version=MANIFEST_VERSION,
            job=self._job,
            checkpoint_id=pending.barrier.checkpoint_id,
            generation=self._generation,
            mode=pending.barrier.mode,
            kind="final" if pending.final else "checkpoint",
            triggered_at=pending.barrier.created_at,
            completed_at=now,
            vertices=self._vertices,
            snapshots=tuple(sorted(pending.snapshots, key=lambda ref: (ref.vertex, ref.subtask))),
            sink_handles=tuple(self._carried),
            stats=tuple(sorted(pending.stats, key=lambda stats: (stats.vertex, stats.subtask))),
            in_flight=tuple(
                sorted(pending.in_flight, key=lambda ref: (ref.stored.vertex, ref.stored.subtask))
            ),
        )
        return [StoreManifest(pending.manifest)]

    def _give_up(self, reason: str, now: float) -> list[JobCommand]:
        pending = self._pending
        assert pending is not None
        self._pending = None
        self._carried += sorted(pending.handles, key=_handle_order)
        checkpoint_id = pending.barrier.checkpoint_id
        return [
            AbortCheckpoint(self._generation, checkpoint_id),
            *self._failed(checkpoint_id, pending.barrier.created_at, reason, now),
        ]

    def _failed(
        self, checkpoint_id: int, triggered_at: float, reason: str, now: float
    ) -> list[JobCommand]:
        self._reason = reason
        self._failures_in_a_row += 1
        self._last_ended_at = now
        barrier = Barrier(checkpoint_id, self._settings.mode, created_at=triggered_at)
        entry = RecordHistory(self._failure_entry(barrier, reason, now))
        if self.too_many_failures is not None:
            return [entry]
        return [entry, *self._plan_next(now)]

    def _failure_entry(self, barrier: Barrier, reason: str, now: float) -> dict[str, object]:
        return {
            "checkpoint_id": barrier.checkpoint_id,
            "generation": self._generation,
            "mode": barrier.mode,
            "status": "failed",
            "reason": reason,
            "triggered_at": barrier.created_at,
            "duration_s": now - barrier.created_at,
        }


def history_entry(manifest: Manifest) -> dict[str, object]:
    """What the history remembers of a completed checkpoint."""
    return {
        "checkpoint_id": manifest.checkpoint_id,
        "generation": manifest.generation,
        "mode": manifest.mode,
        "status": "completed",
        "kind": manifest.kind,
        "triggered_at": manifest.triggered_at,
        "duration_s": manifest.completed_at - manifest.triggered_at,
        "bytes": manifest.bytes,
        "subtasks": [
            {
                "name": stats.name,
                "subtask": stats.subtask,
                "start_delay_s": stats.start_delay_s,
                "alignment_s": stats.alignment_s,
                "sync_s": stats.sync_s,
                "async_s": stats.async_s,
                "acknowledged_after_s": stats.acknowledged_after_s,
                "state_bytes": stats.state_bytes,
                "in_flight_bytes": stats.in_flight_bytes,
                "processed_bytes": stats.processed_bytes,
                "unaligned": stats.unaligned,
            }
            for stats in manifest.stats
        ],
    }


def _handle_order(held: SinkHandles) -> tuple[int, str, int]:
    return (held.checkpoint_id, held.uid, held.subtask)
