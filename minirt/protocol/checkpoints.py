"""The checkpoints of one job at its coordinator: when to take one, who still owes a part, what to commit.

Theory of operation. One checkpoint is under way at a time. It is *pending* until every subtask has
acknowledged, then *storing* until its manifest exists, which completes it; only then are sink handles
committed (`minirt.protocol.commits`). A pending checkpoint ends early if a subtask declines or it takes
too long.

A savepoint that a user asks for takes its turn behind the checkpoint under way, and before the next
periodic one. While the job ends with one, no other checkpoint begins: if the job fails in the middle
of draining, it must go on from a checkpoint in which no operator has seen the end of time. Once its last
checkpoint is complete, the job needs no workers: what is left to do is between storage and sinks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.commits import Commits
from minirt.protocol.dates import Dates
from minirt.protocol.failures import Failures
from minirt.protocol.families import Coordinated, has_barriers
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    CommitFailed,
    JobCommand,
    ManifestRefused,
    RecordHistory,
    SavepointNotPublished,
    SavepointPublished,
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.leftovers import Leftovers
from minirt.protocol.manifest import VertexEntry
from minirt.protocol.pending import PendingCheckpoint
from minirt.protocol.reasons import (
    CheckpointFailure,
    CheckpointFailureReason,
    GenerationFailure,
    SavepointFailure,
    SavepointFailureReason,
    error_text,
)
from minirt.protocol.reports import CheckpointUnderWay, completed_report, subtask_names
from minirt.protocol.savepoint_requests import Afterwards
from minirt.protocol.savepoints import Savepoints, drain_of, kind_of
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    DrainSources,
    ResumeSources,
)
from minirt.protocol.telling import SourceTelling
from minirt.protocol.trigger_times import TriggerTimes


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
        savepoints: Savepoints,
        dates: Dates | None = None,
    ) -> None:
        self._job = job
        self._generation = generation
        self._next_id = next_checkpoint_id
        self._settings = settings
        self._vertices = vertices
        self._subtasks = subtasks
        self._savepoints = savepoints
        self._dates = dates or Dates()
        self._pending: PendingCheckpoint | None = None
        self._family = settings.family(subtasks)
        self._leftovers = Leftovers(generation)
        self.telling = SourceTelling()
        self._commits = Commits()
        self._drained: set[SubtaskId] = set()
        self._away: set[SubtaskId] = set()
        """Those that come back alone."""
        self._times = TriggerTimes(settings)
        self._failures = Failures()
        self._final_id: int | None = None
        self.final_committed = False
        """The last checkpoint of the job is complete and its output published."""

    @property
    def too_many_failures(self) -> GenerationFailure | None:
        """Why the job should fail, if more checkpoints or commits failed in a row than tolerated."""
        tolerable = self._settings.tolerable_failures
        too_many = self._failures.too_many(self._family.declined_in_a_row, tolerable)
        return too_many or self._commits.too_many_failures(tolerable)

    @property
    def last_is_complete(self) -> bool:
        """Whether the manifest exists with which the job ends."""
        return self._final_id is not None or self._savepoints.drain_is_complete

    @property
    def under_way(self) -> CheckpointUnderWay | None:
        """The checkpoint that is neither complete nor failed, if there is one."""
        return None if self._pending is None else self._pending.under_way(self._vertices)

    def on_running(self, now: float) -> list[JobCommand]:
        """All subtasks run: checkpoints may begin."""
        self._times.last_triggered_at = self._times.last_ended_at = now
        return self._plan_next(now)

    def on_drained(self, subtask: SubtaskId, now: float) -> list[JobCommand]:
        """A subtask has processed all its input; after the last one comes the final checkpoint."""
        self._drained.add(subtask)
        if not self._all_drained or self._pending is not None or self._must_wait:
            return []
        return self._trigger(now)

    def on_trigger_timer(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        return self._trigger_if_due(now) if checkpoint_id == self._next_id else []

    def on_savepoint_requested(self, now: float) -> list[JobCommand]:
        """A request has been queued."""
        return self._begin_savepoint(now)

    def on_savepoint_published(self, event: SavepointPublished, now: float) -> list[JobCommand]:
        answer = self._savepoints.on_published(event.checkpoint_id, event.path)
        return answer + self._after_savepoint(now) if answer else []

    def on_savepoint_not_published(
        self, event: SavepointNotPublished, now: float
    ) -> list[JobCommand]:
        resume = self._resume_if_stopped()
        answer = self._savepoints.on_not_published(event)
        return [*resume, *answer, *self._after_savepoint(now)] if answer else []

    def on_acknowledged(self, event: SnapshotAcknowledged, now: float) -> list[JobCommand]:
        if event.local is not None:
            self._family.on_local(event, now)
            return self._trigger_if_due(now)
        pending = self._pending_for(event.checkpoint_id)
        part, left = self._family.on_part(event), self._family.to_leave(event)
        if pending is None or event.subtask not in pending.awaited:
            self._commits.carry(part.handles)
            self._leftovers.on_part(left, failed=True)
            return []
        pending.add(part, now)
        self._leftovers.on_part(left, failed=False)
        return [] if pending.awaited else self._store(pending, now)

    def on_declined(self, event: SnapshotDeclined, now: float) -> list[JobCommand]:
        self._leftovers.on_declined(event)
        [name] = subtask_names([event.subtask], self._vertices)
        why = CheckpointFailureReason
        reason = why.GIVEN_UP if event.error is None else why.DECLINED
        failure = CheckpointFailure(reason, event.error or "", declined_by=name)
        if event.local is not None:  # It goes on from the one before.
            self._family.on_local(event, now)
            self._failures.last = failure
            return []
        self._commits.carry(self._family.on_declined(event).handles)
        if self._pending_for(event.checkpoint_id) is None:
            return []
        return self._give_up(failure, now)

    def on_expired(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        pending = self._pending_for(checkpoint_id)
        if pending is None or now < pending.barrier.created_at + self._settings.timeout_s:
            return []
        expired, timeout_s = CheckpointFailureReason.EXPIRED, self._settings.timeout_s
        return self._give_up(CheckpointFailure(expired, timeout_s=timeout_s), now)

    def on_manifest_stored(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        pending = self._take_stored(checkpoint_id)
        if pending is None or pending.manifest is None:
            return []
        manifest = pending.manifest
        self._failures.in_a_row = 0
        self._family.on_stored()
        self._leftovers.on_completed()
        self._times.last_triggered_at, self._times.last_ended_at = pending.barrier.created_at, now
        if manifest.kind == "final":
            self._final_id = checkpoint_id
        self._savepoints.on_stored(manifest)
        released = self._release_sources(pending, now)
        trace = pending.to_trace(self._job, self._generation, now)
        return [
            *released,
            *self._commits.on_stored(manifest, trace),
            *self.telling.on_stored(checkpoint_id, tuple(pending.offsets)),
            RecordHistory(completed_report(manifest)),
            self._clean_up(),
            *self._plan_next(now),
        ]

    def on_manifest_refused(self, event: ManifestRefused, now: float) -> list[JobCommand]:
        pending = self._take_stored(event.checkpoint_id)
        if pending is None:
            return []
        not_stored = CheckpointFailureReason.NOT_STORED
        return self._failed(pending, CheckpointFailure(not_stored, error_text(event.error)), now)

    def on_committed(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        if checkpoint_id == self._final_id:
            self.final_committed = True
        stored = self._commits.on_committed(checkpoint_id, now)
        return [*stored, *self._savepoints.on_committed(checkpoint_id)]

    def on_commit_failed(self, event: CommitFailed, now: float) -> list[JobCommand]:
        return self._commits.on_failed(event, now)

    def on_commit_timer(self, checkpoint_id: int) -> list[JobCommand]:
        awaited = checkpoint_id in (self._final_id, self._savepoints.uncommitted_id)
        return self._commits.on_timer(checkpoint_id, awaited=awaited)

    def on_generation_ended(self, failure: CheckpointFailure, now: float) -> list[JobCommand]:
        """The subtasks are gone: a checkpoint that was pending has failed."""
        pending, self._pending = self._pending, None
        if pending is None or pending.manifest is not None:
            return []
        return [self._record(pending, pending.with_missing(failure, self._vertices), now)]

    def on_gone(
        self, subtasks: Collection[SubtaskId], failure: CheckpointFailure, now: float
    ) -> tuple[Mapping[SubtaskId, SnapshotAcknowledged], list[JobCommand]] | None:
        """These are gone, and shall come back alone: from which snapshots; None if they cannot.

        A checkpoint with barriers that is under way needs them as they were.
        """
        pending = self._pending
        if self._savepoints.active is not None or (pending is not None and not pending.of_line):
            return None
        snapshots = self._family.fall_back(subtasks)
        if snapshots is None:
            return None
        self._away |= set(subtasks)
        self._drained -= set(subtasks)
        under_way = pending is not None and pending.manifest is None
        return snapshots, self._give_up(failure, now) if under_way else []

    def on_back(self, subtasks: Collection[SubtaskId], now: float) -> list[JobCommand]:
        """They run again, and all others know it."""
        self._away -= set(subtasks)
        return self._begin_savepoint(now) or self._trigger_if_due(now)

    @property
    def _all_drained(self) -> bool:
        return self._drained >= self._subtasks

    @property
    def _must_wait(self) -> bool:
        """Whether a savepoint that is not over forbids every other checkpoint."""
        if self._all_drained:  # The final checkpoint comes last; a drain's own is due.
            return self._savepoints.active is not None and self._savepoints.untaken is None
        return self._savepoints.ends_job

    def _pending_for(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._pending
        if pending is None or pending.barrier.checkpoint_id != checkpoint_id or pending.manifest:
            return None
        return pending

    def _take_stored(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._pending
        if pending is None or pending.manifest is None:
            return None
        if pending.barrier.checkpoint_id != checkpoint_id:
            return None
        self._pending = None
        return pending

    def _begin_savepoint(self, now: float) -> list[JobCommand]:
        """Serve the oldest request, if nothing is in its way: whoever sends to a worker that is away may
        not know that, and would lose a barrier."""
        if self._pending is not None or self._final_id is not None or self._away:
            return []
        request = self._savepoints.begin()
        if request is None:
            return []
        if request.afterwards is Afterwards.DRAIN and not self._all_drained:
            return [DrainSources(self._generation)]
        return self._trigger(now)

    def _trigger_if_due(self, now: float) -> list[JobCommand]:
        """Begin the periodic checkpoint if its time has come and there is anything to make it of."""
        at = self._times.due_at
        due = at is not None and (now >= at or self._family.urgent)
        if not due or self._pending is not None or self._must_wait or self._away:
            return []
        return self._trigger(now) if self._family.ready or self._all_drained else []

    def _after_savepoint(self, now: float) -> list[JobCommand]:
        """Go on with what had to wait for a savepoint."""
        if self._savepoints.job_is_over or self._pending is not None:
            return []
        return self._plan_next(now)

    def _plan_next(self, now: float) -> list[JobCommand]:
        """What is due at once, or the timer for the next checkpoint."""
        if begun := self._begin_savepoint(now):
            return begun
        if self._final_id is not None or self._must_wait:
            return []
        if self._all_drained and not self._failures.in_a_row:
            return self._trigger(now)
        failures = self._failures.in_a_row if self._all_drained else None
        at = self._times.plan_next(failures, urgent=self._family.urgent, now=now)
        return [] if at is None else [SetTimer(Timer(TimerKind.TRIGGER, self._next_id), at)]

    def _trigger(self, now: float) -> list[JobCommand]:
        if self._final_id is not None:
            return []
        checkpoint_id = self._next_id
        self._next_id += 1
        request = self._savepoints.untaken
        mode = self._settings.mode if request is None else request.mode
        barrier = Barrier(checkpoint_id, mode, created_at=now, savepoint=request is not None)
        kind = kind_of(request, drained=self._all_drained)
        self._pending = pending = PendingCheckpoint(
            barrier, kind, set(self._subtasks), self._dates.of(now), drain_of(request)
        )
        periodic = request is None and not self._all_drained
        pending.holds_sources = self._settings.holds_sources(barrier)
        if request is None:
            self._times.last_triggered_at = now
        pause = pending.holds_sources or self._stops
        family = self._family if periodic else Coordinated()
        order = family.begin(self._generation, barrier, pause=pause)
        pending.of_line = not has_barriers(order)
        return [
            order,
            SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), now + self._settings.timeout_s),
        ]

    def _store(self, pending: PendingCheckpoint, now: float) -> list[JobCommand]:
        whole = self._family.on_whole(pending.barrier.checkpoint_id)
        self._commits.carry([*pending.sorted_handles, *whole])
        pending.manifest = pending.to_manifest(
            self._job, self._generation, self._vertices, self._commits.carried, now
        )
        return [StoreManifest(pending.manifest)]

    def _give_up(self, failure: CheckpointFailure, now: float) -> list[JobCommand]:
        pending = self._pending
        assert pending is not None
        self._pending = None
        self._commits.carry(pending.sorted_handles)
        return [
            AbortCheckpoint(self._generation, pending.barrier.checkpoint_id),
            *self._failed(pending, failure, now),
        ]

    def _failed(
        self, pending: PendingCheckpoint, failure: CheckpointFailure, now: float
    ) -> list[JobCommand]:
        """A savepoint that failed is over, but for a drained job: that one can only try again."""
        failure = self._failures.last = pending.with_missing(failure, self._vertices)
        self._times.last_ended_at = now
        self._leftovers.on_failed()
        commands: list[JobCommand] = [
            *self._release_sources(pending, now),
            self._record(pending, failure, now),
            self._clean_up(),
        ]
        request = self._savepoints.untaken
        if request is None or request.afterwards is Afterwards.DRAIN:
            self._failures.in_a_row += 1
            if self.too_many_failures is not None:
                return commands
        else:
            commands += self._resume_if_stopped()
            commands += self._savepoints.fail(
                SavepointFailure(
                    SavepointFailureReason.CHECKPOINT_FAILED,
                    checkpoint_id=pending.barrier.checkpoint_id,
                    checkpoint=failure,
                )
            )
        return commands + self._plan_next(now)

    def _record(
        self, pending: PendingCheckpoint, failure: CheckpointFailure, now: float
    ) -> JobCommand:
        return RecordHistory(pending.to_report(self._generation, failure, now))

    def _clean_up(self) -> JobCommand:
        """Clean up after each checkpoint, failed ones too: what they left may fill the storage."""
        unneeded = self._leftovers.take_unneeded() | self._family.take_unneeded()
        return CleanUp(self._savepoints.needed, unneeded)

    @property
    def _stops(self) -> bool:
        """Whether sources wait behind the savepoint that the job is to end with."""
        request = self._savepoints.active
        return request is not None and request.afterwards is Afterwards.STOP

    def _resume_if_stopped(self) -> list[JobCommand]:
        return [ResumeSources(self._generation)] if self._stops else []

    def _release_sources(self, pending: PendingCheckpoint, now: float) -> list[JobCommand]:
        """Let sources go on that have waited for a checkpoint which is over, however it ended.

        The interval begins anew with that. If it went on from the trigger, a checkpoint that takes longer
        than an interval would be followed by the next one at once, and sources would never read again.
        """
        if not pending.holds_sources or self._stops:
            return []
        self._times.last_triggered_at = now
        return [ResumeSources(self._generation)]
