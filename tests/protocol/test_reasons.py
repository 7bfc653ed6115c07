"""Reasons of failures: each has its words in one place, and few files know of it."""

from __future__ import annotations

import pickle
from enum import Enum

import pytest

from minirt.errors import (
    JobFailedError,
    SavepointFailedError,
    StorageError,
    SupersededError,
    WorkerLostError,
)
from minirt.protocol.reasons import (
    CheckpointFailure,
    CheckpointFailureReason,
    GenerationFailure,
    GenerationFailureReason,
    SavepointFailure,
    SavepointFailureReason,
    failed_by,
)
from tests.naming import attributes_in, files_that

WHY, GENERATION, SAVEPOINT = (
    CheckpointFailureReason,
    GenerationFailureReason,
    SavepointFailureReason,
)
ERROR = StorageError("no disk")
NAMES = tuple(f"map ({number}/12)" for number in range(1, 13))
ELEVEN = CheckpointFailure(WHY.EXPIRED, missing=NAMES[:11], subtask_count=12, timeout_s=2.5)

CHECKPOINTS = {
    CheckpointFailure(WHY.DECLINED, "no disk", declined_by="out (1/1)"): "declined: no disk",
    CheckpointFailure(WHY.GIVEN_UP): "declined: it was given up",
    CheckpointFailure(
        WHY.PASSED_OVER, declined_by="out (1/1)"
    ): "passed over: out (1/1) has come to a later one without it",
    ELEVEN: "expired after 2.5 s with 11 of 12 subtasks missing: "
    + ", ".join(NAMES[:10])
    + " and 1 more",
    CheckpointFailure(WHY.NOT_STORED, "no disk"): "no disk",
    CheckpointFailure(WHY.GENERATION_FAILED, "no disk"): "no disk",
    CheckpointFailure(WHY.CANCELLED): "the job was cancelled",
    CheckpointFailure(WHY.RECORDED, "no disk"): "no disk",
}
TAKEN_OVER = "another coordinator has taken over this job's checkpoints"
GENERATIONS = {
    GenerationFailure(GENERATION.NOT_PREPARED, ERROR): "no disk",
    GenerationFailure(GENERATION.SUPERSEDED, SupersededError()): TAKEN_OVER,
    GenerationFailure(GENERATION.DAMAGED, ERROR): "no disk",
    GenerationFailure(GENERATION.WORKER_FAILED, ERROR): "no disk",
    GenerationFailure(
        GENERATION.NOT_CONNECTED, seconds=30.0
    ): "workers did not come up and connect within 30 s",
    GenerationFailure(
        GENERATION.NOT_STARTED, count=2, seconds=40.0
    ): "2 subtasks did not start within 40 s",
    GenerationFailure(GENERATION.NOT_CAUGHT_UP, count=2, seconds=60.0): (
        "2 subtasks that came back alone did not send within 60 s what they had sent before; is a function "
        "not deterministic?"
    ),
    GenerationFailure(
        GENERATION.SILENT, seconds=8.54, worker=3
    ): "worker 3 gave no sign of life for 8.5 s",
    GenerationFailure(
        GENERATION.CHECKPOINTS_FAILED, count=3, checkpoint=CheckpointFailure(WHY.DECLINED, "full")
    ): "3 checkpoints in a row failed, at last: declined: full",
    GenerationFailure(
        GENERATION.COMMITS_FAILED, ERROR, count=3
    ): "3 commits in a row failed, at last: no disk",
    GenerationFailure(GENERATION.COMMIT_REFUSED, ERROR): "no disk",
    GenerationFailure(GENERATION.SOURCE_GAVE_UP, ERROR): "no disk",
    GenerationFailure(
        GENERATION.SPREAD
    ): "enough hosts have come: its subtasks need not share slots any more",
    GenerationFailure(GENERATION.GROWS): "hosts have come: its parallelism grows with their slots",
}
SAVEPOINTS = {
    SavepointFailure(
        SAVEPOINT.TOO_MANY_REQUESTS, unanswered=16
    ): "16 others wait already (limit savepoint_requests)",
    SavepointFailure(
        SAVEPOINT.CHECKPOINT_FAILED, checkpoint_id=7, checkpoint=CheckpointFailure(WHY.GIVEN_UP)
    ): "checkpoint 7 declined: it was given up",
    SavepointFailure(SAVEPOINT.NOT_PUBLISHED, "no disk"): "no disk",
    SavepointFailure(
        SAVEPOINT.NOT_PUBLISHED, "no disk", kept_at="/there"
    ): "no disk; the checkpoint itself is /there",
    SavepointFailure(SAVEPOINT.GENERATION_FAILED, "no disk"): "no disk",
    SavepointFailure(SAVEPOINT.CANCELLED): "the job was cancelled",
    SavepointFailure(SAVEPOINT.JOB_ENDED, status="stopped"): "the job has ended: stopped",
}
Failure = CheckpointFailure | GenerationFailure | SavepointFailure
FAILURES: list[tuple[Failure, str]] = [
    *CHECKPOINTS.items(),
    *GENERATIONS.items(),
    *SAVEPOINTS.items(),
]
REASONS: tuple[type[Enum], ...] = (WHY, GENERATION, SAVEPOINT)


@pytest.mark.parametrize(("failure", "words"), FAILURES)
def test_a_failure_has_words(failure: Failure, words: str) -> None:
    assert str(failure) == words


@pytest.mark.parametrize("reason", [one for kind in REASONS for one in kind], ids=str)
def test_no_reason_is_without_words(reason: Enum) -> None:
    """mypy refuses one; whoever adds one says here what it reads like."""
    assert reason in {failure.reason for failure, _ in FAILURES}


@pytest.mark.parametrize("failure", GENERATIONS, ids=lambda failure: str(failure.reason))
def test_the_error_that_users_catch_says_the_same(failure: GenerationFailure) -> None:
    assert str(failure.error) == str(failure)
    if failure.raised is None:
        assert isinstance(failure.error, WorkerLostError | StorageError)


def test_only_another_coordinator_supersedes() -> None:
    otherwise = GENERATION.NOT_PREPARED
    assert failed_by(ERROR, otherwise) == GenerationFailure(otherwise, ERROR)
    assert failed_by(SupersededError(), otherwise).reason is GENERATION.SUPERSEDED


@pytest.mark.parametrize(
    "error",
    [
        SupersededError(),
        JobFailedError("why", GENERATION.SILENT),
        SavepointFailedError("why", SAVEPOINT.CANCELLED),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_with_a_reason_keep_it_on_their_way_to_another_process(
    error: JobFailedError,
) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert (type(there), str(there), there.reason) == (type(error), str(error), error.reason)


@pytest.mark.parametrize(
    ("reason", "arises_in"),
    [
        (WHY.EXPIRED, "checkpoints.py"),
        (WHY.NOT_STORED, "checkpoints.py"),
        (GENERATION.SILENT, "workers.py"),
        (SAVEPOINT.TOO_MANY_REQUESTS, "savepoints.py"),
    ],
    ids=str,
)
def test_a_reason_is_known_where_it_arises_and_where_it_gets_its_words(
    reason: Enum, arises_in: str
) -> None:
    """What one more reason touches: these two files of `minirt/protocol`, and the table above."""
    found = files_that(lambda tree: reason.name in attributes_in(tree))
    assert found == {f"protocol/{name}" for name in ("reasons.py", arises_in)}
