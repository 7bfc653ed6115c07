"""The life of a job: what each event leads to, in each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minirt.errors import (
    BadRecordError,
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    SinkDataError,
    SourceDataError,
    StorageError,
    SupersededError,
    UnsupportedValueError,
    UserCodeError,
    WorkerLostError,
)
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    CancelRequested,
    CommitFailed,
    CommitHandles,
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
    PrepareGeneration,
    RecordHistory,
    SavepointRequested,
    SetTimer,
    StopWorkers,
    StoreManifest,
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
from minirt.protocol.manifest import Manifest
from minirt.protocol.reasons import (
    CheckpointFailureReason,
    GenerationFailure,
    GenerationFailureReason,
)
from minirt.protocol.restart_commands import AnnounceRestart
from minirt.protocol.restarts import Restart, RestartStrategy
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.slots import SlotsCame
from minirt.protocol.source_offsets import (
    SourceOffsets,
    SourcesNotTold,
    SourcesTold,
    TellSources,
)
from minirt.protocol.subtask_commands import AbortCheckpoint, TriggerCheckpoint
from minirt.protocol.workers import Patience
from tests.protocol.parts import (
    SINK,
    SOURCE,
    VERTICES,
    acknowledged,
    declined,
    handles,
    trigger_timer,
)

SETTINGS = CheckpointSettings("aligned", interval_s=10.0, timeout_s=60.0, tolerable_failures=1)
TWO_RESTARTS = Restart.fixed_delay(attempts=2, delay=5.0)
BROKEN = UserCodeError("the map function raised")
RESTORED = Manifest(1, "job", 3, 1, "aligned", "checkpoint", 0.0, 1.0, VERTICES, (), (), ())


def job(
    settings: CheckpointSettings = SETTINGS, restarts: RestartStrategy = TWO_RESTARTS
) -> JobProtocol:
    return JobProtocol(
        name="job",
        vertices=VERTICES,
        subtasks=frozenset({SOURCE, SINK}),
        checkpoints=settings,
        restarts=restarts.start(),
        patience=Patience(connect_s=30.0, start_s=40.0, silence_s=8.0),
    )


def fired(kind: TimerKind, id: int) -> TimerFired:
    return TimerFired(Timer(kind, id))


def prepared(generation: int = 1, next_checkpoint_id: int = 1) -> GenerationPrepared:
    return GenerationPrepared(generation, None, next_checkpoint_id)


def tell(protocol: JobProtocol, now: float, *events: JobEvent) -> list[JobCommand]:
    return [command for event in events for command in protocol.handle(event, now)]


def bring_up(protocol: JobProtocol, status: JobStatus, generation: int = 1) -> JobProtocol:
    """Lead a job that is submitted, at the time 0, to a status before it ends."""
    if status is JobStatus.CREATED:
        return protocol
    events: list[JobEvent] = [Submitted()]
    if status is not JobStatus.PREPARING:
        events.append(prepared(generation))
    if status in (JobStatus.RUNNING, JobStatus.WAITING):
        events += [WorkersConnected(generation)]
        events += [SubtaskStarted(generation, subtask) for subtask in (SOURCE, SINK)]
    if status is JobStatus.WAITING:
        events.append(WorkerFailed(generation, BROKEN))
    tell(protocol, 0.0, *events)
    assert protocol.status is status
    return protocol


def running(
    settings: CheckpointSettings = SETTINGS, restarts: RestartStrategy = TWO_RESTARTS
) -> JobProtocol:
    return bring_up(job(settings, restarts), JobStatus.RUNNING)


def failed_with(
    error: Exception, reason: GenerationFailureReason = GenerationFailureReason.WORKER_FAILED
) -> GenerationFailure:
    return GenerationFailure(reason, error)


def restarts_after(failure: GenerationFailure, now: float, generation: int = 1) -> list[JobCommand]:
    return [
        StopWorkers(generation, kill=True),
        AnnounceRestart(failure, 5.0),
        SetTimer(Timer(TimerKind.RESTART, generation), now + 5.0),
    ]


def failure_of(commands: list[JobCommand]) -> GenerationFailure:
    """What a restart was announced for."""
    [announced] = [command for command in commands if isinstance(command, AnnounceRestart)]
    return announced.failure


# The life of a job in which nothing goes wrong.


def test_submitted_job_prepares_a_generation() -> None:
    protocol = job()
    assert (protocol.status, protocol.generation) == (JobStatus.CREATED, 0)
    assert protocol.handle(Submitted(), 0.0) == [PrepareGeneration()]
    assert protocol.status is JobStatus.PREPARING


def test_prepared_generation_is_deployed_from_what_it_restores() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    assert protocol.handle(GenerationPrepared(2, RESTORED, 4), 100.0) == [
        Deploy(2),
        SetTimer(Timer(TimerKind.CONNECT, 2), 130.0),
        SetTimer(Timer(TimerKind.LIVENESS, 2), 102.0),
    ]
    assert (protocol.status, protocol.generation) == (JobStatus.DEPLOYING, 2)


def test_job_runs_once_all_subtasks_have_started() -> None:
    protocol = bring_up(job(), JobStatus.DEPLOYING)
    connected = protocol.handle(WorkersConnected(1), 1.0)
    assert connected == [SetTimer(Timer(TimerKind.START, 1), 41.0)]
    assert protocol.handle(SubtaskStarted(1, SINK), 2.0) == []
    assert protocol.handle(SubtaskStarted(1, SINK), 2.0) == []
    assert protocol.status is JobStatus.DEPLOYING
    first = protocol.handle(SubtaskStarted(1, SOURCE), 3.0)
    assert first == [SetTimer(trigger_timer(1), 13.0)]
    assert protocol.status is JobStatus.RUNNING


def test_checkpoint_passes_through_to_its_commit() -> None:
    protocol = running()
    barrier = Barrier(1, "aligned", 10.0)
    assert protocol.handle(TimerFired(trigger_timer(1)), 10.0) == [
        TriggerCheckpoint(1, barrier),
        SetTimer(Timer(TimerKind.EXPIRE, 1), 70.0),
    ]
    assert protocol.handle(acknowledged(1, SOURCE), 11.0) == []
    [store] = protocol.handle(acknowledged(1, SINK, handles(1)), 12.0)
    assert isinstance(store, StoreManifest)
    assert protocol.handle(ManifestStored(1), 13.0)[0] == CommitHandles(1, (handles(1),))
    assert protocol.handle(HandlesCommitted(1), 14.0) == []
    assert protocol.status is JobStatus.RUNNING


def drained(protocol: JobProtocol, now: float) -> list[JobCommand]:
    return tell(protocol, now, *(SubtaskDrained(1, subtask) for subtask in (SOURCE, SINK)))


def test_drained_job_finishes_after_the_commit_of_its_final_checkpoint() -> None:
    protocol = running()
    assert drained(protocol, 3.0)[0] == TriggerCheckpoint(1, Barrier(1, "aligned", 3.0))
    tell(protocol, 4.0, acknowledged(1, SOURCE), acknowledged(1, SINK), ManifestStored(1))
    assert protocol.status is JobStatus.RUNNING
    assert protocol.handle(HandlesCommitted(1), 5.0) == [
        StopWorkers(1, kill=False),
        EndJob(JobStatus.FINISHED),
    ]
    assert protocol.status is JobStatus.FINISHED


def test_final_commit_that_fails_is_tried_again_and_then_finishes_the_job() -> None:
    protocol = running()
    drained(protocol, 3.0)
    tell(protocol, 4.0, acknowledged(1, SOURCE), acknowledged(1, SINK), ManifestStored(1))
    commit = Timer(TimerKind.COMMIT, 1)
    refused = protocol.handle(CommitFailed(1, StorageError("down")), 5.0)
    assert refused == [SetTimer(commit, 5.2)]
    assert protocol.handle(TimerFired(commit), 5.2) == [CommitHandles(1, ())]
    assert protocol.handle(HandlesCommitted(1), 6.0)[-1] == EndJob(JobStatus.FINISHED)


def test_sources_are_told_once_the_manifest_is_stored_and_not_before() -> None:
    protocol, offsets = running(), SourceOffsets("numbers", {"a": 3})
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    part = replace(acknowledged(1, SOURCE), offsets=offsets)
    before = tell(protocol, 11.0, part, acknowledged(1, SINK))
    assert not any(isinstance(command, TellSources) for command in before)
    assert TellSources(1, (offsets,)) in protocol.handle(ManifestStored(1), 12.0)
    assert protocol.handle(SourcesTold(1), 12.0) == []


def test_a_checkpoint_that_is_not_stored_tells_sources_nothing() -> None:
    protocol, offsets = running(), SourceOffsets("numbers", {"a": 3})
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    part = replace(acknowledged(1, SOURCE), offsets=offsets)
    refused = ManifestRefused(1, StorageError("down"))
    commands = tell(protocol, 11.0, part, acknowledged(1, SINK), refused)
    assert not any(isinstance(command, TellSources) for command in commands)


def test_a_source_that_cannot_be_told_does_not_fail_the_job() -> None:
    protocol = running()
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    part = replace(acknowledged(1, SOURCE), offsets=SourceOffsets("numbers", {"a": 3}))
    tell(protocol, 11.0, part, acknowledged(1, SINK), ManifestStored(1))
    [again] = protocol.handle(SourcesNotTold(1, OSError("no answer")), 12.0)
    assert isinstance(again, SetTimer)
    told = protocol.handle(TimerFired(again.timer), again.at)
    assert told == [TellSources(1, (SourceOffsets("numbers", {"a": 3}),))]
    assert protocol.status is JobStatus.RUNNING


# Failures.


@pytest.mark.parametrize(
    "event",
    [
        CommitFailed(1, SupersededError()),
        CommitFailed(1, ConfigurationError("another table")),
        CommitFailed(1, SinkDataError("unique")),
        SourcesNotTold(1, JobFailedError("the slot is gone")),
    ],
    ids=lambda event: f"{type(event).__name__}-{type(event.error).__name__}",
)
def test_what_no_repetition_mends_ends_the_job(event: CommitFailed | SourcesNotTold) -> None:
    protocol = running()
    commands = protocol.handle(event, 12.0)
    assert isinstance(commands[-1], EndJob)
    assert (protocol.status, commands[-1].error) == (JobStatus.FAILED, event.error)


@pytest.mark.parametrize(
    "passing", [SourceDataError("no file"), StorageError("down"), UserCodeError("no answer")]
)
def test_an_error_that_may_pass_is_followed_by_a_restart(passing: Exception) -> None:
    protocol = running()
    assert protocol.handle(WorkerFailed(1, passing), 7.0) == restarts_after(
        failed_with(passing), 7.0
    )


@pytest.mark.parametrize("status", [JobStatus.DEPLOYING, JobStatus.RUNNING])
def test_failed_worker_ends_the_generation_and_the_next_begins_after_the_delay(
    status: JobStatus,
) -> None:
    protocol = bring_up(job(), status)
    assert protocol.handle(WorkerFailed(1, BROKEN), 7.0) == restarts_after(failed_with(BROKEN), 7.0)
    assert (protocol.status, protocol.restarts) == (JobStatus.WAITING, 1)
    assert protocol.handle(fired(TimerKind.RESTART, 1), 12.0) == [PrepareGeneration()]
    assert protocol.status is JobStatus.PREPARING


def test_failed_preparation_is_tried_again_without_workers_to_stop() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    error = StorageError("down")
    assert protocol.handle(GenerationFailed(error, fatal=False), 7.0) == [
        AnnounceRestart(failed_with(error, GenerationFailureReason.NOT_PREPARED), 5.0),
        SetTimer(Timer(TimerKind.RESTART, 0), 12.0),
    ]
    assert protocol.handle(fired(TimerKind.RESTART, 0), 12.0) == [PrepareGeneration()]


def test_preparation_that_cannot_succeed_ends_the_job_without_a_restart() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    error = StorageError("this is no checkpoint")
    assert protocol.handle(GenerationFailed(error, fatal=True), 7.0) == [
        EndJob(JobStatus.FAILED, failed_with(error, GenerationFailureReason.NOT_PREPARED))
    ]
    assert (protocol.status, protocol.restarts) == (JobStatus.FAILED, 0)


def test_job_fails_with_the_last_error_once_its_restart_strategy_gives_up() -> None:
    protocol = running(restarts=Restart.none())
    assert protocol.handle(WorkerFailed(1, BROKEN), 7.0) == [
        StopWorkers(1, kill=True),
        EndJob(JobStatus.FAILED, failed_with(BROKEN)),
    ]
    assert protocol.status is JobStatus.FAILED


@pytest.mark.parametrize(
    "wrong",
    [
        ConfigurationError("the checkpoint holds state of other aggregates"),
        UnsupportedValueError("a generator"),
        BadRecordError("no JSON"),
        SinkDataError("NaN"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_no_restart_can_mend_fails_the_job_at_once(wrong: Exception) -> None:
    protocol = running()
    assert protocol.handle(WorkerFailed(1, wrong), 7.0) == [
        StopWorkers(1, kill=True),
        EndJob(JobStatus.FAILED, failed_with(wrong)),
    ]
    assert (protocol.status, protocol.restarts) == (JobStatus.FAILED, 0)


def test_job_gives_up_after_as_many_restarts_as_allowed() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    for generation in (1, 2):
        commands = tell(protocol, 0.0, prepared(generation), WorkerFailed(generation, BROKEN))
        assert restarts_after(failed_with(BROKEN), 0.0, generation) == commands[-3:]
        protocol.handle(fired(TimerKind.RESTART, generation), 5.0)
    commands = tell(protocol, 9.0, prepared(3), WorkerFailed(3, BROKEN))
    assert commands[-2:] == [
        StopWorkers(3, kill=True),
        EndJob(JobStatus.FAILED, failed_with(BROKEN)),
    ]
    assert protocol.restarts == 2


def test_several_failures_of_one_generation_cost_one_restart() -> None:
    protocol = running()
    protocol.handle(WorkerFailed(1, BROKEN), 7.0)
    again = (
        WorkerFailed(1, WorkerLostError("worker 2 died")),
        fired(TimerKind.CONNECT, 1),
        fired(TimerKind.START, 1),
        fired(TimerKind.LIVENESS, 1),
        declined(1, SINK),
        ManifestRefused(1, StorageError("down")),
        CommitFailed(1, StorageError("down")),
    )
    assert tell(protocol, 100.0, *again) == []
    assert (protocol.status, protocol.restarts) == (JobStatus.WAITING, 1)


# More slots.


def checkpointed(protocol: JobProtocol) -> list[JobCommand]:
    """What follows from the manifest of the next checkpoint."""
    events = (TimerFired(trigger_timer(1)), acknowledged(1, SOURCE), acknowledged(1, SINK))
    tell(protocol, 10.0, *events)
    return protocol.handle(ManifestStored(1), 13.0)


def test_a_job_whose_subtasks_share_slots_spreads_behind_a_checkpoint_when_more_have_come() -> None:
    protocol = running(restarts=Restart.none())
    assert protocol.handle(SlotsCame(1), 5.0) == []
    commands = checkpointed(protocol)
    assert commands[0] == CommitHandles(1, ())
    spread = GenerationFailure(GenerationFailureReason.SPREAD)
    assert commands[-3:] == [
        StopWorkers(1, kill=True),
        AnnounceRestart(spread, 0.0),
        PrepareGeneration(),
    ]
    assert (protocol.status, protocol.restarts) == (JobStatus.PREPARING, 1)
    tell(protocol, 14.0, prepared(2, 2), SubtaskStarted(2, SOURCE), SubtaskStarted(2, SINK))
    assert protocol.status is JobStatus.RUNNING
    [*_, last] = tell(
        protocol,
        24.0,
        TimerFired(trigger_timer(2)),
        acknowledged(2, SOURCE, generation=2),
        acknowledged(2, SINK, generation=2),
        ManifestStored(2),
    )
    assert isinstance(last, SetTimer)


@pytest.mark.parametrize("event", [SlotsCame(0), SlotsCame(2)])
def test_slots_that_came_to_another_generation_change_nothing(event: SlotsCame) -> None:
    protocol = running()
    assert protocol.handle(event, 5.0) == []
    assert isinstance(checkpointed(protocol)[-1], SetTimer)


def test_a_job_that_has_drained_ends_instead_of_using_more_slots() -> None:
    protocol = running()
    tell(protocol, 5.0, SlotsCame(1))
    drained(protocol, 9.0)
    assert StopWorkers(1, kill=True) not in checkpointed(protocol)
    assert protocol.handle(HandlesCommitted(1), 14.0)[-1] == EndJob(JobStatus.FINISHED)


def test_a_job_that_is_to_stop_takes_its_savepoint_and_no_more_slots() -> None:
    protocol = running()
    request = SavepointRequest(1, "aligned", None, Afterwards.STOP)
    tell(protocol, 5.0, SlotsCame(1), SavepointRequested(request))
    tell(protocol, 6.0, acknowledged(1, SOURCE), acknowledged(1, SINK))
    assert StopWorkers(1, kill=True) not in protocol.handle(ManifestStored(1), 7.0)


def test_checkpoint_that_was_pending_is_recorded_as_failed_with_its_generation() -> None:
    protocol = running()
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    commands = protocol.handle(WorkerFailed(1, BROKEN), 12.0)
    assert commands[0] == StopWorkers(1, kill=True)
    assert isinstance(commands[1], RecordHistory)
    report = commands[1].report
    assert report["status"] == "failed"
    assert report["reason"] == str(BROKEN)
    assert report.duration_s == 2.0
    assert report.failure is not None
    assert report.failure.reason is CheckpointFailureReason.GENERATION_FAILED
    assert report.failure.generation_failure is GenerationFailureReason.WORKER_FAILED


def test_too_many_failed_checkpoints_fail_the_generation() -> None:
    protocol = running()
    tell(protocol, 10.0, TimerFired(trigger_timer(1)), declined(1, SINK))
    assert protocol.status is JobStatus.RUNNING
    commands = tell(protocol, 20.0, TimerFired(trigger_timer(2)), declined(2, SINK))
    assert AbortCheckpoint(1, 2) in commands
    failure = failure_of(commands)
    assert isinstance(failure.error, StorageError)
    assert str(failure.error) == "2 checkpoints in a row failed, at last: declined: disk full"
    assert commands[-3:] == restarts_after(failure, 20.0)


def test_too_many_refused_manifests_fail_the_generation() -> None:
    protocol = running(replace(SETTINGS, tolerable_failures=0))
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    tell(protocol, 11.0, acknowledged(1, SOURCE), acknowledged(1, SINK))
    commands = protocol.handle(ManifestRefused(1, StorageError("down")), 12.0)
    assert commands[-3:] == restarts_after(failure_of(commands), 12.0)


def test_too_many_failed_commits_fail_the_generation() -> None:
    protocol = running(replace(SETTINGS, tolerable_failures=0))
    commands = protocol.handle(CommitFailed(1, StorageError("down")), 12.0)
    assert str(failure_of(commands)) == "1 commits in a row failed, at last: down"


def test_too_many_expired_checkpoints_fail_the_generation() -> None:
    protocol = running(replace(SETTINGS, tolerable_failures=0))
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    commands = protocol.handle(fired(TimerKind.EXPIRE, 1), 70.0)
    reason = "expired after 60 s with 2 of 2 subtasks missing: numbers (1/1), out (1/1)"
    assert str(failure_of(commands)) == f"1 checkpoints in a row failed, at last: {reason}"


def test_superseded_manifest_ends_the_job_without_a_restart() -> None:
    protocol = running()
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    tell(protocol, 11.0, acknowledged(1, SOURCE), acknowledged(1, SINK))
    refused = ManifestRefused(1, SupersededError())
    stop, end = protocol.handle(refused, 12.0)
    assert stop == StopWorkers(1, kill=True)
    assert isinstance(end, EndJob)
    assert end.status is JobStatus.FAILED
    assert isinstance(end.error, JobFailedError)
    assert str(end.error) == "another coordinator has taken over this job's checkpoints"
    assert end.failure == GenerationFailure(GenerationFailureReason.SUPERSEDED, refused.error)


# Events and timers that come too late.


STALE: tuple[JobEvent, ...] = (
    WorkersConnected(1),
    SubtaskStarted(1, SOURCE),
    SubtaskStarted(1, SINK),
    SubtaskDrained(1, SOURCE),
    SubtaskDrained(1, SINK),
    WorkerSeen(1, 0),
    WorkerFailed(1, BROKEN),
    acknowledged(1, SOURCE, handles(1)),
    acknowledged(1, SINK, handles(1)),
    declined(1, SINK, handles(1)),
    fired(TimerKind.CONNECT, 1),
    fired(TimerKind.START, 1),
    fired(TimerKind.LIVENESS, 1),
    fired(TimerKind.RESTART, 1),
    prepared(2),
)


def restarted(status: JobStatus) -> JobProtocol:
    """A job in its second generation, at the time 0."""
    protocol = bring_up(job(), JobStatus.WAITING)
    tell(protocol, 0.0, fired(TimerKind.RESTART, 1), prepared(2), WorkersConnected(2))
    if status is JobStatus.RUNNING:
        tell(protocol, 0.0, SubtaskStarted(2, SOURCE), SubtaskStarted(2, SINK))
    assert protocol.status is status
    return protocol


@pytest.mark.parametrize("status", [JobStatus.DEPLOYING, JobStatus.RUNNING])
@pytest.mark.parametrize("event", STALE, ids=lambda event: type(event).__name__)
def test_events_of_an_ended_generation_are_ignored(event: JobEvent, status: JobStatus) -> None:
    protocol = restarted(status)
    assert protocol.handle(event, 1000.0) == []
    assert (protocol.status, protocol.generation, protocol.restarts) == (status, 2, 1)


def test_acknowledgements_of_an_ended_generation_are_no_part_of_a_checkpoint_with_that_id() -> None:
    protocol = restarted(JobStatus.RUNNING)
    protocol.handle(TimerFired(trigger_timer(1)), 10.0)
    tell(protocol, 11.0, acknowledged(1, SOURCE), acknowledged(1, SINK, handles(1)))
    assert protocol.handle(acknowledged(1, SOURCE, generation=2), 12.0) == []
    [store] = protocol.handle(acknowledged(1, SINK, generation=2), 12.0)
    assert isinstance(store, StoreManifest)
    assert (store.manifest.generation, store.manifest.sink_handles) == (2, ())


def test_trigger_timer_of_an_ended_generation_triggers_nothing_early() -> None:
    protocol = restarted(JobStatus.RUNNING)
    assert protocol.handle(TimerFired(trigger_timer(1)), 9.0) == []


def test_subtasks_that_started_in_an_ended_generation_do_not_count_for_the_next() -> None:
    protocol = restarted(JobStatus.DEPLOYING)
    protocol.handle(SubtaskStarted(2, SOURCE), 1.0)
    assert protocol.status is JobStatus.DEPLOYING


def test_restart_timer_counts_only_while_the_job_waits_for_it() -> None:
    protocol = bring_up(job(), JobStatus.WAITING)
    assert protocol.handle(fired(TimerKind.RESTART, 0), 5.0) == []
    assert protocol.handle(fired(TimerKind.RESTART, 1), 5.0) == [PrepareGeneration()]
    assert protocol.handle(fired(TimerKind.RESTART, 1), 5.0) == []


# Timeouts.


def test_workers_that_do_not_connect_in_time_fail_the_generation() -> None:
    protocol = bring_up(job(), JobStatus.DEPLOYING)
    commands = protocol.handle(fired(TimerKind.CONNECT, 1), 30.0)
    failure = failure_of(commands)
    assert commands == restarts_after(failure, 30.0)
    assert isinstance(failure.error, WorkerLostError)
    assert str(failure.error) == "workers did not come up and connect within 30 s"


def test_connect_timer_is_dead_once_workers_have_connected() -> None:
    protocol = bring_up(job(), JobStatus.DEPLOYING)
    protocol.handle(WorkersConnected(1), 1.0)
    assert protocol.handle(fired(TimerKind.CONNECT, 1), 30.0) == []


def test_next_generation_has_to_connect_anew() -> None:
    protocol = bring_up(job(), JobStatus.WAITING)
    tell(protocol, 5.0, fired(TimerKind.RESTART, 1), prepared(2))
    assert "connect" in str(failure_of(protocol.handle(fired(TimerKind.CONNECT, 2), 35.0)))


def test_subtasks_that_do_not_start_in_time_fail_the_generation() -> None:
    protocol = bring_up(job(), JobStatus.DEPLOYING)
    tell(protocol, 1.0, WorkersConnected(1), SubtaskStarted(1, SOURCE))
    commands = protocol.handle(fired(TimerKind.START, 1), 41.0)
    error = failure_of(commands)
    assert commands == restarts_after(error, 41.0)
    assert str(error) == "1 subtasks did not start within 40 s"


def test_start_timer_is_dead_once_the_job_runs() -> None:
    assert running().handle(fired(TimerKind.START, 1), 41.0) == []


def test_liveness_is_looked_at_again_and_again() -> None:
    protocol = running()
    again = SetTimer(Timer(TimerKind.LIVENESS, 1), 9.0)
    assert protocol.handle(fired(TimerKind.LIVENESS, 1), 7.0) == [again]
    protocol.handle(WorkerSeen(1, 0), 7.0)
    again = SetTimer(Timer(TimerKind.LIVENESS, 1), 17.0)
    assert protocol.handle(fired(TimerKind.LIVENESS, 1), 15.0) == [again]


def test_worker_that_is_silent_for_too_long_fails_the_generation() -> None:
    protocol = running()
    tell(protocol, 1.0, WorkerSeen(1, 0), WorkerSeen(1, 3))
    protocol.handle(WorkerSeen(1, 0), 9.0)
    commands = protocol.handle(fired(TimerKind.LIVENESS, 1), 9.5)
    failure = failure_of(commands)
    assert commands == restarts_after(failure, 9.5)
    assert isinstance(failure.error, WorkerLostError)
    assert str(failure.error) == "worker 3 gave no sign of life for 8.5 s"


def test_workers_of_the_last_generation_are_not_missed_in_the_next() -> None:
    protocol = running()
    protocol.handle(WorkerSeen(1, 0), 1.0)
    tell(protocol, 2.0, WorkerFailed(1, BROKEN), fired(TimerKind.RESTART, 1), prepared(2))
    [again] = protocol.handle(fired(TimerKind.LIVENESS, 2), 100.0)
    assert again == SetTimer(Timer(TimerKind.LIVENESS, 2), 102.0)


# Cancelling, and after the end.


@pytest.mark.parametrize("status", [JobStatus.CREATED, JobStatus.PREPARING, JobStatus.WAITING])
def test_cancelling_a_job_without_workers_just_ends_it(status: JobStatus) -> None:
    protocol = bring_up(job(), status)
    assert protocol.handle(CancelRequested(), 1.0) == [EndJob(JobStatus.CANCELLED)]
    assert protocol.status is JobStatus.CANCELLED


@pytest.mark.parametrize("status", [JobStatus.DEPLOYING, JobStatus.RUNNING])
def test_cancelling_a_job_kills_its_workers(status: JobStatus) -> None:
    protocol = bring_up(job(), status)
    assert protocol.handle(CancelRequested(), 1.0) == [
        StopWorkers(1, kill=True),
        EndJob(JobStatus.CANCELLED),
    ]


def finished() -> JobProtocol:
    protocol = running()
    drained(protocol, 3.0)
    tell(protocol, 4.0, acknowledged(1, SOURCE), acknowledged(1, SINK), ManifestStored(1))
    protocol.handle(HandlesCommitted(1), 5.0)
    return protocol


def cancelled() -> JobProtocol:
    protocol = running()
    protocol.handle(CancelRequested(), 1.0)
    return protocol


def gave_up() -> JobProtocol:
    protocol = running(restarts=Restart.none())
    protocol.handle(WorkerFailed(1, BROKEN), 1.0)
    return protocol


@pytest.mark.parametrize("end", [finished, cancelled, gave_up])
def test_nothing_follows_the_end_of_a_job(end: Callable[[], JobProtocol]) -> None:
    protocol = end()
    status = protocol.status
    late: tuple[JobEvent, ...] = (
        *STALE,
        Submitted(),
        CancelRequested(),
        GenerationFailed(BROKEN, fatal=True),
        ManifestStored(1),
        ManifestRefused(1, SupersededError()),
        HandlesCommitted(1),
        CommitFailed(1, BROKEN),
        fired(TimerKind.COMMIT, 1),
        fired(TimerKind.EXPIRE, 1),
        TimerFired(trigger_timer(1)),
        TimerFired(trigger_timer(2)),
    )
    assert tell(protocol, 1000.0, *late) == []
    assert protocol.status is status


def test_job_that_was_cancelled_while_preparing_deploys_nothing() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    assert len(tell(protocol, 1.0, CancelRequested(), prepared())) == 1


def test_a_damaged_checkpoint_is_told_to_the_next_preparation_and_only_once() -> None:
    """Whatever fails next is a failure of the job, which its restart strategy counts."""
    torn = CorruptCheckpointError("torn", "chk-3/v0-s0.part")
    protocol = job()
    tell(protocol, 0.0, Submitted(), GenerationPrepared(1, RESTORED, 4))
    assert tell(protocol, 1.0, WorkerFailed(1, torn)) == [
        StopWorkers(1, kill=True),
        PrepareGeneration({RESTORED.key: torn}),
    ]
    tell(protocol, 2.0, GenerationPrepared(2, RESTORED, 4))
    again = tell(protocol, 3.0, WorkerFailed(2, torn))
    assert [type(command) for command in again] == [StopWorkers, AnnounceRestart, SetTimer]
    assert protocol.handle(fired(TimerKind.RESTART, 2), 8.0) == [
        PrepareGeneration({RESTORED.key: torn})
    ]
