"""Savepoints at the coordinator: when they are taken, what ends with them, and what users are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minirt.errors import StorageError
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CleanUp,
    CommitFailed,
    CommitHandles,
    JobCommand,
    ManifestRefused,
    PublishSavepoint,
    RecordHistory,
    SavepointNotPublished,
    SavepointPublished,
    SetTimer,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.manifest import Manifest, ManifestKey, SinkHandles, SnapshotRef
from minirt.protocol.reasons import SavepointFailure, SavepointFailureReason
from minirt.protocol.reports import CheckpointStatus
from minirt.protocol.savepoint_requests import Afterwards, Savepoint, SavepointRequest
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    DrainSources,
    ResumeSources,
    TriggerCheckpoint,
)
from tests.protocol.parts import (
    SINK,
    SOURCE,
    CoordinatedJob,
    acknowledged,
    declined,
    handles,
    trigger_timer,
)

SETTINGS = CheckpointSettings("aligned", interval_s=10.0, timeout_s=60.0, tolerable_failures=2)
FULL = StorageError("full")
LOST = SavepointFailure(SavepointFailureReason.GENERATION_FAILED, "a worker died")
STOP, DRAIN = Afterwards.STOP, Afterwards.DRAIN


class Job(CoordinatedJob):
    def __init__(self, requests_max: int = 3) -> None:
        super().__init__(SETTINGS, requests_max)

    def ask(
        self,
        id: int,
        now: float,
        *,
        mode: str = "unaligned",
        path: str | None = None,
        afterwards: Afterwards = Afterwards.GO_ON,
    ) -> list[JobCommand]:
        return self.request(SavepointRequest(id, mode, path, afterwards), now)

    def acknowledge(self, checkpoint_id: int, now: float, *held: SinkHandles) -> Manifest:
        assert self.checkpoints.on_acknowledged(acknowledged(checkpoint_id, SOURCE), now) == []
        [store] = self.checkpoints.on_acknowledged(acknowledged(checkpoint_id, SINK, *held), now)
        assert isinstance(store, StoreManifest)
        return store.manifest

    def complete(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        """All acknowledge and the manifest is stored; what follows."""
        self.acknowledge(checkpoint_id, now)
        return self.checkpoints.on_manifest_stored(checkpoint_id, now)

    def publish(self, checkpoint_id: int, now: float) -> list[JobCommand]:
        [command] = self.checkpoints.on_committed(checkpoint_id, 0.0)
        assert isinstance(command, PublishSavepoint)
        published = SavepointPublished(checkpoint_id, "/there")
        return self.checkpoints.on_savepoint_published(published, now)

    def drain(self, now: float) -> list[JobCommand]:
        assert self.checkpoints.on_drained(SOURCE, now) == []
        return self.checkpoints.on_drained(SINK, now)


def triggered(
    checkpoint_id: int,
    now: float,
    mode: str = "unaligned",
    pause: bool = False,
    savepoint: bool | None = None,
) -> list[JobCommand]:
    """The job of these tests is aligned; its savepoints are not, unless the test says so."""
    savepoint = mode == "unaligned" if savepoint is None else savepoint
    return [
        TriggerCheckpoint(1, Barrier(checkpoint_id, mode, now, savepoint), pause),
        SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), now + 60.0),
    ]


def next_at(checkpoint_id: int, at: float) -> SetTimer:
    return SetTimer(trigger_timer(checkpoint_id), at)


def told(commands: list[JobCommand]) -> dict[int, str]:
    """What users are told: a path, or what is wrong."""
    answers = [command for command in commands if isinstance(command, AnswerSavepoint)]
    for answer in answers:
        assert (answer.savepoint is None) == isinstance(answer.failure, SavepointFailure)
    return {
        a.request_id: a.savepoint.path if a.savepoint else f"no savepoint: {a.failure}"
        for a in answers
    }


# When they are taken.


def test_a_savepoint_is_taken_at_once_in_its_own_mode() -> None:
    assert Job().ask(7, 4.0) == triggered(1, 4.0)


def test_it_waits_for_the_checkpoint_under_way_and_goes_before_the_next_one() -> None:
    job = Job()
    assert job.checkpoints.on_trigger_timer(1, 10.0) == triggered(1, 10.0, "aligned")
    assert job.ask(7, 11.0) == []
    assert job.complete(1, 21.0)[-2:] == triggered(2, 21.0)


def test_it_follows_a_checkpoint_that_failed_as_well() -> None:
    job = Job()
    job.checkpoints.on_trigger_timer(1, 10.0)
    job.ask(7, 11.0)
    assert job.checkpoints.on_declined(declined(1, SINK), 12.0)[-2:] == triggered(2, 12.0)


def test_the_next_periodic_checkpoint_is_due_one_interval_after_a_savepoint() -> None:
    job = Job()
    job.ask(7, 4.0)
    assert job.complete(1, 5.0)[-1] == next_at(2, 14.0)


def test_a_savepoint_that_failed_does_not_put_off_the_next_periodic_checkpoint() -> None:
    job = Job()
    job.ask(7, 4.0)
    assert job.checkpoints.on_declined(declined(1, SINK), 5.0)[-1] == next_at(2, 10.0)


def test_savepoints_are_served_one_after_another() -> None:
    job = Job()
    job.ask(7, 4.0)
    assert job.ask(8, 4.0, mode="aligned") == []
    job.complete(1, 5.0)
    assert job.publish(1, 6.0) == [
        AnswerSavepoint(7, Savepoint("/there", 1, "unaligned", 1.0, 20)),
        *triggered(2, 6.0, "aligned", savepoint=True),
    ]


def test_periodic_checkpoints_go_on_while_a_savepoint_is_being_copied() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there")
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 0.0)
    assert job.checkpoints.on_trigger_timer(2, 14.0) == triggered(2, 14.0, "aligned")
    published = SavepointPublished(1, "/there")
    assert told(job.checkpoints.on_savepoint_published(published, 15.0)) == {7: "/there"}
    job.acknowledge(2, 16.0)


def test_too_many_requests_are_refused() -> None:
    job = Job(requests_max=2)
    job.ask(7, 4.0)
    job.ask(8, 4.0)
    assert told(job.ask(9, 4.0)) == {
        9: "no savepoint: 2 others wait already (limit savepoint_requests)"
    }
    job.complete(1, 5.0)
    job.publish(1, 6.0)
    assert job.ask(9, 7.0) == []


# What they are.


@pytest.mark.parametrize(
    ("path", "afterwards", "kind"),
    [
        (None, Afterwards.GO_ON, "savepoint"),
        ("/there", Afterwards.GO_ON, "checkpoint"),
        (None, STOP, "savepoint"),
        ("/there", STOP, "checkpoint"),
        (None, DRAIN, "savepoint"),
        ("/there", DRAIN, "savepoint"),
    ],
)
def test_what_is_copied_need_not_stay_unless_it_is_the_end(
    path: str | None, afterwards: Afterwards, kind: str
) -> None:
    job = Job()
    job.ask(7, 4.0, path=path, afterwards=afterwards)
    if afterwards is DRAIN:
        job.drain(4.0)
    manifest = job.acknowledge(1, 5.0)
    assert (manifest.kind, manifest.mode) == (kind, "unaligned")
    assert manifest.summary().pinned == (kind == "savepoint")


def test_it_is_committed_like_any_checkpoint_and_then_published_without_handles() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there")
    manifest = job.acknowledge(1, 5.0, handles(1))
    assert manifest.sink_handles == (handles(1),)
    commit, history, clean_up, _ = job.checkpoints.on_manifest_stored(1, 5.0)
    assert commit == CommitHandles(1, (handles(1),))
    assert isinstance(history, RecordHistory)
    assert isinstance(clean_up, CleanUp)
    published = replace(manifest, kind="savepoint", sink_handles=())
    assert job.checkpoints.on_committed(1, 0.0) == [PublishSavepoint(published, "/there")]


def test_it_is_not_published_before_its_output_is_committed() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.complete(1, 5.0)
    assert not any(
        isinstance(command, PublishSavepoint)
        for command in job.checkpoints.on_commit_failed(CommitFailed(1, OSError("full")), 6.0)
    )
    assert job.checkpoints.on_trigger_timer(2, 14.0) == triggered(2, 14.0, "aligned")
    job.complete(2, 15.0)
    [publish] = job.checkpoints.on_committed(2, 0.0)
    assert isinstance(publish, PublishSavepoint)
    assert publish.manifest.checkpoint_id == 1
    assert job.checkpoints.on_committed(1, 0.0) == []


def test_its_files_stay_until_they_are_copied() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there")
    for subtask in (SOURCE, SINK):
        path = f"chk-00000001-g00000001/v{subtask.vertex}-s0.part"
        stored = SnapshotRef(subtask.vertex, 0, path, None, 10, 0)
        job.checkpoints.on_acknowledged(replace(acknowledged(1, subtask), snapshot=stored), 5.0)
    needed = CleanUp(frozenset({ManifestKey(1, 1)}))
    assert needed in job.checkpoints.on_manifest_stored(1, 5.0)
    job.checkpoints.on_commit_failed(CommitFailed(1, OSError("full")), 6.0)
    job.checkpoints.on_trigger_timer(2, 14.0)
    assert needed in job.complete(2, 15.0)
    job.publish(2 - 1, 16.0)
    job.checkpoints.on_trigger_timer(3, 24.0)
    assert CleanUp() in job.complete(3, 25.0)


# Failures.


def test_a_savepoint_that_is_declined_fails_and_the_job_goes_on() -> None:
    job = Job()
    job.ask(7, 4.0)
    commands = job.checkpoints.on_declined(declined(1, SINK), 5.0)
    assert commands[0] == AbortCheckpoint(1, 1)
    assert told(commands) == {7: "no savepoint: checkpoint 1 declined: disk full"}
    [report] = [c.report for c in commands if isinstance(c, RecordHistory)]
    assert (report.status, report.mode) == (CheckpointStatus.FAILED, "unaligned")


def test_a_savepoint_that_takes_too_long_fails() -> None:
    job = Job()
    job.ask(7, 4.0)
    commands = job.checkpoints.on_expired(1, 64.0)
    assert told(commands)[7].startswith(
        "no savepoint: checkpoint 1 expired after 60 s with 2 of 2 subtasks missing: numbers (1/1), "
    )


def test_a_savepoint_whose_manifest_cannot_be_stored_fails() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.acknowledge(1, 5.0)
    commands = job.checkpoints.on_manifest_refused(
        ManifestRefused(1, StorageError("no space")), 6.0
    )
    assert told(commands) == {7: "no savepoint: checkpoint 1 no space"}


def test_a_savepoint_that_cannot_be_copied_fails() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there")
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 0.0)
    refused = SavepointNotPublished(1, StorageError("read-only"))
    commands = job.checkpoints.on_savepoint_not_published(refused, 6.0)
    assert told(commands) == {7: "no savepoint: read-only"}
    assert job.checkpoints.on_savepoint_not_published(refused, 6.0) == []


def test_savepoints_that_fail_do_not_fail_the_job() -> None:
    job = Job(requests_max=9)
    for checkpoint_id in range(1, 6):
        job.ask(checkpoint_id, 4.0)
        job.checkpoints.on_declined(declined(checkpoint_id, SINK), 5.0)
    assert job.checkpoints.too_many_failures is None


def test_all_requests_fail_with_the_generation() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.ask(8, 4.0)
    assert told(job.savepoints.fail_all(LOST)) == {
        7: "no savepoint: a worker died",
        8: "no savepoint: a worker died",
    }
    assert job.savepoints.fail_all(LOST) == []


# Stop.


def test_stop_pauses_the_sources_and_nothing_follows() -> None:
    job = Job()
    assert job.ask(7, 4.0, afterwards=STOP) == triggered(1, 4.0, pause=True)
    assert isinstance(job.complete(1, 5.0)[-1], CleanUp)
    assert job.checkpoints.on_trigger_timer(2, 99.0) == []
    assert job.drain(99.0) == []
    assert not job.savepoints.job_is_over
    assert told(job.publish(1, 100.0)) == {7: "/there"}
    assert job.savepoints.job_is_over


@pytest.mark.parametrize("drained", [False, True])
def test_stop_that_fails_lets_the_sources_go_on(drained: bool) -> None:
    job = Job()
    job.ask(7, 4.0, afterwards=STOP)
    if drained:
        job.drain(4.5)
    commands = job.checkpoints.on_declined(declined(1, SINK), 5.0)
    assert ResumeSources(1) in commands
    assert told(commands) == {7: "no savepoint: checkpoint 1 declined: disk full"}
    following = triggered(2, 5.0, "aligned") if drained else [next_at(2, 10.0)]
    assert commands[-len(following) :] == following
    assert not job.savepoints.job_is_over


def test_stop_whose_savepoint_cannot_be_copied_lets_the_sources_go_on() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there", afterwards=STOP)
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 0.0)
    commands = job.checkpoints.on_savepoint_not_published(SavepointNotPublished(1, FULL), 6.0)
    assert commands == [
        ResumeSources(1),
        AnswerSavepoint(7, failure=SavepointFailure(SavepointFailureReason.NOT_PUBLISHED, "full")),
        next_at(2, 14.0),
    ]
    assert not job.savepoints.job_is_over


# Drain.


def test_drain_ends_the_sources_and_takes_no_checkpoint_before_they_have_ended() -> None:
    job = Job()
    assert job.ask(7, 4.0, afterwards=DRAIN) == [DrainSources(1)]
    assert job.checkpoints.on_trigger_timer(1, 10.0) == []
    assert job.ask(8, 11.0) == []
    assert job.drain(12.0) == triggered(1, 12.0)
    job.complete(1, 13.0)
    assert told(job.publish(1, 14.0)) == {7: "/there"}
    assert job.savepoints.job_is_over
    assert job.savepoints.final is not None


def test_a_drained_job_tries_again_when_its_savepoint_fails() -> None:
    job = Job()
    job.ask(7, 4.0, afterwards=DRAIN)
    job.drain(5.0)
    commands = job.checkpoints.on_declined(declined(1, SINK), 6.0)
    assert told(commands) == {}
    assert commands[-1] == next_at(2, 6.2)
    assert job.checkpoints.on_trigger_timer(2, 6.2) == triggered(2, 6.2)
    for checkpoint_id, now in ((2, 7.0), (3, 8.0)):
        job.checkpoints.on_declined(declined(checkpoint_id, SINK), now)
        job.checkpoints.on_trigger_timer(checkpoint_id + 1, now + 5.0)
    assert (
        str(job.checkpoints.too_many_failures)
        == "3 checkpoints in a row failed, at last: declined: disk full"
    )


def test_a_drained_job_whose_savepoint_cannot_be_copied_ends_all_the_same() -> None:
    job = Job()
    job.ask(7, 4.0, path="/there", afterwards=DRAIN)
    job.drain(5.0)
    job.complete(1, 6.0)
    job.checkpoints.on_committed(1, 0.0)
    commands = job.checkpoints.on_savepoint_not_published(SavepointNotPublished(1, FULL), 7.0)
    assert told(commands) == {7: "no savepoint: full"}
    assert job.savepoints.job_is_over
    assert job.savepoints.final is None


# At the end of the input.


def test_savepoints_that_wait_go_before_the_final_checkpoint() -> None:
    job = Job()
    job.checkpoints.on_trigger_timer(1, 10.0)
    job.ask(7, 11.0)
    assert job.drain(11.0) == []
    job.complete(1, 12.0)
    job.complete(2, 13.0)
    assert job.checkpoints.on_trigger_timer(3, 99.0) == []
    assert job.publish(2, 14.0)[-2:] == triggered(3, 14.0, "aligned")
    assert job.acknowledge(3, 15.0).kind == "final"
    job.checkpoints.on_manifest_stored(3, 15.0)
    assert job.ask(8, 16.0) == []
    job.checkpoints.on_committed(3, 0.0)
    assert job.checkpoints.final_committed


def test_a_commit_that_failed_is_tried_again_although_others_have_committed_all_of_it() -> None:
    job = Job()
    job.checkpoints.on_trigger_timer(1, 10.0)
    job.acknowledge(1, 11.0, handles(1))
    job.checkpoints.on_manifest_stored(1, 11.0)
    job.ask(7, 11.0)
    job.complete(2, 12.0)
    job.checkpoints.on_committed(1, 0.0)
    job.checkpoints.on_commit_failed(CommitFailed(2, OSError("full")), 13.0)
    assert job.checkpoints.on_commit_timer(2) == [CommitHandles(2, ())]
    job.publish(2, 14.0)
    assert job.checkpoints.on_commit_timer(2) == []
