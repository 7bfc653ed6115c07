"""A worker that comes back alone and sends to others: what its receivers have had decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minirt.errors import WorkerLostError
from minirt.protocol.ids import ChannelId
from minirt.protocol.job_events import (
    JobStatus,
    SetTimer,
    SnapshotAcknowledged,
    SubtaskStarted,
    Timer,
    TimerFired,
    TimerKind,
    WorkerFailed,
)
from minirt.protocol.lines import LocalCut
from minirt.protocol.reasons import GenerationFailure, GenerationFailureReason
from minirt.protocol.restart_commands import (
    AnnounceComeback,
    AnnounceRestart,
    BringBack,
    ElementsHad,
    FallenBack,
    KeepFor,
    SubtaskCaughtUp,
)
from minirt.protocol.subtask_commands import TriggerCheckpoint
from minirt.protocol.uncoordinated import Uncoordinated
from tests.protocol.parts import SINK, SOURCE
from tests.protocol.test_comebacks import (
    BACK,
    BRING_BACK,
    CHANNEL,
    FAILURE,
    GONE,
    SINK_WORKER,
    WATERMARKS,
    Job,
    local,
)

OUT, OTHER = ChannelId(1, 0, 0), ChannelId(1, 0, 1)
"""What it sends through, as its snapshots say."""
RECEIVER, OTHER_RECEIVER = 2, 3


def sending(number: int, done: int, **sent: int) -> SnapshotAcknowledged:
    one = local(SINK, number, 1, done=done)
    assert one.local is not None
    channels = {"out": OUT, "other": OTHER}
    numbers = tuple((channels[name], count) for name, count in sent.items())
    return replace(one, local=replace(one.local, sent=numbers))


def gone(attempts: int | None = None) -> Job:
    """Its worker is gone, and nobody has told what has come from it."""
    job = Job(attempts=attempts)
    job.snapshots(local(SOURCE, 1), sending(1, 30, out=7, other=9))
    assert job.tell(GONE, 20.0) == [KeepFor(1, SINK_WORKER), SetTimer(BACK, 90.0)]
    return job


def had(**elements: int) -> ElementsHad:
    channels = {"out": OUT, "other": OTHER, "unknown": ChannelId(9, 0, 0)}
    return ElementsHad(1, SINK_WORKER, {channels[name]: n for name, n in elements.items()})


def back(job: Job, *told: ElementsHad) -> BringBack:
    for each in told:
        job.tell(each, 21.0)
    [bring_back, _] = job.tell(TimerFired(BRING_BACK), 23.0)
    assert isinstance(bring_back, BringBack)
    return bring_back


def test_it_comes_back_once_all_receivers_have_told() -> None:
    job = gone()
    assert job.tell(had(out=12, unknown=4), 21.0) == []
    assert job.tell(had(other=9), 21.5) == [
        AnnounceComeback(FAILURE, 2.0),
        SetTimer(BRING_BACK, 23.5),
    ]
    cut = LocalCut(1, ((SOURCE, 1),), processed=((CHANNEL, 30),), sent=((OUT, 7), (OTHER, 9)))
    at = FallenBack(1, cut, WATERMARKS, ((OUT, 12), (OTHER, 9)))
    assert at.is_behind
    [bring_back, timer] = job.tell(TimerFired(BRING_BACK), 23.5)
    assert isinstance(bring_back, BringBack)
    assert bring_back.fallen_back == {SINK: at}
    assert timer == SetTimer(BACK, 93.5)
    assert job.tell(TimerFired(BACK), 90.0) == []


def test_nothing_is_told_twice() -> None:
    job = gone()
    back(job, had(out=12), had(other=9))
    assert job.tell(had(out=1, other=1), 24.0) == []


@pytest.mark.parametrize("lacks", [{"out": 6, "other": 9}, {"out": 7, "other": 8}])
def test_the_job_restarts_if_what_lay_ahead_of_its_snapshot_is_lost(lacks: dict[str, int]) -> None:
    job = gone()
    commands = job.tell(had(**lacks), 21.0)
    assert commands[-2:] == [
        AnnounceRestart(FAILURE, 2.0),
        SetTimer(Timer(TimerKind.RESTART, 1), 23.0),
    ]
    assert (job.protocol.restarts, job.protocol.comebacks.count) == (1, 0)


def test_a_failure_counts_once_however_it_ends() -> None:
    job = gone(attempts=1)
    job.tell(had(out=6, other=9), 21.0)
    assert job.protocol.status is JobStatus.WAITING


def test_the_strategy_may_give_up() -> None:
    job = gone(attempts=1)
    back(job, had(out=7, other=9))
    job.tell(SubtaskStarted(1, SINK), 24.0)
    job.tell(GONE, 30.0)
    job.tell(had(out=7, other=9), 31.0)
    assert job.protocol.status is JobStatus.FAILED


def test_it_is_away_until_it_has_caught_up() -> None:
    job = gone()
    back(job, had(out=12, other=9))
    assert job.savepoint(23.0) == []
    assert job.tell(SubtaskStarted(1, SINK), 24.0) == []
    [trigger, _] = job.tell(SubtaskCaughtUp(1, SINK), 25.0)
    assert isinstance(trigger, TriggerCheckpoint)
    assert job.tell(SubtaskCaughtUp(1, SINK), 26.0) == []


def test_it_may_have_caught_up_when_it_starts() -> None:
    job = gone()
    back(job, had(out=7, other=9))
    job.savepoint(23.0)
    [trigger, _] = job.tell(SubtaskStarted(1, SINK), 24.0)
    assert isinstance(trigger, TriggerCheckpoint)


def test_whatever_fails_before_it_has_caught_up_restarts_the_job() -> None:
    job = gone()
    back(job, had(out=12, other=9))
    job.tell(SubtaskStarted(1, SINK), 24.0)
    job.tell(WorkerFailed(1, WorkerLostError("worker 0 was killed"), 0), 25.0)
    assert job.protocol.status is JobStatus.WAITING


def test_it_has_time_to_catch_up_and_no_more() -> None:
    job = gone()
    back(job, had(out=12, other=9))
    job.tell(SubtaskStarted(1, SINK), 24.0)
    assert job.tell(TimerFired(BACK), 93.0) == [SetTimer(BACK, 153.0)]
    commands = job.tell(TimerFired(BACK), 153.0)
    why = GenerationFailure(GenerationFailureReason.NOT_CAUGHT_UP, count=1, seconds=60.0)
    assert commands[-2] == AnnounceRestart(why, 2.0)
    assert "did not send within 60 s what they had sent before" in str(why)


def test_receivers_that_never_tell_restart_the_job() -> None:
    job = gone()
    job.tell(had(out=12), 21.0)
    job.tell(TimerFired(BACK), 90.0)
    assert job.protocol.status is JobStatus.WAITING


@pytest.mark.parametrize(
    ("done", "ended", "may"),
    [(6, False, False), (7, False, True), (5, True, False), (6, True, True)],
)
def test_a_receiver_does_not_fall_back_behind_what_its_sender_has(
    done: int, ended: bool, may: bool
) -> None:
    """The end is the last of the elements that were sent, and is sent again."""
    family = Uncoordinated({SOURCE, SINK})
    sent = replace(local(SOURCE, 1), watermarks=WATERMARKS)
    cut = LocalCut(1, processed=(), sent=((CHANNEL, 7),), ended=ended)
    sent = replace(sent, local=cut)
    for event in (sent, local(SINK, 1, 1, done=done)):
        family.on_local(event, 0.0)
    assert family.fall_back([SOURCE]) is not None
    assert (family.fall_back([SINK]) is not None) == may
