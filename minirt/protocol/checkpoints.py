"""The checkpoints of one job at its coordinator: when to take one, who still owes a part, what to commit.

Theory of operation. A checkpoint is *pending* until every subtask has acknowledged, then *storing* until
its manifest exists, which completes it; only then are sink handles committed (`minirt.protocol.commits`). A
pending checkpoint ends early if a subtask declines or it takes too long. One is under way at a time, or up
to `max_concurrent` whose modes leave barriers in their place: these complete in the order of their triggers
(`minirt.protocol.under_way`). When the next one is due, and how long records have to themselves before, is
in `minirt.protocol.trigger_times`.

A savepoint that a user asks for takes its turn before the next periodic checkpoint, and behind those under
way that it may not overlap with. One that ends the job overlaps with none. While the job ends with one, no
other checkpoint begins: if the job fails in the middle of draining, it must go on from a checkpoint in
which no operator has seen the end of time. Once its last checkpoint is complete, the job needs no workers:
what is left to do is between storage and sinks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

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
from minirt.protocol.savepoints import Savepoints, kind_of
from minirt.protocol.subtask_commands import AbortCheckpoint, DrainSources, ResumeSources
from minirt.protocol.telling import SourceTelling
from minirt.protocol.trigger_times import TriggerTimes
from minirt.protocol.under_way import CheckpointsUnderWay


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
        self._under_way = CheckpointsUnderWay(settings)
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
    def under_way(self) -> tuple[CheckpointUnderWay, ...]:
        """The checkpoints that are neither complete nor failed, the oldest first."""
        return tuple(pending.under_way(self._vertices) for pending in self._under_way)

    def on_running(self, now: float) -> list[JobCommand]:
        """All subtasks run: checkpoints may begin."""
        self._times.last_triggered_at = self._times.last_ended_at = now
        return self._plan_next(now)

    def on_drained(self, subtask: SubtaskId, now: float) -> list[JobCommand]:
        """A subtask has processed all its input; after the last one comes the final checkpoint."""
        self._drained.add(subtask)
        if not self._all_drained or self._under_way or self._must_wait:
            return []
        return self._trigger(now)

    def on_trigger_timer(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        return self._trigger_if_due(now) if checkpoint_id == self._next_id else []

    def on_savepoint_requested(self, now: float) -> list[JobCommand]:
        """A request has been queued."""
        return self._begin_savepoint(now)

    def on_savepoint_published(self, event: SavepointPublished, now: float) -> list[JobCommand]:
        answer = self._savepoints.on_published(event.checkpoint_id, event.path)
        return answer + self._plan_next(now) if answer else []

    def on_savepoint_not_published(
        self, event: SavepointNotPublished, now: float
    ) -> list[JobCommand]:
        resume = self._resume_if_stopped()
        answer = self._savepoints.on_not_published(event)
        return [*resume, *answer, *self._plan_next(now)] if answer else []

    def on_acknowledged(self, event: SnapshotAcknowledged, now: float) -> list[JobCommand]:
        if event.local is not None:
            self._family.on_local(event, now)
            return self._trigger_if_due(now)
        failed = self._fail_passed_over(event, now)
        pending = self._under_way.pending(event.checkpoint_id)
        part, left = self._family.on_part(event), self._family.to_leave(event)
        if pending is None or event.subtask not in pending.awaited:
            self._commits.carry(part.handles)
            self._leftovers.on_part(left, failed=True)
            return failed
        pending.add(part, now)
        self._leftovers.on_part(left, failed=False)
        return failed if pending.awaited else [*failed, *self._store(pending, now)]

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
        failed = self._fail_passed_over(event, now)
        self._commits.carry(self._family.on_declined(event).handles)
        pending = self._under_way.pending(event.checkpoint_id)
        return failed if pending is None else [*failed, *self._give_up([pending], failure, now)]

    def on_expired(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        pending = self._under_way.pending(checkpoint_id)
        timeout_s = self._settings.timeout_s
        if pending is None or now < pending.barrier.created_at + timeout_s:
            return []
        failure = CheckpointFailure(CheckpointFailureReason.EXPIRED, timeout_s=timeout_s)
        return self._give_up([pending], failure, now)

    def on_manifest_stored(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        pending = self._under_way.take_stored(checkpoint_id)
        if pending is None or pending.manifest is None:
            return []
        manifest = pending.manifest
        self._failures.in_a_row = 0
        self._family.on_stored()
        self._leftovers.on_completed(checkpoint_id)
        self._times.on_completed(pending.barrier.created_at, now)
        if manifest.kind == "final":
            self._final_id = checkpoint_id
        if pending.request is not None:
            self._savepoints.on_stored(pending.request, manifest)
        trace = pending.to_trace(self._job, self._generation, now)
        released = self._release_sources(pending, now)
        return [
            *released,
            *self._commits.on_stored(manifest, trace),
            *self.telling.on_stored(checkpoint_id, tuple(pending.offsets)),
            RecordHistory(completed_report(manifest, self._put_off_s(now))),
            self._clean_up(),
            *self._plan_next(now),
        ]

    def on_manifest_refused(self, event: ManifestRefused, now: float) -> list[JobCommand]:
        pending = self._under_way.take_stored(event.checkpoint_id)
        if pending is None:
            return []
        why = CheckpointFailureReason.NOT_STORED
        return self._failed(pending, CheckpointFailure(why, error_text(event.error)), now)

    def on_committed(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        if checkpoint_id == self._final_id:
            self.final_committed = True
        stored = self._commits.on_committed(checkpoint_id, now)
        return [*stored, *self._savepoints.on_committed(checkpoint_id)]

    def on_commit_failed(self, event: CommitFailed, now: float) -> list[JobCommand]:
        return self._commits.on_failed(event, now)

    def on_commit_timer(self, checkpoint_id: int) -> list[JobCommand]:
        awaited = checkpoint_id == self._final_id or checkpoint_id in self._savepoints.uncommitted
        return self._commits.on_timer(checkpoint_id, awaited=awaited)

    def on_generation_ended(self, failure: CheckpointFailure, now: float) -> list[JobCommand]:
        """The subtasks are gone: checkpoints that were pending have failed."""
        return [
            self._record(pending, pending.with_missing(failure, self._vertices), now)
            for pending in self._under_way.give_up_all()
        ]

    def on_gone(
        self, subtasks: Collection[SubtaskId], failure: CheckpointFailure, now: float
    ) -> tuple[Mapping[SubtaskId, SnapshotAcknowledged], list[JobCommand]] | None:
        """These are gone, and shall come back alone: from which snapshots; None if they cannot.

        A checkpoint with barriers that is under way needs them as they were.
        """
        if self._savepoints.is_busy or not all(pending.of_line for pending in self._under_way):
            return None
        snapshots = self._family.fall_back(subtasks)
        if snapshots is None:
            return None
        self._away |= set(subtasks)
        self._drained -= set(subtasks)
        waiting = (pending for pending in self._under_way if pending.manifest is None)
        return snapshots, self._give_up(waiting, failure, now)

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
            return self._savepoints.is_busy and not self._savepoints.untaken
        return self._savepoints.ends_job

    def _fail_passed_over(
        self, event: SnapshotAcknowledged | SnapshotDeclined, now: float
    ) -> list[JobCommand]:
        """A subtask has come to a checkpoint: its part of an older one will not come any more."""
        if not (passed_over := self._under_way.passed_over(event.checkpoint_id, event.subtask)):
            return []
        [name] = subtask_names([event.subtask], self._vertices)
        failure = CheckpointFailure(CheckpointFailureReason.PASSED_OVER, declined_by=name)
        return self._give_up(passed_over, failure, now)

    def _begin_savepoint(self, now: float) -> list[JobCommand]:
        """Serve the oldest request, if nothing is in its way: whoever sends to a worker that is away may
        not know that, and would lose a barrier."""
        request = self._savepoints.next
        if request is None or self._final_id is not None or self._away:
            return []
        if not self._under_way.has_room_for(request, self._savepoints):
            return []
        self._savepoints.begin()
        if request.afterwards is Afterwards.DRAIN and not self._all_drained:
            return [DrainSources(self._generation)]
        return self._trigger(now)

    def _trigger_if_due(self, now: float) -> list[JobCommand]:
        """Begin the periodic checkpoint if its time has come and there is anything to make it of."""
        due = self._times.are_due(now, urgent=self._family.urgent)
        if not due or not self._may_begin or self._must_wait or self._away:
            return []
        return self._trigger(now) if self._family.ready or self._all_drained else []

    @property
    def _may_begin(self) -> bool:
        """Whether those under way leave room for the next checkpoint that nobody has asked for.

        The final one comes after all. None begins beside others while a savepoint waits, perhaps for these.
        """
        if self._all_drained or self._savepoints.next is not None:
            return not self._under_way
        return self._under_way.has_room(self._settings.mode)

    def _plan_next(self, now: float) -> list[JobCommand]:
        """What is due at once, or the timer for the next checkpoint."""
        if self._savepoints.job_is_over:
            return []
        if begun := self._begin_savepoint(now):
            return begun
        if self._final_id is not None or self._must_wait or not self._may_begin:
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
        request = self._under_way.next_of(self._savepoints.untaken)
        mode = self._settings.mode if request is None else request.mode
        older = self._under_way.oldest_id
        barrier = Barrier(checkpoint_id, mode, now, request is not None, older)
        kind, at = kind_of(request, drained=self._all_drained), self._dates.of(now)
        pending = PendingCheckpoint(barrier, kind, set(self._subtasks), at, request)
        self._under_way.add(pending)
        periodic = request is None and not self._all_drained
        pending.holds_sources = self._settings.holds_sources(barrier)
        if request is None:
            self._times.last_triggered_at = now
            if not self._under_way.has_room(self._settings.mode):
                self._times.on_full(now)
        pause = pending.holds_sources or self._savepoints.stops_job
        family = self._family if periodic else Coordinated()
        order = family.begin(self._generation, barrier, pause=pause)
        pending.of_line = not has_barriers(order)
        return [
            order,
            SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), now + self._settings.timeout_s),
            *self._plan_next(now),
        ]

    def _store(self, pending: PendingCheckpoint, now: float) -> list[JobCommand]:
        whole = self._family.on_whole(pending.checkpoint_id)
        self._commits.carry([*pending.sorted_handles, *whole])
        held = self._commits.carried(pending.checkpoint_id)
        pending.manifest = pending.to_manifest(
            self._job, self._generation, self._vertices, held, now
        )
        return [StoreManifest(pending.manifest)]

    def _give_up(
        self, given_up: Iterable[PendingCheckpoint], failure: CheckpointFailure, now: float
    ) -> list[JobCommand]:
        commands: list[JobCommand] = []
        for pending in given_up:
            spared = self._under_way.give_up(pending)
            self._commits.carry(pending.sorted_handles)
            commands.append(AbortCheckpoint(self._generation, pending.checkpoint_id, spared))
            commands += self._failed(pending, failure, now)
        return commands

    def _failed(
        self, pending: PendingCheckpoint, failure: CheckpointFailure, now: float
    ) -> list[JobCommand]:
        """A savepoint that failed is over, but for a drained job: that one can only try again."""
        failure = self._failures.last = pending.with_missing(failure, self._vertices)
        self._times.last_ended_at = now
        self._leftovers.on_failed(pending.checkpoint_id)
        released = self._release_sources(pending, now)
        commands: list[JobCommand] = [
            *released,
            self._record(pending, failure, now, self._put_off_s(now)),
            self._clean_up(),
        ]
        request = pending.request
        if request is None or request.afterwards is Afterwards.DRAIN:
            self._failures.in_a_row += 1
            if self.too_many_failures is not None:
                return commands
        else:
            commands += self._resume_if_stopped()
            commands += self._savepoints.fail(
                request,
                SavepointFailure(
                    SavepointFailureReason.CHECKPOINT_FAILED,
                    checkpoint_id=pending.checkpoint_id,
                    checkpoint=failure,
                ),
            )
        return commands + self._plan_next(now)

    def _record(
        self,
        pending: PendingCheckpoint,
        failure: CheckpointFailure,
        now: float,
        put_off_s: float = 0.0,
    ) -> JobCommand:
        report = pending.to_report(self._generation, failure, now)
        return RecordHistory(replace(report, put_off_s=put_off_s))

    def _put_off_s(self, now: float) -> float:
        """By how much the next checkpoint is put off now that one is over; told once."""
        return self._times.on_room(now) if self._under_way.has_room(self._settings.mode) else 0.0

    def _clean_up(self) -> JobCommand:
        """Clean up after each checkpoint, failed ones too: what they left may fill the storage."""
        unneeded = self._leftovers.take_unneeded() | self._family.take_unneeded()
        return CleanUp(self._savepoints.needed(self._under_way.storing_savepoints), unneeded)

    def _resume_if_stopped(self) -> list[JobCommand]:
        return [ResumeSources(self._generation)] if self._savepoints.stops_job else []

    def _release_sources(self, pending: PendingCheckpoint, now: float) -> list[JobCommand]:
        """Let sources go on that have waited for a checkpoint which is over, however it ended.

        The interval begins anew with that. If it went on from the trigger, a checkpoint that takes longer
        than an interval would be followed by the next one at once, and sources would never read again.
        """
        if not pending.holds_sources or self._savepoints.stops_job:
            return []
        self._times.last_triggered_at = now
        return [ResumeSources(self._generation)]
