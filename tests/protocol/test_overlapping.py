"""Several checkpoints under way at the coordinator: the exact commands, and what each manifest holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from minirt.errors import StorageError
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    CommitHandles,
    JobCommand,
    ManifestRefused,
    RecordHistory,
    SetTimer,
    StoreManifest,
)
from minirt.protocol.manifest import Manifest
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    TriggerCheckpoint,
)
from tests.campaigns import sampled
from tests.protocol.overlapping import SETTINGS, Job, begun, next_at, two_under_way
from tests.protocol.parts import SINK, SOURCE, declined, handles

LOST = CheckpointFailure(CheckpointFailureReason.GENERATION_FAILED, "a worker died")


def without_history(commands: Sequence[JobCommand]) -> list[JobCommand]:
    return [command for command in commands if not isinstance(command, RecordHistory)]


def failed(commands: Sequence[JobCommand]) -> list[tuple[int, str]]:
    return [
        (command.report.checkpoint_id, str(command.report.failure))
        for command in commands
        if isinstance(command, RecordHistory)
    ]


# When they begin.


def test_the_next_one_begins_an_interval_later_whatever_becomes_of_the_one_before() -> None:
    job = Job()
    assert job.trigger(1, 10.0) == [*begun(1, 10.0, None), next_at(2, 20.0)]
    assert job.trigger(2, 19.9) == []
    assert job.trigger(2, 20.0) == begun(2, 20.0, 1)
    assert job.under_way == [1, 2]
    assert job.trigger(3, 30.0) == []


def test_with_as_many_as_allowed_the_next_one_waits_until_one_is_over_and_records_had_their_share() -> (
    None
):
    """There was no room for it from 20 to 33, so there is none begun until 46."""
    job = two_under_way()
    assert job.complete(1, 33.0)[-1] == next_at(3, 46.0)
    assert job.trigger(3, 45.9) == []
    assert job.trigger(3, 46.0) == begun(3, 46.0, 2)
    assert job.complete(2, 47.0)[-1] == next_at(4, 56.0)


def test_one_at_a_time_is_the_default() -> None:
    job = Job(replace(SETTINGS, max_concurrent=1))
    assert job.trigger(1, 10.0) == begun(1, 10.0, None)
    assert job.trigger(2, 20.0) == []


@pytest.mark.parametrize(
    "mode", ["unaligned", "aligned_with_timeout", "chandy_lamport", "epoch", "of another package"]
)
def test_other_modes_take_one_at_a_time_whatever_is_allowed(mode: str) -> None:
    job = Job(replace(SETTINGS, mode=mode))
    job.trigger(1, 10.0)
    assert job.trigger(2, 20.0) == []


def test_the_final_checkpoint_comes_after_all_others() -> None:
    job = two_under_way()
    assert job.checkpoints.on_drained(SOURCE, 21.0) == []
    assert job.checkpoints.on_drained(SINK, 21.0) == []
    assert isinstance(job.complete(1, 22.0)[-1], CleanUp)
    assert job.complete(2, 23.0)[-2:] == begun(3, 23.0, None)
    assert job.whole(3, 24.0).kind == "final"


def test_the_final_checkpoint_follows_one_that_failed_as_well() -> None:
    job = two_under_way()
    job.checkpoints.on_drained(SOURCE, 21.0)
    job.checkpoints.on_drained(SINK, 21.0)
    job.complete(1, 22.0)
    assert isinstance(job.checkpoints.on_declined(declined(2, SINK), 23.0)[-1], SetTimer)
    assert job.trigger(3, 24.0) == begun(3, 24.0, None)
    assert job.whole(3, 24.0).kind == "final"


# What is committed with which.


def test_a_manifest_holds_what_the_one_before_has_not_committed_yet() -> None:
    job = two_under_way()
    assert job.whole(1, 21.0, handles(1)).sink_handles == (handles(1),)
    assert job.whole(2, 22.0, handles(2)).sink_handles == (handles(1), handles(2))
    assert job.stored(1, 23.0)[0] == CommitHandles(1, (handles(1),))
    assert job.stored(2, 24.0)[0] == CommitHandles(2, (handles(1), handles(2)))
    job.checkpoints.on_committed(1, 25.0)
    job.trigger(3, 30.0)
    assert job.whole(3, 31.0).sink_handles == (handles(2),)


def test_parts_of_two_may_come_mixed() -> None:
    job = two_under_way()
    assert job.hear(1, SINK, 21.0, handles(1)) == []
    assert job.hear(2, SINK, 21.0, handles(2)) == []
    [first] = job.hear(1, SOURCE, 22.0)
    [second] = job.hear(2, SOURCE, 22.0)
    assert isinstance(first, StoreManifest)
    assert isinstance(second, StoreManifest)
    assert first.manifest.sink_handles == (handles(1),)
    assert second.manifest.sink_handles == (handles(1), handles(2))


def test_output_of_a_later_one_that_failed_is_not_in_the_manifest_of_an_earlier_one() -> None:
    """A restore from the earlier one would bring these records again."""
    job = two_under_way()
    job.hear(1, SINK, 21.0, handles(1))
    job.checkpoints.on_declined(declined(2, SINK, handles(2)), 22.0)
    [store] = job.hear(1, SOURCE, 23.0)
    assert isinstance(store, StoreManifest)
    assert store.manifest.sink_handles == (handles(1),)
    assert job.stored(1, 24.0)[0] == CommitHandles(1, (handles(1),))
    job.checkpoints.on_committed(1, 25.0)
    job.trigger(3, 30.0)
    assert job.whole(3, 31.0, handles(3)).sink_handles == (handles(2), handles(3))


def test_output_of_one_that_expired_is_taken_over_by_the_later_one() -> None:
    job = two_under_way()
    job.hear(1, SINK, 21.0, handles(1))
    job.hear(2, SINK, 22.0, handles(2))
    job.checkpoints.on_expired(1, 70.0)
    job.hear(1, SOURCE, 71.0)
    [store] = job.hear(2, SOURCE, 72.0)
    assert isinstance(store, StoreManifest)
    assert store.manifest.sink_handles == (handles(1), handles(2))


def test_a_manifest_that_was_refused_leaves_its_output_to_the_later_one() -> None:
    job = two_under_way()
    job.whole(1, 21.0, handles(1))
    refused = ManifestRefused(1, StorageError("full"))
    assert failed(job.checkpoints.on_manifest_refused(refused, 22.0)) == [(1, "full")]
    assert job.under_way == [2]
    assert job.whole(2, 23.0, handles(2)).sink_handles == (handles(1), handles(2))


def test_commits_that_failed_are_tried_again_up_to_their_own_checkpoint() -> None:
    job = two_under_way()
    job.complete(1, 21.0, handles(1))
    job.hear(2, SINK, 22.0, handles(2))
    job.checkpoints.on_declined(declined(2, SOURCE), 23.0)
    assert job.checkpoints.on_commit_timer(1) == [CommitHandles(1, (handles(1),))]


# Failing.


def test_one_expires_and_the_later_one_goes_on() -> None:
    job = two_under_way()
    commands = job.checkpoints.on_expired(1, 70.0)
    assert without_history(commands) == [AbortCheckpoint(1, 1), CleanUp(), next_at(3, 120.0)]
    assert job.under_way == [2]
    job.complete(2, 71.0)
    assert job.checkpoints.too_many_failures is None


def test_a_later_one_fails_and_the_earlier_one_goes_on() -> None:
    job = two_under_way()
    job.hear(1, SINK, 21.0)
    commands = job.checkpoints.on_declined(declined(2, SINK), 21.0)
    assert commands[0] == AbortCheckpoint(1, 2, spared=(1,))
    assert commands[-1] == next_at(3, 30.0)
    assert job.under_way == [1]
    assert job.trigger(3, 30.0) == begun(3, 30.0, 1)
    assert isinstance(job.hear(1, SOURCE, 31.0)[0], StoreManifest)
    assert job.under_way == [1, 3]


def test_one_that_a_subtask_has_passed_over_has_failed() -> None:
    job = two_under_way()
    job.hear(1, SOURCE, 21.0)
    commands = job.hear(2, SINK, 22.0, handles(2))
    assert commands[0] == AbortCheckpoint(1, 1)
    assert failed(commands) == [(1, "passed over: out (1/1) has come to a later one without it")]
    [store] = job.hear(2, SOURCE, 23.0)
    assert isinstance(store, StoreManifest)


def test_a_decline_tells_as_well_which_one_was_passed_over() -> None:
    job = two_under_way()
    job.hear(1, SINK, 21.0, handles(1))
    commands = job.checkpoints.on_declined(declined(2, SOURCE), 22.0)
    assert failed(commands) == [
        (1, "passed over: numbers (1/1) has come to a later one without it"),
        (2, "declined: disk full"),
    ]
    assert [each for each in commands if isinstance(each, AbortCheckpoint)] == [
        AbortCheckpoint(1, 1),
        AbortCheckpoint(1, 2),
    ]


def test_whoever_is_behind_passes_nobody_over() -> None:
    job = two_under_way()
    job.hear(1, SOURCE, 21.0)
    job.hear(2, SOURCE, 21.0)
    assert job.under_way == [1, 2]


def test_all_that_fail_in_a_row_count() -> None:
    job = two_under_way()
    job.checkpoints.on_declined(declined(2, SINK), 21.0)
    job.checkpoints.on_declined(declined(1, SINK), 21.0)
    assert job.checkpoints.too_many_failures is None
    job.trigger(3, 31.0)
    job.checkpoints.on_declined(declined(3, SINK), 32.0)
    assert job.checkpoints.too_many_failures is not None


def test_a_generation_that_ends_fails_all_but_those_that_are_being_stored() -> None:
    job = two_under_way()
    job.whole(1, 21.0)
    job.hear(2, SOURCE, 22.0)
    commands = job.checkpoints.on_generation_ended(LOST, 23.0)
    assert failed(commands) == [(2, "a worker died")]
    assert job.under_way == []


def test_nobody_comes_back_alone_while_any_is_under_way() -> None:
    job = two_under_way()
    assert job.checkpoints.on_gone({SINK}, LOST, 21.0) is None


# Random orders.


def test_whatever_fails_each_output_is_committed_and_none_before_its_checkpoint() -> None:
    """Sinks hand over output with each snapshot; each manifest holds all of it up to its own cut."""
    for seed in range(sampled(400, 10)):
        random = Random(seed)
        job = Job(replace(SETTINGS, max_concurrent=random.randint(2, 4), tolerable_failures=1000))
        committed, now, newest = set[int](), 10.0, 0
        waiting: dict[SubtaskId, list[int]] = {SOURCE: [], SINK: []}
        handed_over: set[int] = set()
        storing: list[Manifest] = []
        for _ in range(60):
            now += random.choice((0.5, 3.0, 10.0))
            commands: list[JobCommand] = []
            match random.choice(("trigger", "part", "part", "part", "manifest", "expire")):
                case "trigger":
                    commands = job.trigger(newest + 1, now)
                case "part":
                    subtask = random.choice((SOURCE, SINK))
                    if waiting[subtask]:
                        id = waiting[subtask].pop(0)
                        held = [handles(id)] if subtask is SINK else []
                        handed_over |= {id} if held else set()
                        if random.random() < 0.2:
                            event = declined(id, subtask, *held)
                            commands = job.checkpoints.on_declined(event, now)
                        else:
                            commands = job.hear(id, subtask, now, *held)
                case "manifest" if storing:
                    id = storing.pop(0).checkpoint_id
                    if random.random() < 0.2:
                        refused = ManifestRefused(id, StorageError("full"))
                        commands = job.checkpoints.on_manifest_refused(refused, now)
                    else:
                        commands = job.stored(id, now)
                case "expire" if job.under_way:
                    commands = job.checkpoints.on_expired(random.choice(job.under_way), now)
            for command in commands:
                match command:
                    case TriggerCheckpoint(barrier=barrier):
                        newest = barrier.checkpoint_id
                        for ids in waiting.values():
                            ids.append(newest)
                    case StoreManifest(manifest):
                        storing.append(manifest)
                        id = manifest.checkpoint_id
                        ids = {held.checkpoint_id for held in manifest.sink_handles}
                        assert all(each <= id for each in ids), seed
                        upto = {each for each in handed_over if each <= id}
                        assert upto - committed <= ids, seed
                    case CommitHandles(id, held):
                        committed |= {each.checkpoint_id for each in held}
                        job.checkpoints.on_committed(id, now)
            assert len(job.under_way) <= 4
