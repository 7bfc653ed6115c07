"""The life of a job at its coordinator: events in, commands out.

Each start and each restart is a *generation*. Preparing one claims its number on storage, chooses the
checkpoint to restore, and commits that checkpoint's sink handles again; then workers are deployed.
Whatever fails ends the generation as a whole, but for workers that come back alone (`comebacks`): all are
killed, and the restart strategy says after which delay the next one begins, or that the job has failed.
What the next generation would meet again (`RESTARTS_NEVER`) fails the job at once. Events of ended
generations are ignored. A damaged checkpoint is no failure of the job: the next generation is prepared at
once, which restores an older one or says what can be done.

Once the checkpoint exists with which the job ends, it needs no workers: whatever becomes of them, output
is committed, the savepoint of a drain is copied, and the job is over.

Times are seconds of a monotonic clock, except for the dates that people read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from minirt.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    SinkDataError,
    SupersededError,
)
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.comebacks import Comebacks
from minirt.protocol.dates import Dates
from minirt.protocol.drift import DriftGroup, DriftLimits
from minirt.protocol.giving_up import AnnounceGivenUp
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    ENDED,
    CancelRequested,
    CommitFailed,
    Deploy,
    EndJob,
    GenerationFailed,
    GenerationPrepared,
    HandlesCommitted,
    JobCommand,
    JobEvent,
    JobStatus,
    ManifestRefused,
    ManifestStored,
    SavepointNotPublished,
    SavepointPublished,
    SavepointRequested,
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    SourceProgressed,
    StopWorkers,
    Submitted,
    SubtaskDrained,
    SubtaskStarted,
    Timer,
    TimerFired,
    TimerKind,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.protocol.manifest import ManifestKey, VertexEntry
from minirt.protocol.reactive import UNCHANGING, Parallelism
from minirt.protocol.reasons import (
    CheckpointFailure,
    CheckpointFailureReason,
    GenerationFailure,
    GenerationFailureReason,
    SavepointFailure,
    SavepointFailureReason,
    failed_by,
)
from minirt.protocol.reports import CheckpointUnderWay
from minirt.protocol.restart_commands import AnnounceRestart, ElementsHad, SubtaskCaughtUp
from minirt.protocol.restarts import RESTARTS_NEVER, RestartPolicy
from minirt.protocol.restore import vertex_entries
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.slots import SlotsAwaited, SlotsCame, SlotsChanged
from minirt.protocol.source_offsets import SourcesNotTold, SourcesTold
from minirt.protocol.workers import Patience, Workers

COMMITS_NEVER = (ConfigurationError, JobFailedError, SinkDataError)
"""Errors of a commit that the next attempt would meet again."""
_ANSWERS_OF_STORAGE = (
    *(ManifestStored, ManifestRefused, HandlesCommitted, CommitFailed),
    *(SourcesTold, SourcesNotTold, SavepointPublished, SavepointNotPublished),
)


class JobProtocol:
    """One job. `handle` is its only door."""

    def __init__(
        self,
        name: str,
        vertices: tuple[VertexEntry, ...],
        subtasks: frozenset[SubtaskId],
        checkpoints: CheckpointSettings,
        restarts: RestartPolicy,
        patience: Patience,
        parallelism: Parallelism = UNCHANGING,
        drift_groups: Sequence[DriftGroup] = (),
        alone: Mapping[int, Collection[SubtaskId]] | None = None,
    ) -> None:
        self._name = name
        self._vertices = vertices
        self._subtasks = subtasks
        self._settings = checkpoints
        self._restarts = restarts
        self._patience = patience
        self._workers = Workers(subtasks, patience)
        self._drift_groups = drift_groups
        self._drift = DriftLimits(0, (), ())
        self._parallelism = parallelism
        self._status = JobStatus.CREATED
        self._generation = 0
        self._checkpoints: CheckpointCoordinator | None = None
        self._savepoints = Savepoints(checkpoints.savepoint_requests)
        self._restored: ManifestKey | None = None
        self._damaged: dict[ManifestKey, CorruptCheckpointError] = {}
        """What is wrong with checkpoints that turned out to be unusable while subtasks read them."""
        self._dates = Dates()
        self._slots_came = False
        self.comebacks = Comebacks(alone or {}, restarts, patience, checkpoints.timeout_s)
        self.restarts = 0

    @property
    def status(self) -> JobStatus:
        return self._status

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def checkpoints_under_way(self) -> tuple[CheckpointUnderWay, ...]:
        """The checkpoints that are neither complete nor failed, the oldest first."""
        return () if self._checkpoints is None else self._checkpoints.under_way

    def handle(self, event: JobEvent, now: float, wall: float | None = None) -> list[JobCommand]:
        """What to do about an event, in order. Nothing follows after EndJob.

        `wall` is what the wall clock shows at `now`; without it, `now` counts as the date as well.
        """
        if self._status in ENDED:
            return []
        self._dates.set(now, now if wall is None else wall)
        match event:
            case Submitted():
                return self._prepare()
            case CancelRequested(reason):
                return self._cancel(reason, now)
            case GenerationPrepared():
                return self._deploy(event, now)
            case GenerationFailed(error, fatal):
                return self._on_not_prepared(error, fatal, now)
            case SlotsAwaited(slots):
                return self._parallelism.on_awaited(slots, dict(self._damaged))
            case SlotsChanged(slots):
                self._parallelism.on_slots(slots, now)
                return []
            case TimerFired(timer):
                return self._on_timer(timer, now)
            case SavepointRequested():
                return self._on_savepoint_requested(event, now)
        if isinstance(event, _ANSWERS_OF_STORAGE):
            return self._on_storage(event, now)
        if event.generation != self._generation or self._checkpoints is None:
            return []
        return self._on_worker_event(event, self._checkpoints, now)

    def _prepare(self) -> list[JobCommand]:
        self._status = JobStatus.PREPARING
        return [self._parallelism.begin(dict(self._damaged))]

    def _on_not_prepared(self, error: Exception, fatal: bool, now: float) -> list[JobCommand]:
        if other := self._parallelism.on_not_prepared(error, fatal, dict(self._damaged)):
            return other
        failure = failed_by(error, GenerationFailureReason.NOT_PREPARED)
        return self._end_failed(failure, now) if fatal else self._fail(failure, now)

    def _deploy(self, event: GenerationPrepared, now: float) -> list[JobCommand]:
        if self._status is not JobStatus.PREPARING:
            return []
        self._generation = event.generation
        self._slots_came = False
        if event.topology is not None:
            self._vertices = vertex_entries(event.topology)
            self._subtasks = event.topology.subtasks()
            self._workers = Workers(self._subtasks, self._patience)
        self._drift = DriftLimits(event.generation, self._drift_groups, self._vertices)
        self._parallelism.on_prepared()
        self.comebacks.on_deployed(event.start, self._vertices)
        self._restored = None if event.restored is None else event.restored.key
        self._checkpoints = CheckpointCoordinator(
            *(self._name, event.generation, event.next_checkpoint_id, self._settings),
            *(self._vertices, self._subtasks, self._savepoints, self._dates),
        )
        told = self._savepoints.on_prepared(event.restored if event.drains else None)
        if event.given_up is not None:
            told = [AnnounceGivenUp(event.given_up), *told]
        if event.drains:
            return told
        self._status = JobStatus.DEPLOYING
        return [
            *told,
            Deploy(event.generation, event.start),
            *self._workers.on_deployed(event.generation, now),
        ]

    def _on_worker_event(
        self, event: JobEvent, checkpoints: CheckpointCoordinator, now: float
    ) -> list[JobCommand]:
        match event:
            case WorkersConnected():
                return [*self._workers.on_connected(now)]
            case WorkerSeen(worker=worker):
                self._workers.on_seen(worker, now)
            case SlotsCame():
                self._slots_came = True
            case SubtaskStarted(subtask=subtask):
                return self._on_started(subtask, checkpoints, now)
            case ElementsHad() | SubtaskCaughtUp():
                result = self.comebacks.on_event(event, checkpoints, now)
                return self._fail(result, now) if isinstance(result, GenerationFailure) else result
            case SubtaskDrained(subtask=subtask):
                return checkpoints.on_drained(subtask, now)
            case SourceProgressed(subtask=subtask, progress=progress):
                return [*self._drift.on_progress(subtask, progress)]
            case SnapshotAcknowledged():
                return checkpoints.on_acknowledged(event, now)
            case SnapshotDeclined():
                return self._unless_too_many(checkpoints.on_declined(event, now), now)
            case WorkerFailed() if not checkpoints.last_is_complete:
                return self._on_worker_failed(event, checkpoints, now)
        return []

    def _on_worker_failed(
        self, event: WorkerFailed, checkpoints: CheckpointCoordinator, now: float
    ) -> list[JobCommand]:
        error = event.error
        failure = failed_by(error, GenerationFailureReason.WORKER_FAILED)
        if isinstance(error, RESTARTS_NEVER):
            return self._end_failed(failure, now)
        running, back = self._status is JobStatus.RUNNING, self.comebacks
        if running and (alone := back.on_failed(event, failure, checkpoints, now)):
            self._workers.on_gone(event.worker)
            return alone
        damaged = None if self._restored in self._damaged else self._restored
        if isinstance(error, CorruptCheckpointError) and damaged is not None:
            return self._choose_again(damaged, error, now)
        return self._fail(failure, now)

    def _choose_again(
        self, damaged: ManifestKey, error: CorruptCheckpointError, now: float
    ) -> list[JobCommand]:
        """Prepare a generation that passes the damaged one over: each once, so this has an end."""
        self._damaged[damaged] = error
        failure = GenerationFailure(GenerationFailureReason.DAMAGED, error)
        refused = self._savepoints.on_generation_failed(failure.of_savepoint())
        return [*self._end_generation(failure, now), *refused, *self._prepare()]

    def _on_started(
        self, subtask: SubtaskId, checkpoints: CheckpointCoordinator, now: float
    ) -> list[JobCommand]:
        self._workers.on_started(subtask)
        if back := self.comebacks.on_started(subtask):
            return checkpoints.on_back(back, now)
        if not self._workers.have_started or self._status is not JobStatus.DEPLOYING:
            return []
        self._status = JobStatus.RUNNING
        return [*checkpoints.on_running(now), *self._drift.on_running()]

    def _on_savepoint_requested(self, event: SavepointRequested, now: float) -> list[JobCommand]:
        """While the job starts or waits to restart, the request waits as well."""
        refused = self._savepoints.add(event.request)
        if refused or self._status is not JobStatus.RUNNING or self._checkpoints is None:
            return refused
        return self._checkpoints.on_savepoint_requested(now)

    def _on_storage(self, event: JobEvent, now: float) -> list[JobCommand]:
        if (checkpoints := self._checkpoints) is None:
            return []
        match event:
            case ManifestStored(checkpoint_id):
                commands = checkpoints.on_manifest_stored(checkpoint_id, now)
                return [*commands, *self._spread(checkpoints, now)]
            case (
                ManifestRefused(error=SupersededError() as error)
                | CommitFailed(error=SupersededError() as error)
            ):
                superseded = GenerationFailure(GenerationFailureReason.SUPERSEDED, error)
                return self._end_failed(superseded, now)
            case ManifestRefused():
                return self._unless_too_many(checkpoints.on_manifest_refused(event, now), now)
            case CommitFailed(error=error) if isinstance(error, COMMITS_NEVER):
                never = GenerationFailure(GenerationFailureReason.COMMIT_REFUSED, error)
                return self._end_failed(never, now)
            case SourcesNotTold(error=JobFailedError() as error):
                return self._end_failed(
                    failed_by(error, GenerationFailureReason.SOURCE_GAVE_UP), now
                )
            case SourcesNotTold():
                return checkpoints.telling.on_not_told(event, now)
            case SourcesTold(checkpoint_id):
                return checkpoints.telling.on_told(checkpoint_id)
            case CommitFailed():
                return self._unless_too_many(checkpoints.on_commit_failed(event, now), now)
            case SavepointPublished():
                return self._unless_over(checkpoints.on_savepoint_published(event, now))
            case SavepointNotPublished():
                return self._unless_over(checkpoints.on_savepoint_not_published(event, now))
            case HandlesCommitted(checkpoint_id):
                commands = checkpoints.on_committed(checkpoint_id, now)
                over = checkpoints.final_committed
                return [*commands, *self._end(JobStatus.FINISHED)] if over else commands
        return []

    def _spread(self, checkpoints: CheckpointCoordinator, now: float) -> list[JobCommand]:
        """Begin the next generation behind a checkpoint if it gets more slots, which costs no records.

        That is no failure, so the restart strategy has no say. It waits for a savepoint to be over.
        """
        grows = self._parallelism.grows(now)
        wanted = (self._slots_came or grows) and self._status is JobStatus.RUNNING
        if not wanted or checkpoints.last_is_complete or self._savepoints.is_busy:
            return []
        if grows:
            self._parallelism.on_grown(now)
        reasons = GenerationFailureReason
        why = GenerationFailure(reasons.GROWS if grows else reasons.SPREAD)
        self.restarts += 1
        return [*self._end_generation(why, now), AnnounceRestart(why, 0.0), *self._prepare()]

    def _unless_over(self, commands: list[JobCommand]) -> list[JobCommand]:
        if not self._savepoints.job_is_over:
            return commands
        return commands + self._end(JobStatus.STOPPED)

    def _end(self, status: JobStatus) -> list[JobCommand]:
        """The work of the job is done."""
        self._status = status
        savepoints = self._savepoints
        over = SavepointFailure(SavepointFailureReason.JOB_ENDED, status=status.value)
        return [
            *savepoints.fail_all(over),
            StopWorkers(self._generation, kill=False),
            EndJob(status, savepoint=savepoints.final, ended_because=savepoints.ended_because),
        ]

    def _on_timer(self, timer: Timer, now: float) -> list[JobCommand]:
        checkpoints = self._checkpoints
        if timer.kind is TimerKind.RESTART:
            waiting = self._status is JobStatus.WAITING and timer.id == self._generation
            return self._prepare() if waiting else []
        if checkpoints is None:
            return []
        match timer:
            case Timer(TimerKind.TRIGGER, checkpoint_id):
                return checkpoints.on_trigger_timer(checkpoint_id, now)
            case Timer(TimerKind.EXPIRE, checkpoint_id):
                return self._unless_too_many(checkpoints.on_expired(checkpoint_id, now), now)
            case Timer(TimerKind.TELL, checkpoint_id):
                return checkpoints.telling.on_timer(checkpoint_id)
            case Timer(TimerKind.COMMIT, checkpoint_id):
                return checkpoints.on_commit_timer(checkpoint_id)
        return self._on_workers_timer(timer, checkpoints, now)

    def _on_workers_timer(
        self, timer: Timer, checkpoints: CheckpointCoordinator, now: float
    ) -> list[JobCommand]:
        silent_may_be = timer.kind is TimerKind.LIVENESS and checkpoints.last_is_complete
        of_comeback = timer.kind in (TimerKind.BRING_BACK, TimerKind.BACK)
        if not of_comeback and (timer.id != self._generation or silent_may_be):
            return []
        outcome = (self.comebacks if of_comeback else self._workers).on_timer(timer, now)
        return self._fail(outcome, now) if isinstance(outcome, GenerationFailure) else [*outcome]

    def _unless_too_many(self, commands: list[JobCommand], now: float) -> list[JobCommand]:
        failure = self._checkpoints.too_many_failures if self._checkpoints else None
        return commands if failure is None else commands + self._fail(failure, now)

    def _fail(self, failure: GenerationFailure, now: float) -> list[JobCommand]:
        """The generation is over; the restart strategy decides what comes next."""
        delay = self._restarts.on_failure(now)
        if delay is None:
            return self._end_failed(failure, now)
        refused = self._savepoints.on_generation_failed(failure.of_savepoint())
        commands = [*self._end_generation(failure, now), *refused]
        self._status = JobStatus.WAITING
        self.restarts += 1
        restart = Timer(TimerKind.RESTART, self._generation)
        return [*commands, AnnounceRestart(failure, delay), SetTimer(restart, now + delay)]

    def _end_generation(self, failure: GenerationFailure | None, now: float) -> list[JobCommand]:
        """Without a failure, the job was cancelled."""
        checkpoints, self._checkpoints = self._checkpoints, None
        if checkpoints is None:
            return []
        if failure is None:
            cut_short = CheckpointFailure(CheckpointFailureReason.CANCELLED)
        else:
            cut_short = failure.of_checkpoint()
        history = checkpoints.on_generation_ended(cut_short, now)
        return [StopWorkers(self._generation, kill=True), *history]

    def _end_failed(self, failure: GenerationFailure, now: float) -> list[JobCommand]:
        commands = self._end_generation(failure, now)
        self._status = JobStatus.FAILED
        refused = self._savepoints.fail_all(failure.of_savepoint())
        return [*commands, *refused, EndJob(self._status, failure)]

    def _cancel(self, ended_because: str | None, now: float) -> list[JobCommand]:
        commands = self._end_generation(None, now)
        self._status = JobStatus.CANCELLED
        refused = self._savepoints.fail_all(SavepointFailure(SavepointFailureReason.CANCELLED))
        return [*commands, *refused, EndJob(self._status, ended_because=ended_because)]
