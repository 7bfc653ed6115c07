"""The life of a job at its coordinator, by exact lists of commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from minirt.errors import (
    ConfigurationError,
    JobFailedError,
    StorageError,
    UserCodeError,
    WorkerLostError,
)
from minirt.protocol.checkpoints import history_entry
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AbortCheckpoint,
    AnnounceRestart,
    CancelRequested,
    CleanUp,
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
from minirt.protocol.liveness import Liveness
from minirt.protocol.restarts import Restart, RestartStrategy
from tests.protocol.subtasks import (
    GENERATION,
    SETTINGS,
    SUBTASKS,
    VERTICES,
    A,
    B,
    acknowledged,
    declined,
    failure,
    handles,
    manifest,
    next_at,
    triggered,
)

LOST = WorkerLostError("worker died")
CONNECT_S, START_S, SILENCE_S = 30.0, 600.0, 20.0


def job(restart: RestartStrategy | None = None, **settings: Any) -> JobProtocol:
    restart = restart or Restart.fixed_delay(attempts=3, delay=1.0)
    return JobProtocol(
        "j",
        VERTICES,
        SUBTASKS,
        replace(SETTINGS, **settings),
        restart.start(),
        Liveness(SILENCE_S),
        CONNECT_S,
        START_S,
    )


def feed(it: JobProtocol, events: Sequence[tuple[JobEvent, float]]) -> list[JobCommand]:
    """What the last of these events brings."""
    commands: list[JobCommand] = []
    for event, now in events:
        commands = it.handle(event, now)
    return commands


def prepared(generation: int = GENERATION, next_id: int = 1) -> GenerationPrepared:
    return GenerationPrepared(generation, None, next_id)


def started(it: JobProtocol, generation: int = GENERATION, at: float = 0.0) -> list[JobCommand]:
    """Bring a job to the point where all subtasks run."""
    return feed(
        it,
        [
            (Submitted(), at),
            (prepared(generation), at),
            (WorkersConnected(generation), at),
            (SubtaskStarted(generation, A), at),
            (SubtaskStarted(generation, B), at),
        ],
    )


def running(restart: RestartStrategy | None = None, **settings: Any) -> JobProtocol:
    it = job(restart, **settings)
    started(it)
    return it


def timer(kind: TimerKind, id: int) -> TimerFired:
    return TimerFired(Timer(kind, id))


def restarts(
    error: Exception, now: float, delay_s: float = 1.0, generation: int = GENERATION
) -> list[JobCommand]:
    """What ends a generation that is followed by another."""
    return [
        StopWorkers(generation, kill=True),
        AnnounceRestart(error, delay_s),
        SetTimer(Timer(TimerKind.RESTART, generation), now + delay_s),
    ]


# From submission to the end


def test_a_job_is_prepared_deployed_and_run() -> None:
    it = job()
    assert it.status is JobStatus.CREATED
    assert it.handle(Submitted(), 0.0) == [PrepareGeneration()]
    assert it.status is JobStatus.PREPARING
    assert it.handle(prepared(), 1.0) == [
        Deploy(GENERATION, None),
        SetTimer(Timer(TimerKind.CONNECT, GENERATION), 31.0),
        SetTimer(Timer(TimerKind.LIVENESS, GENERATION), 6.0),
    ]
    assert it.status is JobStatus.DEPLOYING
    assert it.handle(WorkersConnected(GENERATION), 2.0) == [
        SetTimer(Timer(TimerKind.START, GENERATION), 602.0)
    ]
    assert it.handle(SubtaskStarted(GENERATION, A), 3.0) == []
    assert it.handle(SubtaskStarted(GENERATION, B), 4.0) == [next_at(1, 14.0)]
    assert it.status is JobStatus.RUNNING


def test_a_job_deploys_what_was_restored_and_goes_on_counting() -> None:
    it = job()
    it.handle(Submitted(), 0.0)
    found = manifest(8, 1.0, 2.0)
    commands = it.handle(GenerationPrepared(GENERATION, found, 9), 0.0)
    assert commands[0] == Deploy(GENERATION, found)
    it.handle(SubtaskStarted(GENERATION, A), 0.0)
    assert it.handle(SubtaskStarted(GENERATION, B), 0.0)[-1] == next_at(9, 10.0)


def test_a_job_ends_once_its_final_checkpoint_is_committed() -> None:
    it = running()
    it.handle(SubtaskDrained(GENERATION, A), 1.0)
    assert it.handle(SubtaskDrained(GENERATION, B), 2.0) == triggered(1, 2.0)
    it.handle(acknowledged(1, A), 2.0)
    found = manifest(1, 2.0, 2.0, handles(1, "x"), final=True)
    assert it.handle(acknowledged(1, B, handles(1, "x")), 2.0) == [StoreManifest(found)]
    assert it.handle(ManifestStored(1), 3.0) == [
        CommitHandles(1, (handles(1, "x"),)),
        RecordHistory(history_entry(found)),
        CleanUp(),
    ]
    assert it.status is JobStatus.RUNNING
    assert it.handle(HandlesCommitted(1), 4.0) == [
        StopWorkers(GENERATION, kill=False),
        EndJob(JobStatus.FINISHED),
    ]
    assert it.status is JobStatus.FINISHED


def test_a_checkpoint_in_the_middle_does_not_end_the_job() -> None:
    it = running()
    assert it.handle(timer(TimerKind.TRIGGER, 1), 10.0) == triggered(1, 10.0)
    it.handle(acknowledged(1, A), 10.0)
    it.handle(acknowledged(1, B), 10.0)
    it.handle(ManifestStored(1), 10.0)
    assert it.handle(HandlesCommitted(1), 10.0) == []
    assert it.status is JobStatus.RUNNING


ENDINGS: list[tuple[JobEvent, JobStatus]] = [
    (CancelRequested(), JobStatus.CANCELLED),
    (ManifestRefused(1, "taken over", superseded=True), JobStatus.FAILED),
]


@pytest.mark.parametrize(("ending", "status"), ENDINGS)
def test_nothing_follows_after_the_end(ending: JobEvent, status: JobStatus) -> None:
    it = running()
    assert isinstance(it.handle(ending, 1.0)[-1], EndJob)
    for event in (
        Submitted(),
        prepared(4),
        WorkerFailed(GENERATION, LOST),
        timer(TimerKind.RESTART, GENERATION),
        CancelRequested(),
    ):
        assert it.handle(event, 2.0) == []
    assert it.status is status


# Failures and restarts


def test_a_worker_that_fails_ends_the_generation_and_the_next_one_follows() -> None:
    it = running()
    assert it.handle(WorkerFailed(GENERATION, LOST), 5.0) == restarts(LOST, 5.0)
    assert (it.status, it.restarts) == (JobStatus.WAITING, 1)
    assert it.handle(timer(TimerKind.RESTART, GENERATION), 6.0) == [PrepareGeneration()]
    assert it.handle(prepared(4), 6.0)[0] == Deploy(4, None)
    assert it.generation == 4


def test_a_checkpoint_under_way_fails_with_its_generation() -> None:
    it = running()
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    stop, *rest = restarts(LOST, 12.0)
    history = RecordHistory(failure(1, "worker died", 10.0, 12.0))
    assert it.handle(WorkerFailed(GENERATION, LOST), 12.0) == [stop, history, *rest]


def test_further_failures_of_the_same_generation_are_one() -> None:
    it = running()
    it.handle(WorkerFailed(GENERATION, LOST), 5.0)
    assert it.handle(WorkerFailed(GENERATION, LOST), 5.1) == []
    assert it.restarts == 1


def test_a_failure_while_workers_come_up_counts_like_any_other() -> None:
    it = job()
    feed(it, [(Submitted(), 0.0), (prepared(), 0.0)])
    assert it.handle(WorkerFailed(GENERATION, LOST), 1.0) == restarts(LOST, 1.0)


def test_a_job_fails_when_its_strategy_gives_up() -> None:
    it = running(Restart.none())
    error = UserCodeError("operator map failed")
    assert it.handle(WorkerFailed(GENERATION, error), 5.0) == [
        StopWorkers(GENERATION, kill=True),
        EndJob(JobStatus.FAILED, error),
    ]
    assert (it.status, it.restarts) == (JobStatus.FAILED, 0)


def test_restarts_are_counted_over_the_whole_life() -> None:
    it = running(Restart.fixed_delay(attempts=2, delay=0))
    for generation in (3, 4):
        it.handle(WorkerFailed(generation, LOST), 1.0)
        it.handle(timer(TimerKind.RESTART, generation), 1.0)
        started(it, generation + 1, 1.0)
    assert it.handle(WorkerFailed(5, LOST), 2.0)[-1] == EndJob(JobStatus.FAILED, LOST)
    assert it.restarts == 2


def test_storage_that_stands_in_the_way_of_a_start_is_tried_again() -> None:
    it = job()
    it.handle(Submitted(), 0.0)
    error = StorageError("away")
    assert it.handle(GenerationFailed(error, fatal=False), 1.0) == [
        AnnounceRestart(error, 1.0),
        SetTimer(Timer(TimerKind.RESTART, 0), 2.0),
    ]
    assert it.handle(timer(TimerKind.RESTART, 0), 2.0) == [PrepareGeneration()]


def test_a_restore_point_that_cannot_work_ends_the_job_at_once() -> None:
    it = job()
    it.handle(Submitted(), 0.0)
    error = ConfigurationError("no such checkpoint")
    assert it.handle(GenerationFailed(error, fatal=True), 1.0) == [EndJob(JobStatus.FAILED, error)]


# Generations that are over


STALE: list[JobEvent] = [
    WorkersConnected(GENERATION),
    SubtaskStarted(GENERATION, A),
    SubtaskDrained(GENERATION, A),
    WorkerSeen(GENERATION, 0),
    WorkerFailed(GENERATION, LOST),
    acknowledged(1, A),
    declined(1, A),
    timer(TimerKind.CONNECT, GENERATION),
    timer(TimerKind.START, GENERATION),
    timer(TimerKind.LIVENESS, GENERATION),
    timer(TimerKind.RESTART, GENERATION),
]


@pytest.mark.parametrize("event", STALE, ids=lambda event: type(event).__name__)
def test_events_of_an_ended_generation_are_ignored(event: JobEvent) -> None:
    it = running()
    it.handle(WorkerFailed(GENERATION, LOST), 5.0)
    it.handle(timer(TimerKind.RESTART, GENERATION), 6.0)
    started(it, 4, 6.0)
    assert it.handle(event, 1000.0) == []
    assert (it.status, it.generation, it.restarts) == (JobStatus.RUNNING, 4, 1)


@pytest.mark.parametrize("event", STALE[:-1], ids=lambda event: type(event).__name__)
def test_events_of_an_ended_generation_are_ignored_while_waiting(event: JobEvent) -> None:
    it = running()
    it.handle(WorkerFailed(GENERATION, LOST), 5.0)
    assert it.handle(event, 1000.0) == []
    assert it.status is JobStatus.WAITING


@pytest.mark.parametrize(
    "event",
    [
        ManifestStored(1),
        ManifestRefused(1, "why"),
        HandlesCommitted(1),
        CommitFailed(1, StorageError("away")),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_storage_says_of_an_ended_generation_is_ignored(event: JobEvent) -> None:
    it = running()
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    it.handle(acknowledged(1, A), 10.0)
    it.handle(acknowledged(1, B), 10.0)
    it.handle(WorkerFailed(GENERATION, LOST), 11.0)
    assert it.handle(event, 12.0) == []
    assert it.status is JobStatus.WAITING


def test_a_trigger_timer_of_an_ended_generation_does_not_hurry_the_next_one() -> None:
    it = running()
    it.handle(WorkerFailed(GENERATION, LOST), 5.0)
    it.handle(timer(TimerKind.RESTART, GENERATION), 6.0)
    started(it, 4, 6.0)
    assert it.handle(timer(TimerKind.TRIGGER, 1), 10.0) == []
    assert it.handle(timer(TimerKind.TRIGGER, 1), 16.0) != []


def test_acknowledgements_count_for_their_own_generation_only() -> None:
    it = running()
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    it.handle(acknowledged(1, A), 11.0)
    assert it.handle(acknowledged(1, B, generation=2), 11.0) == []
    assert isinstance(it.handle(acknowledged(1, B), 11.0)[0], StoreManifest)


# Patience


def test_workers_that_do_not_connect_in_time_are_given_up() -> None:
    it = job()
    feed(it, [(Submitted(), 0.0), (prepared(), 0.0)])
    stop, announce, again = it.handle(timer(TimerKind.CONNECT, GENERATION), 30.0)
    assert stop == StopWorkers(GENERATION, kill=True)
    assert isinstance(announce, AnnounceRestart)
    assert str(announce.error) == "workers did not come up and connect within 30 s"
    assert again == SetTimer(Timer(TimerKind.RESTART, GENERATION), 31.0)


def test_once_connected_the_first_timeout_means_nothing() -> None:
    it = job()
    feed(it, [(Submitted(), 0.0), (prepared(), 0.0), (WorkersConnected(GENERATION), 1.0)])
    assert it.handle(timer(TimerKind.CONNECT, GENERATION), 30.0) == []


def test_subtasks_that_do_not_start_in_time_are_given_up() -> None:
    it = job()
    feed(
        it,
        [
            (Submitted(), 0.0),
            (prepared(), 0.0),
            (WorkersConnected(GENERATION), 1.0),
            (SubtaskStarted(GENERATION, A), 2.0),
        ],
    )
    stop, announce, _ = it.handle(timer(TimerKind.START, GENERATION), 601.0)
    assert stop == StopWorkers(GENERATION, kill=True)
    assert isinstance(announce, AnnounceRestart)
    assert str(announce.error) == "1 subtasks did not start within 600 s"


def test_a_job_that_runs_is_past_the_timeout_of_the_start() -> None:
    it = running()
    assert it.handle(timer(TimerKind.START, GENERATION), 601.0) == []


def test_silent_workers_are_looked_for_again_and_again() -> None:
    it = running()
    it.handle(WorkerSeen(GENERATION, 0), 0.0)
    again = SetTimer(Timer(TimerKind.LIVENESS, GENERATION), 10.0)
    assert it.handle(timer(TimerKind.LIVENESS, GENERATION), 5.0) == [again]


def test_a_silent_worker_ends_the_generation() -> None:
    it = running()
    it.handle(WorkerSeen(GENERATION, 0), 0.0)
    it.handle(WorkerSeen(GENERATION, 1), 15.0)
    assert len(it.handle(timer(TimerKind.LIVENESS, GENERATION), 20.0)) == 1
    _, announce, _ = it.handle(timer(TimerKind.LIVENESS, GENERATION), 20.5)
    assert isinstance(announce, AnnounceRestart)
    assert str(announce.error) == "worker 0 gave no sign of life for 20.5 s"


def test_a_worker_that_falls_silent_before_all_run_ends_the_generation() -> None:
    it = job()
    feed(
        it,
        [
            (Submitted(), 0.0),
            (prepared(), 0.0),
            (WorkersConnected(GENERATION), 1.0),
            (WorkerSeen(GENERATION, 0), 1.0),
        ],
    )
    _, announce, _ = it.handle(timer(TimerKind.LIVENESS, GENERATION), 25.0)
    assert isinstance(announce, AnnounceRestart)
    assert str(announce.error) == "worker 0 gave no sign of life for 24.0 s"


def test_what_was_seen_of_an_earlier_generation_is_forgotten() -> None:
    it = running()
    it.handle(WorkerSeen(GENERATION, 0), 0.0)
    it.handle(WorkerFailed(GENERATION, LOST), 1.0)
    it.handle(timer(TimerKind.RESTART, GENERATION), 2.0)
    started(it, 4, 100.0)
    (command,) = it.handle(timer(TimerKind.LIVENESS, 4), 105.0)
    assert isinstance(command, SetTimer)


# Checkpoints that fail too often


def test_too_many_failed_checkpoints_fail_the_job() -> None:
    it = running(tolerable_failures=0)
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    commands = it.handle(declined(1, A), 11.0)
    assert commands[:3] == [
        AbortCheckpoint(GENERATION, 1),
        RecordHistory(failure(1, "declined: disk full", 10.0, 11.0)),
        StopWorkers(GENERATION, kill=True),
    ]
    assert isinstance(commands[3], AnnounceRestart)
    assert str(commands[3].error) == "1 checkpoints in a row failed"
    assert it.status is JobStatus.WAITING


def test_an_expired_checkpoint_counts_as_failed() -> None:
    it = running(tolerable_failures=0)
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    assert it.handle(timer(TimerKind.EXPIRE, 1), 69.0) == []
    assert StopWorkers(GENERATION, kill=True) in it.handle(timer(TimerKind.EXPIRE, 1), 70.0)


def test_too_many_failed_commits_fail_the_job() -> None:
    it = running(tolerable_failures=0)
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    it.handle(acknowledged(1, A), 10.0)
    it.handle(acknowledged(1, B), 10.0)
    it.handle(ManifestStored(1), 10.0)
    commands = it.handle(CommitFailed(1, StorageError("away")), 11.0)
    assert StopWorkers(GENERATION, kill=True) in commands


def test_a_commit_that_failed_is_tried_again_by_a_timer() -> None:
    it = running()
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    it.handle(acknowledged(1, A), 10.0)
    it.handle(acknowledged(1, B, handles(1, "x")), 10.0)
    it.handle(ManifestStored(1), 10.0)
    (again,) = it.handle(CommitFailed(1, StorageError("away")), 11.0)
    assert again == SetTimer(Timer(TimerKind.COMMIT, 1), 11.2)
    assert it.handle(timer(TimerKind.COMMIT, 1), 11.2) == [CommitHandles(1, (handles(1, "x"),))]


# Other coordinators, and the user


def test_a_coordinator_that_was_replaced_stops_for_good() -> None:
    it = running()
    stop, end = it.handle(ManifestRefused(1, "another one took over", superseded=True), 5.0)
    assert stop == StopWorkers(GENERATION, kill=True)
    assert isinstance(end, EndJob)
    assert isinstance(end.error, JobFailedError)
    assert str(end.error) == "another one took over"


@pytest.mark.parametrize("stage", ["created", "preparing", "waiting"])
def test_a_job_can_be_cancelled_while_nothing_runs(stage: str) -> None:
    it = running() if stage == "waiting" else job()
    if stage == "preparing":
        it.handle(Submitted(), 0.0)
    if stage == "waiting":
        it.handle(WorkerFailed(GENERATION, LOST), 1.0)
    assert it.handle(CancelRequested(), 2.0) == [EndJob(JobStatus.CANCELLED)]


def test_cancelling_a_running_job_stops_its_workers() -> None:
    it = running()
    it.handle(timer(TimerKind.TRIGGER, 1), 10.0)
    assert it.handle(CancelRequested(), 11.0) == [
        StopWorkers(GENERATION, kill=True),
        RecordHistory(failure(1, "the job was cancelled", 10.0, 11.0)),
        EndJob(JobStatus.CANCELLED),
    ]


def test_a_preparation_that_ends_after_the_job_was_cancelled_deploys_nothing() -> None:
    it = job()
    feed(it, [(Submitted(), 0.0), (CancelRequested(), 1.0)])
    assert it.handle(prepared(), 2.0) == []
