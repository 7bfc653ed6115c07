"""Several checkpoints under way at the coordinator: the exact commands, and what each manifest holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from minirt.errors import StorageError
from minirt.modes import MODES
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    AnswerSavepoint,
    CleanUp,
    CommitHandles,
    JobCommand,
    ManifestRefused,
    PublishSavepoint,
    RecordHistory,
    SavepointPublished,
    SetTimer,
    SnapshotAcknowledged,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.leftovers import Leftovers
from minirt.protocol.manifest import Manifest, Reference, SinkHandles, SnapshotRef
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.subtask_commands import (
    AbortCheckpoint,
    DrainSources,
    ResumeSources,
    TriggerCheckpoint,
)
from tests.campaigns import sampled
from tests.protocol.parts import SINK, SOURCE, VERTICES, acknowledged, declined, handles

SETTINGS = CheckpointSettings(
    "aligned",
    *(10.0, 60.0),
    tolerable_failures=2,
    modes=MODES,
    max_concurrent=2,
)
LOST = CheckpointFailure(CheckpointFailureReason.GENERATION_FAILED, "a worker died")
GO_ON, STOP, DRAIN = Afterwards.GO_ON, Afterwards.STOP, Afterwards.DRAIN


class Job:
    """A coordinator that runs since the time 0, and whoever asks it for savepoints."""

    def __init__(self, settings: CheckpointSettings = SETTINGS) -> None:
        self.savepoints = Savepoints(5)
        self.checkpoints = CheckpointCoordinator(
            "job", 1, 1, settings, VERTICES, frozenset({SOURCE, SINK}), self.savepoints
        )
        self.checkpoints.on_running(0.0)

    def trigger(self, id: int, now: float) -> list[JobCommand]:
        return self.checkpoints.on_trigger_timer(id, now)

    def ask(
        self, id: int, now: float, mode: str = "aligned", afterwards: Afterwards = GO_ON
    ) -> list[JobCommand]:
        request = SavepointRequest(id, mode, None, afterwards)
        return self.savepoints.add(request) or self.checkpoints.on_savepoint_requested(now)

    def hear(self, id: int, subtask: SubtaskId, now: float, *held: SinkHandles) -> list[JobCommand]:
        return self.checkpoints.on_acknowledged(acknowledged(id, subtask, *held), now)

    def whole(self, id: int, now: float, *held: SinkHandles) -> Manifest:
        """All acknowledge, the sink with its handles; the manifest that is to be stored."""
        assert self.hear(id, SOURCE, now) == []
        [store] = self.hear(id, SINK, now, *held)
        assert isinstance(store, StoreManifest)
        return store.manifest

    def stored(self, id: int, now: float) -> list[JobCommand]:
        return self.checkpoints.on_manifest_stored(id, now)

    def complete(self, id: int, now: float, *held: SinkHandles) -> list[JobCommand]:
        self.whole(id, now, *held)
        return self.stored(id, now)

    @property
    def under_way(self) -> list[int]:
        return [one.checkpoint_id for one in self.checkpoints.under_way]


def begun(
    id: int, now: float, oldest_id: int | None, *, mode: str = "aligned", savepoint: bool = False
) -> list[JobCommand]:
    barrier = Barrier(id, mode, now, savepoint, oldest_id)
    return [TriggerCheckpoint(1, barrier), SetTimer(Timer(TimerKind.EXPIRE, id), now + 60.0)]


def next_at(id: int, at: float) -> SetTimer:
    return SetTimer(Timer(TimerKind.TRIGGER, id), at)


def two_under_way() -> Job:
    """Since the times 10 and 20."""
    job = Job()
    job.trigger(1, 10.0)
    job.trigger(2, 20.0)
    return job


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


def test_with_as_many_as_allowed_the_next_one_waits_until_one_is_over() -> None:
    job = two_under_way()
    assert job.complete(1, 33.0)[-1] == next_at(3, 33.0)
    assert job.trigger(3, 33.0) == begun(3, 33.0, 2)
    assert job.complete(2, 34.0)[-1] == next_at(4, 43.0)


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
    assert without_history(commands) == [AbortCheckpoint(1, 1), CleanUp(), next_at(3, 70.0)]
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


# Savepoints.


def answers(commands: Sequence[JobCommand]) -> dict[int, bool]:
    """Which requests are answered, and whether with a savepoint."""
    told = [command for command in commands if isinstance(command, AnswerSavepoint)]
    return {answer.request_id: answer.savepoint is not None for answer in told}


def test_a_savepoint_begins_beside_a_checkpoint_and_a_checkpoint_beside_a_savepoint() -> None:
    job = Job()
    job.trigger(1, 10.0)
    assert job.ask(7, 12.0) == begun(2, 12.0, 1, savepoint=True)
    assert job.complete(1, 13.0)[-1] == next_at(3, 20.0)
    assert job.trigger(3, 20.0) == begun(3, 20.0, 2)
    assert job.under_way == [2, 3]


def test_savepoints_overlap_with_each_other_and_each_is_answered() -> None:
    job = Job()
    assert job.ask(7, 4.0) == [*begun(1, 4.0, None, savepoint=True), next_at(2, 10.0)]
    assert job.ask(8, 5.0) == begun(2, 5.0, 1, savepoint=True)
    assert job.ask(9, 6.0) == []
    job.whole(1, 7.0, handles(1))
    job.whole(2, 7.0, handles(2))
    assert job.stored(1, 8.0)[-2:] == begun(3, 8.0, 2, savepoint=True)
    job.stored(2, 8.0)
    publish = job.checkpoints.on_committed(2, 9.0)
    assert [(type(each), each.manifest.checkpoint_id) for each in publish] == [  # type: ignore[union-attr]
        (PublishSavepoint, 1),
        (PublishSavepoint, 2),
    ]
    published = job.checkpoints.on_savepoint_published
    assert answers(published(SavepointPublished(2, "/there"), 9.0)) == {8: True}
    assert answers(published(SavepointPublished(1, "/there"), 9.0)) == {7: True}
    job.complete(3, 10.0)
    job.checkpoints.on_committed(3, 10.0)
    assert answers(published(SavepointPublished(3, "/there"), 10.0)) == {9: True}


def test_a_savepoint_that_fails_is_answered_alone() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.ask(8, 5.0)
    job.hear(1, SOURCE, 6.0)
    commands = job.checkpoints.on_declined(declined(2, SOURCE), 6.0)
    assert commands[0] == AbortCheckpoint(1, 2, spared=(1,))
    assert answers(commands) == {8: False}
    assert ResumeSources(1) not in commands
    job.hear(1, SINK, 7.0)
    job.stored(1, 7.0)
    assert job.savepoints.uncommitted == {1}


def test_a_savepoint_whose_barriers_overtake_waits_for_all_and_holds_up_the_next() -> None:
    job = two_under_way()
    assert job.ask(7, 21.0, "unaligned") == []
    assert isinstance(job.complete(1, 30.0)[-1], CleanUp)
    assert job.trigger(3, 30.0) == []
    commands = job.complete(2, 31.0)
    assert commands[-2:] == begun(3, 31.0, None, mode="unaligned", savepoint=True)
    assert job.trigger(4, 45.0) == []
    assert job.complete(3, 46.0)[-1] == next_at(4, 46.0)


@pytest.mark.parametrize("afterwards", [STOP, DRAIN])
def test_a_savepoint_that_ends_the_job_waits_for_all_and_is_alone(afterwards: Afterwards) -> None:
    job = two_under_way()
    assert job.ask(7, 21.0, "aligned", afterwards) == []
    job.complete(1, 22.0)
    last = job.complete(2, 23.0)[-1]
    assert isinstance(last, DrainSources if afterwards is DRAIN else SetTimer)
    assert job.ask(8, 24.0) == []
    assert job.under_way == ([] if afterwards is DRAIN else [3])


def test_a_savepoint_that_ends_the_job_waits_for_the_copies_of_others() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.complete(1, 5.0)
    job.checkpoints.on_committed(1, 5.0)
    assert job.ask(8, 6.0, "aligned", STOP) == []
    commands = job.checkpoints.on_savepoint_published(SavepointPublished(1, "/there"), 7.0)
    assert isinstance(commands[1], TriggerCheckpoint)
    assert commands[1].pause


def test_the_files_of_all_that_are_still_to_be_copied_are_kept() -> None:
    job = Job()
    job.ask(7, 4.0)
    job.ask(8, 5.0)
    for id in (1, 2):
        for subtask in (SOURCE, SINK):
            job.checkpoints.on_acknowledged(part(id, subtask), 6.0)
    assert kept(job.stored(1, 7.0)) == {1, 2}
    assert kept(job.stored(2, 7.0)) == {1, 2}


def test_the_files_of_a_savepoint_that_is_being_stored_are_kept_from_an_earlier_clean_up() -> None:
    """Storage may have the manifest of a later checkpoint by the time it cleans up."""
    job = Job(replace(SETTINGS, max_concurrent=3))
    job.trigger(1, 10.0)
    job.ask(7, 11.0)
    job.trigger(3, 20.0)
    for id in (1, 2, 3):
        for subtask in (SOURCE, SINK):
            job.checkpoints.on_acknowledged(part(id, subtask), 21.0)
    assert kept(job.stored(1, 22.0)) == {2}


def kept(commands: Sequence[JobCommand]) -> set[int]:
    """The checkpoints whose files a clean-up spares."""
    [clean_up] = [command for command in commands if isinstance(command, CleanUp)]
    return {key.checkpoint_id for key in clean_up.needed}


# What failed ones leave.


def path(checkpoint_id: int, subtask: SubtaskId) -> str:
    return f"chk-{checkpoint_id:08}-g00000001/v{subtask.vertex}-s{subtask.index}.part"


def part(
    checkpoint_id: int, subtask: SubtaskId, *builds_on: str, file: str | None = None
) -> SnapshotAcknowledged:
    stored = SnapshotRef(
        *(subtask.vertex, subtask.index, file or path(checkpoint_id, subtask), None, 10, 0),
        references=tuple(Reference(older, ("table",)) for older in builds_on),
    )
    return replace(acknowledged(checkpoint_id, subtask), snapshot=stored)


def test_a_file_of_a_later_one_that_failed_stays_when_an_earlier_one_completes() -> None:
    """Two subtasks share it: one does not need it any more, and the other builds on it."""
    shared, leftovers = path(2, SOURCE), Leftovers(1)
    for place, subtask in enumerate((SOURCE, SINK)):
        leftovers.on_part(part(1, subtask), failed=False)
        leftovers.on_part(part(2, subtask, file=f"{shared}@{place}+1"), failed=False)
    leftovers.on_failed(2)
    leftovers.on_part(part(3, SOURCE), failed=False)
    leftovers.on_completed(1)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_part(part(3, SINK, f"{shared}@1+1"), failed=False)
    assert leftovers.take_unneeded() == frozenset()
    leftovers.on_completed(3)
    assert leftovers.take_unneeded() <= {shared}  # The manifest of 3 refers to it.


def test_parts_of_one_that_is_under_way_are_no_leftovers_of_another() -> None:
    leftovers = Leftovers(1)
    leftovers.on_part(part(1, SINK), failed=False)
    leftovers.on_part(part(2, SINK), failed=False)
    leftovers.on_failed(1)
    leftovers.on_part(part(3, SINK), failed=False)
    assert leftovers.take_unneeded() == {path(1, SINK)}


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
