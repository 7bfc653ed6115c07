"""The checkpoints of one generation at the coordinator, by exact lists of commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minirt.protocol.checkpoints import CheckpointCoordinator, CheckpointSettings, history_entry
from minirt.protocol.job_events import (
    AbortCheckpoint,
    CleanUp,
    CommitHandles,
    JobCommand,
    RecordHistory,
    SetTimer,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.manifest import Manifest
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


def coordinator(**changes: Any) -> CheckpointCoordinator:
    """One whose subtasks run since time 0, and whose next checkpoint is number 1."""
    settings: CheckpointSettings = replace(SETTINGS, **changes)
    made = CheckpointCoordinator("j", GENERATION, 1, settings, VERTICES, SUBTASKS)
    made.on_running(0.0)
    return made


def stored(found: Manifest, *then: JobCommand) -> list[JobCommand]:
    """What follows a manifest."""
    return [
        CommitHandles(found.checkpoint_id, found.sink_handles),
        RecordHistory(history_entry(found)),
        CleanUp(),
        *then,
    ]


def complete(it: CheckpointCoordinator, id: int, at: float) -> list[JobCommand]:
    """Take a checkpoint from trigger to manifest, all at one time; what follows the manifest."""
    it.on_trigger_timer(id, at)
    it.on_acknowledged(acknowledged(id, A), at)
    it.on_acknowledged(acknowledged(id, B), at)
    return it.on_manifest_stored(id, at)


# Triggers


def test_the_first_checkpoint_comes_one_interval_after_the_start() -> None:
    made = CheckpointCoordinator("j", GENERATION, 7, SETTINGS, VERTICES, SUBTASKS)
    assert made.on_running(5.0) == [next_at(7, 15.0)]
    assert made.on_trigger_timer(7, 15.0) == triggered(7, 15.0)


def test_without_an_interval_only_the_final_checkpoint_is_taken() -> None:
    made = CheckpointCoordinator(
        "j", GENERATION, 1, replace(SETTINGS, interval_s=None), VERTICES, SUBTASKS
    )
    assert made.on_running(0.0) == []
    assert made.on_trigger_timer(1, 100.0) == []
    assert made.on_drained(A, 5.0) == []
    assert made.on_drained(B, 6.0) == triggered(1, 6.0)


def test_a_timer_that_is_early_or_of_another_checkpoint_triggers_nothing() -> None:
    it = coordinator()
    assert it.on_trigger_timer(1, 9.9) == []
    assert it.on_trigger_timer(2, 10.0) == []
    assert it.on_trigger_timer(1, 10.0) == triggered(1, 10.0)
    assert it.on_trigger_timer(1, 10.0) == []


def test_no_timer_triggers_while_a_checkpoint_is_under_way() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    assert it.on_trigger_timer(2, 30.0) == []
    it.on_acknowledged(acknowledged(1, A), 31.0)
    it.on_acknowledged(acknowledged(1, B), 31.0)
    assert it.on_trigger_timer(2, 32.0) == []


# Completion


def test_a_checkpoint_is_stored_once_the_last_subtask_has_acknowledged() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    assert it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 11.0) == []
    found = manifest(1, 10.0, 12.0, handles(1, "x"), acknowledged_after=(2.0, 1.0))
    assert it.on_acknowledged(acknowledged(1, A), 12.0) == [StoreManifest(found)]


def test_commit_history_and_cleanup_follow_the_manifest_and_the_next_timer_them() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 12.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 12.0)
    found = manifest(1, 10.0, 12.0, handles(1, "x"), acknowledged_after=(2.0, 2.0))
    assert it.on_manifest_stored(1, 13.0) == stored(found, next_at(2, 20.0))


def test_a_subtask_that_acknowledges_twice_counts_once() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    assert it.on_acknowledged(acknowledged(1, A), 11.0) == []
    assert it.on_acknowledged(acknowledged(1, A), 11.0) == []
    (store,) = it.on_acknowledged(acknowledged(1, B), 12.0)
    assert isinstance(store, StoreManifest)


def test_a_manifest_that_nobody_waits_for_is_ignored() -> None:
    it = coordinator()
    assert it.on_manifest_stored(1, 5.0) == []
    assert it.on_manifest_refused(1, "why", 5.0) == []


def test_a_checkpoint_that_took_longer_than_the_interval_is_followed_at_once() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 45.0)
    it.on_acknowledged(acknowledged(1, B), 45.0)
    assert it.on_manifest_stored(1, 45.0)[-1] == next_at(2, 45.0)


def test_the_minimum_pause_counts_from_the_end_of_the_last_checkpoint() -> None:
    it = coordinator(min_pause_s=8.0)
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 15.0)
    it.on_acknowledged(acknowledged(1, B), 15.0)
    assert it.on_manifest_stored(1, 16.0)[-1] == next_at(2, 24.0)
    short = coordinator(min_pause_s=1.0)
    assert complete(short, 1, 10.0)[-1] == next_at(2, 20.0)


# Failures


def test_a_checkpoint_expires_and_the_next_is_planned() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 11.0)
    assert it.on_expired(1, 69.9) == []
    assert it.on_expired(1, 70.0) == [
        AbortCheckpoint(GENERATION, 1),
        RecordHistory(failure(1, "expired after 60 s with 1 subtasks missing", 10.0, 70.0)),
        next_at(2, 70.0),
    ]


def test_expiry_means_nothing_to_a_checkpoint_that_is_being_stored_or_over() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 11.0)
    it.on_acknowledged(acknowledged(1, B), 11.0)
    assert it.on_expired(1, 70.0) == []
    it.on_manifest_stored(1, 71.0)
    assert it.on_expired(1, 72.0) == []


def test_a_subtask_that_declines_ends_the_checkpoint() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    assert it.on_declined(declined(1, A), 12.0) == [
        AbortCheckpoint(GENERATION, 1),
        RecordHistory(failure(1, "declined: disk full", 10.0, 12.0)),
        next_at(2, 20.0),
    ]
    assert it.on_declined(declined(1, B), 13.0) == []


def test_a_manifest_that_was_refused_fails_the_checkpoint_without_an_abort() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 11.0)
    it.on_acknowledged(acknowledged(1, B), 11.0)
    assert it.on_manifest_refused(1, "storage is away", 14.0) == [
        RecordHistory(failure(1, "storage is away", 10.0, 14.0)),
        next_at(2, 20.0),
    ]


def fail(it: CheckpointCoordinator, id: int, at: float) -> list[JobCommand]:
    it.on_trigger_timer(id, at)
    return it.on_declined(declined(id, A), at)


def test_more_failures_in_a_row_than_tolerated_are_too_many() -> None:
    it = coordinator()
    fail(it, 1, 10.0)
    fail(it, 2, 20.0)
    assert it.too_many_failures is None
    last = fail(it, 3, 30.0)
    assert it.too_many_failures == "3 checkpoints in a row failed"
    assert last == [
        AbortCheckpoint(GENERATION, 3),
        RecordHistory(failure(3, "declined: disk full", 30.0, 30.0)),
    ]


def test_a_completed_checkpoint_forgives_the_failures_before() -> None:
    it = coordinator()
    fail(it, 1, 10.0)
    fail(it, 2, 20.0)
    complete(it, 3, 30.0)
    fail(it, 4, 40.0)
    fail(it, 5, 50.0)
    assert it.too_many_failures is None


def test_nothing_is_tolerated_if_the_user_says_so() -> None:
    it = coordinator(tolerable_failures=0)
    fail(it, 1, 10.0)
    assert it.too_many_failures == "1 checkpoints in a row failed"


def test_the_end_of_the_generation_fails_what_is_pending() -> None:
    it = coordinator()
    assert it.on_generation_ended("worker died", 5.0) == []
    it.on_trigger_timer(1, 10.0)
    assert it.on_generation_ended("worker died", 12.0) == [
        RecordHistory(failure(1, "worker died", 10.0, 12.0))
    ]
    assert it.on_generation_ended("worker died", 13.0) == []


def test_the_end_of_the_generation_says_nothing_of_a_manifest_under_way() -> None:
    """It may well come to exist: its fate is read from storage by the next generation."""
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 11.0)
    it.on_acknowledged(acknowledged(1, B), 11.0)
    assert it.on_generation_ended("worker died", 12.0) == []


# Handles that are carried


def store_next(it: CheckpointCoordinator, id: int, at: float) -> Manifest:
    """The manifest of a checkpoint to which the subtasks themselves add nothing."""
    it.on_trigger_timer(id, at)
    it.on_acknowledged(acknowledged(id, A), at)
    (store,) = it.on_acknowledged(acknowledged(id, B), at)
    assert isinstance(store, StoreManifest)
    return store.manifest


def test_output_of_an_expired_checkpoint_goes_into_the_next_manifest() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 11.0)
    it.on_expired(1, 70.0)
    assert store_next(it, 2, 70.0) == manifest(2, 70.0, 70.0, handles(1, "x"))


def test_output_that_comes_with_a_decline_goes_into_the_next_manifest() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_declined(declined(1, B, handles(1, "x")), 11.0)
    assert store_next(it, 2, 20.0).sink_handles == (handles(1, "x"),)


def test_output_that_is_acknowledged_too_late_goes_into_the_next_manifest() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_expired(1, 70.0)
    assert it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 71.0) == []
    assert store_next(it, 2, 80.0).sink_handles == (handles(1, "x"),)


def test_output_of_a_refused_manifest_goes_into_the_next() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 11.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 11.0)
    it.on_manifest_refused(1, "why", 12.0)
    assert store_next(it, 2, 20.0).sink_handles == (handles(1, "x"),)


def test_handles_stay_in_the_manifests_until_a_commit_has_succeeded() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 10.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 10.0)
    it.on_manifest_stored(1, 10.0)
    assert store_next(it, 2, 20.0).sink_handles == (handles(1, "x"),)
    it.on_manifest_stored(2, 20.0)
    it.on_committed(2)
    assert store_next(it, 3, 30.0).sink_handles == ()


def test_a_commit_clears_only_what_its_checkpoint_held() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 10.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 10.0)
    it.on_manifest_stored(1, 10.0)
    it.on_trigger_timer(2, 20.0)
    it.on_declined(declined(2, B, handles(2, "y")), 20.0)
    it.on_committed(1)
    assert store_next(it, 3, 30.0).sink_handles == (handles(2, "y"),)


def test_handles_of_one_checkpoint_are_in_order_of_sink_and_subtask() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    other = replace(handles(1, "z"), uid="a")
    it.on_acknowledged(acknowledged(1, B, handles(1, "x"), handles(0, "w")), 10.0)
    (store,) = it.on_acknowledged(acknowledged(1, A, other), 10.0)
    assert isinstance(store, StoreManifest)
    assert store.manifest.sink_handles == (handles(0, "w"), other, handles(1, "x"))


# Commits that fail


def commit_at(id: int, at: float) -> SetTimer:
    return SetTimer(Timer(TimerKind.COMMIT, id), pytest.approx(at))


def test_a_commit_that_failed_is_tried_again_ever_later() -> None:
    it = coordinator(tolerable_failures=10)
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 10.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 10.0)
    it.on_manifest_stored(1, 10.0)
    assert it.on_commit_failed(1, 10.0) == [commit_at(1, 10.2)]
    assert it.on_commit_timer(1) == [CommitHandles(1, (handles(1, "x"),))]
    assert it.on_commit_failed(1, 11.0) == [commit_at(1, 11.4)]
    for _ in range(6):
        again = it.on_commit_failed(1, 20.0)
    assert again == [commit_at(1, 30.0)]


def test_a_commit_is_not_tried_again_once_a_later_one_has_succeeded() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_acknowledged(acknowledged(1, A), 10.0)
    it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 10.0)
    it.on_manifest_stored(1, 10.0)
    it.on_commit_failed(1, 10.0)
    complete(it, 2, 20.0)
    it.on_committed(2)
    assert it.on_commit_timer(1) == []


def test_too_many_commits_that_failed_in_a_row_are_too_many() -> None:
    it = coordinator()
    complete(it, 1, 10.0)
    for _ in range(2):
        it.on_commit_failed(1, 10.0)
    assert it.too_many_failures is None
    it.on_commit_failed(1, 10.0)
    assert it.too_many_failures == "3 commits in a row failed"
    it.on_committed(1)
    assert it.too_many_failures is None


# The final checkpoint


def test_the_final_checkpoint_follows_the_last_drained_subtask() -> None:
    it = coordinator()
    assert it.on_drained(A, 3.0) == []
    assert it.on_drained(B, 4.0) == triggered(1, 4.0)
    it.on_acknowledged(acknowledged(1, A), 5.0)
    found = manifest(1, 4.0, 5.0, handles(1, "x"), final=True, acknowledged_after=(1.0, 1.0))
    assert it.on_acknowledged(acknowledged(1, B, handles(1, "x")), 5.0) == [StoreManifest(found)]
    assert it.on_manifest_stored(1, 6.0) == stored(found)
    assert not it.final_committed
    it.on_committed(1)
    assert it.final_committed


def test_a_checkpoint_that_began_before_the_end_of_input_is_not_the_final_one() -> None:
    it = coordinator()
    it.on_trigger_timer(1, 10.0)
    it.on_drained(A, 11.0)
    assert it.on_drained(B, 11.0) == []
    it.on_acknowledged(acknowledged(1, A), 12.0)
    it.on_acknowledged(acknowledged(1, B), 12.0)
    found = manifest(1, 10.0, 12.0, acknowledged_after=(2.0, 2.0))
    assert it.on_manifest_stored(1, 13.0) == stored(found, *triggered(2, 13.0))
    it.on_committed(1)
    assert not it.final_committed


def test_a_final_checkpoint_that_fails_is_tried_again_ever_later() -> None:
    it = coordinator(tolerable_failures=10)
    it.on_drained(A, 0.0)
    it.on_drained(B, 0.0)
    for id, delay, at in ((1, 0.2, 10.0), (2, 0.4, 20.0), (3, 0.8, 30.0)):
        *_, timer = it.on_declined(declined(id, A), at)
        assert timer == next_at(id + 1, pytest.approx(at + delay))  # type: ignore[arg-type]
        assert it.on_trigger_timer(id + 1, at + delay) == triggered(id + 1, at + delay)


def test_after_the_final_checkpoint_there_is_no_other() -> None:
    it = coordinator()
    it.on_drained(A, 0.0)
    it.on_drained(B, 0.0)
    it.on_acknowledged(acknowledged(1, A), 1.0)
    it.on_acknowledged(acknowledged(1, B), 1.0)
    it.on_manifest_stored(1, 1.0)
    assert it.on_trigger_timer(2, 100.0) == []


def test_a_final_commit_that_failed_is_tried_again_even_if_it_holds_nothing() -> None:
    it = coordinator()
    it.on_drained(A, 0.0)
    it.on_drained(B, 0.0)
    it.on_acknowledged(acknowledged(1, A), 1.0)
    it.on_acknowledged(acknowledged(1, B), 1.0)
    it.on_manifest_stored(1, 1.0)
    it.on_commit_failed(1, 1.0)
    assert it.on_commit_timer(1) == [CommitHandles(1, ())]
    it.on_committed(1)
    assert it.final_committed
