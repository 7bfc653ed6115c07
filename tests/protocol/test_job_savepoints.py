"""What a request for a savepoint leads to, in each stage of a job's life."""

from __future__ import annotations

import pytest

from minirt.protocol.barriers import Barrier
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CancelRequested,
    Deploy,
    EndJob,
    GenerationFailed,
    HandlesCommitted,
    JobCommand,
    JobStatus,
    ManifestStored,
    PrepareGeneration,
    PublishSavepoint,
    SavepointNotPublished,
    SavepointPublished,
    SavepointRequested,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    TimerKind,
    WorkerFailed,
    WorkersConnected,
)
from minirt.protocol.restarts import Restart
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest
from minirt.protocol.subtask_commands import DrainSources, TriggerCheckpoint
from tests.protocol.parts import SINK, SOURCE, acknowledged
from tests.protocol.test_job import BROKEN, bring_up, fired, job, prepared, running, tell

STOP, DRAIN = Afterwards.STOP, Afterwards.DRAIN
SAVEPOINT = Savepoint("/there", 1, "unaligned", 0.0, 20)


def wanted(id: int, afterwards: Afterwards = Afterwards.GO_ON) -> SavepointRequested:
    return SavepointRequested(SavepointRequest(id, "unaligned", "/there", afterwards))


def store(protocol: JobProtocol, checkpoint_id: int, generation: int = 1) -> list[JobCommand]:
    """All acknowledge, the manifest is stored, and its output is committed; what follows on that."""
    for subtask in (SOURCE, SINK):
        tell(protocol, 4.0, acknowledged(checkpoint_id, subtask, generation=generation))
    tell(protocol, 4.0, ManifestStored(checkpoint_id))
    return tell(protocol, 4.0, HandlesCommitted(checkpoint_id))


def answers(commands: list[JobCommand]) -> dict[int, str]:
    return {
        command.request_id: f"no savepoint: {command.failure}"
        if command.failure
        else str(command.savepoint)
        for command in commands
        if isinstance(command, AnswerSavepoint)
    }


@pytest.mark.parametrize("status", [JobStatus.PREPARING, JobStatus.DEPLOYING, JobStatus.WAITING])
def test_a_request_waits_until_the_job_runs(status: JobStatus) -> None:
    protocol = bring_up(job(), status)
    assert tell(protocol, 3.0, wanted(7)) == []
    generation = 1
    if status is JobStatus.WAITING:
        tell(protocol, 5.0, fired(TimerKind.RESTART, 1))
        generation = 2
    if status is not JobStatus.DEPLOYING:
        tell(protocol, 5.0, prepared(generation))
    commands = tell(
        protocol,
        6.0,
        WorkersConnected(generation),
        *(SubtaskStarted(generation, subtask) for subtask in (SOURCE, SINK)),
    )
    assert TriggerCheckpoint(generation, Barrier(1, "unaligned", 6.0, savepoint=True)) in commands


def test_a_savepoint_is_published_and_the_job_goes_on() -> None:
    protocol = running()
    barrier = Barrier(1, "unaligned", 3.0, savepoint=True)
    assert tell(protocol, 3.0, wanted(7))[0] == TriggerCheckpoint(1, barrier)
    [publish] = store(protocol, 1)
    assert isinstance(publish, PublishSavepoint)
    commands = tell(protocol, 5.0, SavepointPublished(1, "/there"))
    assert list(answers(commands)) == [7]
    assert protocol.status is JobStatus.RUNNING


@pytest.mark.parametrize("afterwards", [STOP, DRAIN])
def test_a_job_ends_once_its_last_savepoint_is_published(afterwards: Afterwards) -> None:
    protocol = running()
    tell(protocol, 4.0, wanted(7, afterwards), wanted(8))
    if afterwards is DRAIN:
        tell(protocol, 4.0, SubtaskDrained(1, SOURCE), SubtaskDrained(1, SINK))
    [publish] = store(protocol, 1)
    assert isinstance(publish, PublishSavepoint)
    assert protocol.status is JobStatus.RUNNING
    commands = tell(protocol, 5.0, SavepointPublished(1, "/there"))
    assert commands[0] == AnswerSavepoint(7, SAVEPOINT)
    assert commands[2:] == [
        StopWorkers(1, kill=False),
        EndJob(JobStatus.STOPPED, savepoint=SAVEPOINT),
    ]
    assert answers(commands)[8] == "no savepoint: the job has ended: stopped"


def test_a_drained_job_ends_even_if_its_savepoint_cannot_be_copied() -> None:
    protocol = running()
    assert tell(protocol, 4.0, wanted(7, DRAIN)) == [DrainSources(1)]
    tell(protocol, 4.0, SubtaskDrained(1, SOURCE), SubtaskDrained(1, SINK))
    store(protocol, 1)
    commands = tell(protocol, 5.0, SavepointNotPublished(1, OSError("full")))
    assert answers(commands) == {7: "no savepoint: full"}
    assert commands[-1] == EndJob(JobStatus.STOPPED)


@pytest.mark.parametrize("afterwards", [Afterwards.GO_ON, STOP])
@pytest.mark.parametrize("stored", [False, True])
def test_requests_fail_with_the_generation_and_the_job_restarts(
    afterwards: Afterwards, stored: bool
) -> None:
    protocol = running()
    tell(protocol, 4.0, wanted(7, afterwards), wanted(8))
    if stored:
        store(protocol, 1)
    failed = f"no savepoint: {BROKEN}"
    assert answers(tell(protocol, 5.0, WorkerFailed(1, BROKEN))) == {7: failed, 8: failed}
    assert protocol.status is JobStatus.WAITING
    assert tell(protocol, 6.0, SavepointPublished(1, "/there")) == []
    assert tell(protocol, 10.0, fired(TimerKind.RESTART, 1)) == [PrepareGeneration()]
    assert isinstance(tell(protocol, 10.0, prepared(2, 2))[0], Deploy)
    assert tell(protocol, 11.0, SavepointPublished(1, "/there")) == []


def test_a_request_that_waits_fails_if_the_job_cannot_start() -> None:
    protocol = bring_up(job(), JobStatus.PREPARING)
    tell(protocol, 1.0, wanted(7))
    unreachable = GenerationFailed(OSError("no route"), fatal=False)
    assert answers(tell(protocol, 2.0, unreachable)) == {7: "no savepoint: no route"}


@pytest.mark.parametrize("event", [CancelRequested(), WorkerFailed(1, BROKEN)])
def test_no_request_stays_without_an_answer_when_the_job_ends(
    event: CancelRequested | WorkerFailed,
) -> None:
    protocol = running(restarts=Restart.none())
    tell(protocol, 4.0, wanted(7), wanted(8))
    commands = tell(protocol, 5.0, event)
    assert sorted(answers(commands)) == [7, 8]
    assert isinstance(commands[-1], EndJob)


def test_a_request_that_comes_too_late_fails_when_the_job_has_finished() -> None:
    protocol = running()
    tell(protocol, 4.0, SubtaskDrained(1, SOURCE), SubtaskDrained(1, SINK))
    for subtask in (SOURCE, SINK):
        tell(protocol, 4.0, acknowledged(1, subtask))
    tell(protocol, 4.0, ManifestStored(1))
    assert tell(protocol, 4.0, wanted(7)) == []
    commands = tell(protocol, 4.0, HandlesCommitted(1))
    assert answers(commands) == {7: "no savepoint: the job has ended: finished"}
    assert commands[-1] == EndJob(JobStatus.FINISHED)
