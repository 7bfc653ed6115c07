"""The checkpoints of a job at its coordinator: when, of what parts, and what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from minirt.errors import StorageError
from minirt.protocol.barriers import Barrier, Switch
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    CommitFailed,
    CommitHandles,
    JobCommand,
    ManifestRefused,
    RecordHistory,
    SetTimer,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.manifest import (
    MANIFEST_VERSION,
    ChannelData,
    InFlightRef,
    Manifest,
    SinkHandles,
    SnapshotRef,
    SubtaskStats,
)
from minirt.protocol.reasons import (
    CheckpointFailure,
    CheckpointFailureReason,
)
from minirt.protocol.reports import completed_report
from minirt.protocol.savepoints import Savepoints
from minirt.protocol.stored_watermarks import SubtaskWatermarks
from minirt.protocol.subtask_commands import AbortCheckpoint, TriggerCheckpoint
from tests.protocol.parts import (
    SINK,
    SOURCE,
    VERTICES,
    acknowledged,
    declined,
    handles,
    reference,
    statistics,
    trigger_timer,
)

SETTINGS = CheckpointSettings("aligned", interval_s=10.0, timeout_s=60.0, tolerable_failures=2)


def coordinator(
    settings: CheckpointSettings = SETTINGS,
    subtasks: tuple[SubtaskId, ...] = (SOURCE, SINK),
    next_checkpoint_id: int = 1,
) -> CheckpointCoordinator:
    """One that runs since the time 0."""
    made = CheckpointCoordinator(
        "job", 1, next_checkpoint_id, settings, VERTICES, frozenset(subtasks), Savepoints(3)
    )
    made.on_running(0.0)
    return made


def triggered(checkpoint_id: int, now: float) -> list[JobCommand]:
    return [
        TriggerCheckpoint(1, Barrier(checkpoint_id, "aligned", now)),
        SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), now + 60.0),
    ]


def next_at(checkpoint_id: int, at: float) -> SetTimer:
    return SetTimer(trigger_timer(checkpoint_id), at)


def failed(
    checkpoint_id: int,
    reason: str,
    triggered_at: float,
    now: float,
    *,
    stored: Sequence[SubtaskStats] = (),
    missing: Sequence[str] = ("numbers (1/1)", "out (1/1)"),
    put_off_s: float = 0.0,
) -> dict[str, Any]:
    """What the history on storage remembers of it."""
    times = ("vertex", "subtask", "name", "start_delay_s", "alignment_s", "sync_s", "async_s")
    sizes = ("acknowledged_after_s", "state_bytes", "in_flight_bytes", "processed_bytes")
    names = (*times, *sizes, "unaligned", "local", "age_s", "skipped", "forced")
    parts = [{name: getattr(stats, name) for name in names} for stats in stored]
    return {
        "checkpoint_id": checkpoint_id,
        "generation": 1,
        "mode": "aligned",
        "status": "failed",
        "kind": "checkpoint",
        "reason": reason,
        "triggered_at": triggered_at,
        "duration_s": now - triggered_at,
        **({"put_off_s": put_off_s} if put_off_s else {}),
        "subtasks": [{**part, "switches": [], "channels": []} for part in parts],
        "missing": list(missing),
    }


LOST = CheckpointFailure(CheckpointFailureReason.GENERATION_FAILED, "worker died")


def refused(checkpoint_id: int) -> ManifestRefused:
    return ManifestRefused(checkpoint_id, StorageError("storage is down"))


def told(commands: list[JobCommand]) -> list[object]:
    """The commands, with what the history on storage remembers in place of the order to record it."""
    return [
        command.report.to_plain() if isinstance(command, RecordHistory) else command
        for command in commands
    ]


def unneeded(checkpoint_id: int, subtask: SubtaskId) -> CleanUp:
    """Deletes what a subtask may have stored before it declined."""
    path = f"chk-{checkpoint_id:08}-g00000001/v{subtask.vertex}-s{subtask.index}"
    return CleanUp(unneeded=frozenset([f"{path}.part", f"{path}.in-flight"]))


def acknowledge_all(
    checkpoints: CheckpointCoordinator, checkpoint_id: int, now: float, *held: SinkHandles
) -> Manifest:
    """Both subtasks acknowledge, the sink with its handles; returns what is to be stored."""
    assert checkpoints.on_acknowledged(acknowledged(checkpoint_id, SOURCE), now) == []
    [store] = checkpoints.on_acknowledged(acknowledged(checkpoint_id, SINK, *held), now)
    assert isinstance(store, StoreManifest)
    return store.manifest


def take(
    checkpoints: CheckpointCoordinator, checkpoint_id: int, now: float, *held: SinkHandles
) -> Manifest:
    """A whole checkpoint up to the storing of its manifest."""
    assert checkpoints.on_trigger_timer(checkpoint_id, now) == triggered(checkpoint_id, now)
    return acknowledge_all(checkpoints, checkpoint_id, now, *held)


def drain(checkpoints: CheckpointCoordinator, now: float) -> list[JobCommand]:
    return checkpoints.on_drained(SOURCE, now) + checkpoints.on_drained(SINK, now)


# When checkpoints are taken.


def test_first_checkpoint_is_due_one_interval_after_the_start() -> None:
    made = CheckpointCoordinator(
        "job", 1, 4, SETTINGS, VERTICES, frozenset({SOURCE}), Savepoints(3)
    )
    assert made.on_running(5.0) == [next_at(4, 15.0)]
    assert made.on_trigger_timer(4, 15.0) == triggered(4, 15.0)


def test_without_interval_only_the_drained_job_takes_a_checkpoint() -> None:
    made = CheckpointCoordinator(
        "job",
        1,
        1,
        replace(SETTINGS, interval_s=None),
        VERTICES,
        frozenset({SOURCE}),
        Savepoints(3),
    )
    assert made.on_running(5.0) == []
    assert made.on_drained(SOURCE, 7.0) == triggered(1, 7.0)


def test_next_checkpoint_is_due_one_interval_after_the_trigger_of_the_last() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    assert checkpoints.on_manifest_stored(1, 13.0)[-1] == next_at(2, 20.0)


def test_after_a_long_checkpoint_records_get_as_much_time_as_it_took() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    stored = checkpoints.on_manifest_stored(1, 25.0)
    assert stored[-1] == next_at(2, 40.0)
    assert put_off(stored) == [15.0]
    assert checkpoints.on_trigger_timer(2, 39.9) == []
    take(checkpoints, 2, 40.0)
    stored = checkpoints.on_manifest_stored(2, 46.0)
    assert stored[-1] == next_at(3, 52.0)
    assert put_off(stored) == [2.0]


def put_off(commands: Sequence[JobCommand]) -> list[float]:
    return [one.report.put_off_s for one in commands if isinstance(one, RecordHistory)]


def test_min_pause_runs_from_the_end_of_the_last_checkpoint() -> None:
    checkpoints = coordinator(replace(SETTINGS, min_pause_s=8.0))
    take(checkpoints, 1, 10.0)
    assert checkpoints.on_manifest_stored(1, 15.0)[-1] == next_at(2, 23.0)
    assert checkpoints.on_trigger_timer(2, 22.0) == []
    checkpoints.on_trigger_timer(2, 23.0)
    assert checkpoints.on_declined(declined(2, SINK), 24.0)[-1] == next_at(3, 33.0)


def test_timers_that_are_early_or_of_another_checkpoint_are_ignored() -> None:
    checkpoints = coordinator(next_checkpoint_id=5)
    assert checkpoints.on_trigger_timer(5, 9.9) == []
    assert checkpoints.on_trigger_timer(4, 10.0) == []
    assert checkpoints.on_trigger_timer(6, 10.0) == []
    assert checkpoints.on_trigger_timer(5, 10.0) == triggered(5, 10.0)
    assert checkpoints.on_trigger_timer(5, 11.0) == []


def test_timer_of_an_earlier_generation_triggers_nothing_before_all_run() -> None:
    made = CheckpointCoordinator(
        "job", 2, 1, SETTINGS, VERTICES, frozenset({SOURCE}), Savepoints(3)
    )
    assert made.on_trigger_timer(1, 100.0) == []


def test_no_checkpoint_begins_while_one_is_pending_or_storing() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    assert checkpoints.on_trigger_timer(2, 30.0) == []


# Completing.


def test_manifest_is_stored_once_all_parts_are_there_in_their_order() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    in_flight = InFlightRef(reference(SINK, 1), ())
    of_sink, of_source = SubtaskWatermarks("out", 0, 4), SubtaskWatermarks("in", 0, 5)
    sink = replace(acknowledged(1, SINK, handles(1)), in_flight=in_flight, watermarks=of_sink)
    assert checkpoints.on_acknowledged(sink, 11.0) == []
    source = replace(acknowledged(1, SOURCE), watermarks=of_source)
    assert checkpoints.on_acknowledged(source, 12.0)[0] == StoreManifest(
        Manifest(
            version=MANIFEST_VERSION,
            job="job",
            checkpoint_id=1,
            generation=1,
            mode="aligned",
            kind="checkpoint",
            triggered_at=10.0,
            completed_at=12.0,
            vertices=VERTICES,
            snapshots=(reference(SOURCE, 1), reference(SINK, 1)),
            sink_handles=(handles(1),),
            stats=(statistics(SOURCE, 2.0), statistics(SINK, 1.0)),
            in_flight=(in_flight,),
            watermarks=(of_source, of_sink),
        )
    )


def test_stateless_subtask_brings_no_snapshot() -> None:
    checkpoints = coordinator(subtasks=(SOURCE,))
    checkpoints.on_trigger_timer(1, 10.0)
    part = replace(acknowledged(1, SOURCE), snapshot=None)
    [store] = checkpoints.on_acknowledged(part, 11.0)
    assert isinstance(store, StoreManifest)
    assert store.manifest.snapshots == ()
    assert store.manifest.stats == (statistics(SOURCE, 1.0),)


def test_stored_manifest_is_committed_recorded_and_cleaned_up_after() -> None:
    checkpoints = coordinator()
    manifest = take(checkpoints, 1, 10.0, handles(1))
    assert checkpoints.on_manifest_stored(1, 12.0) == [
        CommitHandles(1, (handles(1),)),
        RecordHistory(completed_report(manifest)),
        CleanUp(),
        next_at(2, 20.0),
    ]
    assert checkpoints.on_manifest_stored(1, 12.0) == []


def test_manifest_of_another_checkpoint_says_nothing_of_the_one_under_way() -> None:
    checkpoints = coordinator(next_checkpoint_id=5)
    take(checkpoints, 5, 10.0)
    assert checkpoints.on_manifest_stored(4, 12.0) == []
    assert checkpoints.on_manifest_refused(refused(4), 12.0) == []
    assert checkpoints.on_manifest_stored(5, 13.0) != []


def test_manifest_answer_for_a_checkpoint_without_manifest_leaves_it_pending() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    assert checkpoints.on_manifest_stored(1, 11.0) == []
    assert checkpoints.on_manifest_refused(refused(1), 11.0) == []
    acknowledge_all(checkpoints, 1, 12.0)


def test_history_of_a_completed_checkpoint_tells_how_it_went() -> None:
    manifest = take(coordinator(), 1, 10.0)
    entry = completed_report(replace(manifest, completed_at=12.5)).to_plain()
    subtasks = entry.pop("subtasks")
    assert entry == {
        "checkpoint_id": 1,
        "generation": 1,
        "mode": "aligned",
        "status": "completed",
        "kind": "checkpoint",
        "triggered_at": 10.0,
        "duration_s": 2.5,
        "bytes": 20,
    }
    assert isinstance(subtasks, list)
    assert subtasks[1] == {
        "name": "1",
        "vertex": 1,
        "subtask": 0,
        "start_delay_s": 0.1,
        "alignment_s": 0.2,
        "sync_s": 0.3,
        "async_s": 0.4,
        "acknowledged_after_s": 0.0,
        "state_bytes": 10,
        "in_flight_bytes": 0,
        "processed_bytes": 5,
        "unaligned": False,
        "switches": [],
        "local": 0,
        "age_s": 0.0,
        "skipped": 0,
        "forced": 0,
        "channels": [],
    }


def test_history_tells_each_switch_and_the_bytes_of_each_captured_channel() -> None:
    manifest = take(coordinator(), 1, 10.0)
    switch = Switch("outputs", 1.5, "age 1.500 s passed the timeout 1 s")
    stats = [replace(each, switches=(switch,)) for each in manifest.stats]
    channels = (
        ChannelData("a > b:0", "hash", 0, 1, 2, "out", 30, records=4),
        ChannelData("a > b:0", "hash", 0, 0, 2, "out", 12),
    )
    captured_by = manifest.stats[1]
    stored = SnapshotRef(captured_by.vertex, captured_by.subtask, "here", None, 42, 0)
    in_flight = (InFlightRef(stored, channels),)
    report = completed_report(replace(manifest, stats=tuple(stats), in_flight=in_flight))
    entry = report.to_plain()
    subtasks = entry["subtasks"]
    assert isinstance(subtasks, list)
    first, second_subtask = subtasks
    assert first["switches"] == [
        {"where": "outputs", "after_s": 1.5, "reason": "age 1.500 s passed the timeout 1 s"}
    ]
    assert first["channels"] == []
    assert second_subtask["channels"] == [
        {"link": "a > b:0", "sender": 0, "receiver": 1, "side": "out", "bytes": 30, "records": 4},
        {
            "link": "a > b:0",
            "sender": 0,
            "receiver": 0,
            "side": "out",
            "bytes": 12,
            "records": None,
        },
    ]


# Failing.


def test_checkpoint_that_takes_too_long_is_given_up() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    checkpoints.on_acknowledged(acknowledged(1, SOURCE), 11.0)
    assert checkpoints.on_expired(1, 69.9) == []
    assert checkpoints.on_expired(2, 70.0) == []
    assert told(checkpoints.on_expired(1, 70.0)) == [
        AbortCheckpoint(1, 1),
        failed(
            1,
            "expired after 60 s with 1 of 2 subtasks missing: out (1/1)",
            *(10.0, 70.0),
            stored=[statistics(SOURCE, 1.0)],
            missing=["out (1/1)"],
            put_off_s=60.0,
        ),
        CleanUp(),
        next_at(2, 130.0),
    ]
    assert checkpoints.on_expired(1, 71.0) == []


def test_checkpoint_whose_manifest_is_being_stored_does_not_expire() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    assert told(checkpoints.on_expired(1, 70.0)) == []
    assert checkpoints.on_manifest_stored(1, 71.0) != []


def test_declined_checkpoint_is_given_up_at_once_and_only_once() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    assert told(checkpoints.on_declined(declined(1, SINK), 11.0)) == [
        AbortCheckpoint(1, 1),
        failed(1, "declined: disk full", 10.0, 11.0),
        unneeded(1, SINK),
        next_at(2, 20.0),
    ]
    assert checkpoints.on_declined(declined(1, SOURCE), 12.0) == []
    assert checkpoints.too_many_failures is None


def test_refused_manifest_fails_the_checkpoint_without_an_abort() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    assert told(checkpoints.on_manifest_refused(refused(1), 12.0)) == [
        failed(
            *(1, "storage is down", 10.0, 12.0),
            stored=[statistics(SOURCE, 0.0), statistics(SINK, 0.0)],
            missing=[],
        ),
        CleanUp(),
        next_at(2, 20.0),
    ]


def test_end_of_the_generation_fails_the_checkpoint_that_is_pending() -> None:
    checkpoints = coordinator()
    assert checkpoints.on_generation_ended(LOST, 5.0) == []
    checkpoints.on_trigger_timer(1, 10.0)
    assert told(checkpoints.on_generation_ended(LOST, 12.0)) == [
        failed(1, "worker died", 10.0, 12.0)
    ]


def test_end_of_the_generation_does_not_call_a_checkpoint_failed_that_may_get_stored() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0)
    assert checkpoints.on_generation_ended(LOST, 12.0) == []


def test_more_failures_in_a_row_than_tolerated_are_too_many_and_plan_nothing() -> None:
    checkpoints = coordinator()
    for checkpoint_id in (1, 2):
        checkpoints.on_trigger_timer(checkpoint_id, 10.0 * checkpoint_id)
        checkpoints.on_declined(declined(checkpoint_id, SINK), 10.0 * checkpoint_id)
    assert checkpoints.too_many_failures is None
    checkpoints.on_trigger_timer(3, 30.0)
    commands = checkpoints.on_declined(declined(3, SINK), 30.0)
    assert told(commands) == [
        AbortCheckpoint(1, 3),
        failed(3, "declined: disk full", 30.0, 30.0),
        unneeded(3, SINK),
    ]
    reason = "3 checkpoints in a row failed, at last: declined: disk full"
    assert str(checkpoints.too_many_failures) == reason


def test_completed_checkpoint_forgives_the_failures_before_it() -> None:
    checkpoints = coordinator(replace(SETTINGS, tolerable_failures=1))
    for place, checkpoint_id in enumerate((1, 3, 5), start=1):
        now = 20.0 * place
        checkpoints.on_trigger_timer(checkpoint_id, now)
        checkpoints.on_declined(declined(checkpoint_id, SINK), now)
        take(checkpoints, checkpoint_id + 1, now + 10.0)
        checkpoints.on_manifest_stored(checkpoint_id + 1, now + 10.0)
    assert checkpoints.too_many_failures is None


# Handles of sinks: none is lost with the checkpoint that it was prepared for.


def test_handles_of_a_declined_checkpoint_are_carried_into_the_next_manifest() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    checkpoints.on_acknowledged(acknowledged(1, SINK, handles(1)), 11.0)
    checkpoints.on_declined(declined(1, SOURCE, handles(1, uid="log")), 11.0)
    manifest = take(checkpoints, 2, 20.0, handles(2))
    assert sorted(held.uid for held in manifest.sink_handles) == ["log", "out", "out"]
    assert manifest.sink_handles[-1] == handles(2)


def test_handles_of_an_expired_checkpoint_and_those_that_come_late_are_carried() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    checkpoints.on_acknowledged(acknowledged(1, SOURCE, handles(1, uid="log")), 11.0)
    checkpoints.on_expired(1, 70.0)
    assert checkpoints.on_acknowledged(acknowledged(1, SINK, handles(1)), 71.0) == []
    manifest = take(checkpoints, 2, 130.0, handles(2))
    assert manifest.sink_handles == (handles(1, uid="log"), handles(1), handles(2))


def test_late_acknowledgement_is_no_part_of_the_next_checkpoint() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    checkpoints.on_expired(1, 70.0)
    checkpoints.on_trigger_timer(2, 130.0)
    checkpoints.on_acknowledged(acknowledged(1, SINK, handles(1)), 131.0)
    checkpoints.on_declined(declined(1, SOURCE, handles(1, uid="log")), 131.0)
    manifest = acknowledge_all(checkpoints, 2, 132.0)
    assert manifest.snapshots == (reference(SOURCE, 2), reference(SINK, 2))
    assert manifest.sink_handles == (handles(1), handles(1, uid="log"))


def test_handles_of_a_refused_manifest_are_carried_once() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_refused(refused(1), 12.0)
    assert take(checkpoints, 2, 20.0, handles(2)).sink_handles == (handles(1), handles(2))


def test_handles_stay_in_every_manifest_until_they_are_committed() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    assert take(checkpoints, 2, 20.0, handles(2)).sink_handles == (handles(1), handles(2))
    checkpoints.on_committed(1, 0.0)
    commit = checkpoints.on_manifest_stored(2, 21.0)[0]
    assert commit == CommitHandles(2, (handles(1), handles(2)))
    checkpoints.on_committed(2, 0.0)
    assert take(checkpoints, 3, 30.0, handles(3)).sink_handles == (handles(3),)


def test_commit_leaves_what_later_checkpoints_prepared() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    checkpoints.on_trigger_timer(2, 20.0)
    checkpoints.on_declined(declined(2, SINK, handles(2)), 21.0)
    checkpoints.on_committed(1, 0.0)
    assert take(checkpoints, 3, 30.0).sink_handles == (handles(2),)


def test_handles_of_a_checkpoint_are_in_the_order_of_age_uid_and_subtask() -> None:
    subtasks = (SubtaskId(1, 0), SubtaskId(1, 1), SubtaskId(2, 0))
    checkpoints = coordinator(subtasks=subtasks)
    checkpoints.on_trigger_timer(1, 10.0)
    parts = (
        (subtasks[1], (handles(1, 1, "b"), handles(0, 1, "b"))),
        (subtasks[2], (handles(1, 0, "a"),)),
        (subtasks[0], (handles(1, 0, "b"),)),
    )
    for subtask, held in parts:
        commands = checkpoints.on_acknowledged(acknowledged(1, subtask, *held), 11.0)
    assert isinstance(commands[0], StoreManifest)
    assert commands[0].manifest.sink_handles == (
        handles(0, 1, "b"),
        handles(1, 0, "a"),
        handles(1, 0, "b"),
        handles(1, 1, "b"),
    )


# Committing again.


def test_failed_commit_is_tried_again_after_growing_delays() -> None:
    checkpoints = coordinator(replace(SETTINGS, tolerable_failures=20))
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    delays = []
    for _ in range(8):
        [timer] = checkpoints.on_commit_failed(CommitFailed(1, StorageError("no disk")), 100.0)
        assert isinstance(timer, SetTimer)
        assert timer.timer == Timer(TimerKind.COMMIT, 1)
        delays.append(timer.at - 100.0)
        assert checkpoints.on_commit_timer(1) == [CommitHandles(1, (handles(1),))]
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_commit_that_keeps_failing_is_tried_again_for_as_long_as_is_tolerated() -> None:
    checkpoints = coordinator(replace(SETTINGS, tolerable_failures=5000))
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    for _ in range(5000):
        [timer] = checkpoints.on_commit_failed(CommitFailed(1, StorageError("no disk")), 100.0)
    assert timer == SetTimer(Timer(TimerKind.COMMIT, 1), pytest.approx(110.0))


def test_commit_timer_has_nothing_to_do_once_a_later_commit_has_covered_it() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    checkpoints.on_commit_failed(CommitFailed(1, StorageError("no disk")), 12.0)
    take(checkpoints, 2, 20.0, handles(2))
    checkpoints.on_manifest_stored(2, 21.0)
    assert checkpoints.on_commit_timer(1) == [CommitHandles(1, (handles(1),))]
    checkpoints.on_committed(2, 0.0)
    assert checkpoints.on_commit_timer(1) == []


def test_of_many_failed_commits_one_is_tried_again() -> None:
    """If each went on by itself, all would count as failures in a row."""
    checkpoints = coordinator()
    for number in (1, 2, 3):
        take(checkpoints, number, number * 10.0, handles(number))
        checkpoints.on_manifest_stored(number, number * 10.0 + 1)
        checkpoints.on_commit_failed(CommitFailed(number, StorageError("no disk")), 40.0)
    assert checkpoints.on_commit_timer(1) == checkpoints.on_commit_timer(2) == []
    [again] = checkpoints.on_commit_timer(3)
    assert again == CommitHandles(3, (handles(1), handles(2), handles(3)))


def test_more_failed_commits_in_a_row_than_tolerated_are_too_many() -> None:
    checkpoints = coordinator()
    for _ in range(2):
        checkpoints.on_commit_failed(CommitFailed(1, StorageError("no disk")), 12.0)
    assert checkpoints.too_many_failures is None
    checkpoints.on_committed(1, 0.0)
    for _ in range(3):
        assert checkpoints.too_many_failures is None
        checkpoints.on_commit_failed(CommitFailed(2, StorageError("no disk")), 12.0)
    assert str(checkpoints.too_many_failures) == "3 commits in a row failed, at last: no disk"


# The final checkpoint.


def test_final_checkpoint_comes_once_after_the_last_subtask_is_drained() -> None:
    checkpoints = coordinator()
    assert checkpoints.on_drained(SOURCE, 3.0) == []
    assert checkpoints.on_drained(SINK, 4.0) == triggered(1, 4.0)
    manifest = acknowledge_all(checkpoints, 1, 5.0, handles(1))
    assert manifest.kind == "final"
    assert checkpoints.on_manifest_stored(1, 6.0) == [
        CommitHandles(1, (handles(1),)),
        RecordHistory(completed_report(manifest)),
        CleanUp(),
    ]
    assert not checkpoints.final_committed
    assert checkpoints.on_trigger_timer(2, 50.0) == []
    checkpoints.on_committed(1, 0.0)
    assert checkpoints.final_committed


def test_checkpoint_that_is_pending_when_all_are_drained_is_followed_by_the_final_one() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    assert drain(checkpoints, 11.0) == []
    assert acknowledge_all(checkpoints, 1, 12.0).kind == "checkpoint"
    assert checkpoints.on_manifest_stored(1, 13.0)[-2:] == triggered(2, 13.0)
    checkpoints.on_committed(1, 0.0)
    assert not checkpoints.final_committed
    assert acknowledge_all(checkpoints, 2, 14.0).kind == "final"


def test_final_checkpoint_that_fails_is_tried_again_after_a_growing_delay() -> None:
    checkpoints = coordinator(replace(SETTINGS, interval_s=None))
    assert drain(checkpoints, 1.0) == triggered(1, 1.0)
    assert checkpoints.on_declined(declined(1, SINK, handles(1)), 2.0)[-1] == next_at(2, 2.2)
    assert checkpoints.on_trigger_timer(2, 2.2) == triggered(2, 2.2)
    assert checkpoints.on_declined(declined(2, SINK), 3.0)[-1] == next_at(3, 3.4)
    manifest = take(checkpoints, 3, 3.4)
    assert (manifest.kind, manifest.sink_handles) == ("final", (handles(1),))


def test_pending_checkpoint_that_fails_after_all_are_drained_leads_to_the_final_one() -> None:
    checkpoints = coordinator()
    checkpoints.on_trigger_timer(1, 10.0)
    drain(checkpoints, 11.0)
    assert checkpoints.on_declined(declined(1, SINK), 12.0)[-1] == next_at(2, 12.2)
    assert take(checkpoints, 2, 12.2).kind == "final"


def test_final_commit_that_fails_is_tried_again_even_without_handles() -> None:
    checkpoints = coordinator()
    drain(checkpoints, 1.0)
    acknowledge_all(checkpoints, 1, 2.0)
    checkpoints.on_manifest_stored(1, 3.0)
    [timer] = checkpoints.on_commit_failed(CommitFailed(1, StorageError("no disk")), 4.0)
    assert timer == SetTimer(Timer(TimerKind.COMMIT, 1), 4.2)
    assert checkpoints.on_commit_timer(1) == [CommitHandles(1, ())]
    checkpoints.on_committed(1, 0.0)
    assert checkpoints.final_committed


def test_commit_of_an_earlier_checkpoint_does_not_end_the_job() -> None:
    checkpoints = coordinator()
    take(checkpoints, 1, 10.0, handles(1))
    checkpoints.on_manifest_stored(1, 11.0)
    drain(checkpoints, 12.0)
    acknowledge_all(checkpoints, 2, 13.0, handles(2))
    checkpoints.on_manifest_stored(2, 14.0)
    checkpoints.on_committed(1, 0.0)
    assert not checkpoints.final_committed
    checkpoints.on_committed(2, 0.0)
    assert checkpoints.final_committed
