"""Checkpoints of local snapshots: when the coordinator orders what, and which output it commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minirt.modes import MODES, local_snapshots
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.families import local_id
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    CommitHandles,
    JobCommand,
    ManifestRefused,
    SetTimer,
    SnapshotAcknowledged,
    StoreManifest,
    Timer,
    TimerKind,
)
from minirt.protocol.lines import LocalCut
from minirt.protocol.manifest import ChannelData, InFlightRef, Manifest, SinkHandles, SnapshotRef
from minirt.protocol.reports import completed_report
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.subtask_commands import AbortCheckpoint, StoreSlices, TriggerCheckpoint
from tests.protocol.parts import (
    SINK,
    SOURCE,
    CoordinatedJob,
    acknowledged,
    declined,
    handles,
    statistics,
    trigger_timer,
)

PLAN = Uncoordinated().local_snapshots(10.0)
SETTINGS = CheckpointSettings(
    "uncoordinated",
    interval_s=10.0,
    timeout_s=60.0,
    tolerable_failures=2,
    modes=MODES,
    local=PLAN,
)


class Job(CoordinatedJob):
    def __init__(self) -> None:
        super().__init__(SETTINGS)
        assert self.begun == [SetTimer(trigger_timer(1), 10.0)]

    def source(self, number: int, now: float) -> list[JobCommand]:
        return self.checkpoints.on_acknowledged(local(SOURCE, number), now)

    def sink(self, number: int, need: int, now: float, *held: SinkHandles) -> list[JobCommand]:
        event = local(SINK, number, (SOURCE, need), held=held)
        return self.checkpoints.on_acknowledged(event, now)

    def slices(self, checkpoint_id: int, now: float) -> Manifest:
        """Both subtasks store what is in transit."""
        assert self.checkpoints.on_acknowledged(of_line(checkpoint_id, SOURCE), now) == []
        [store] = self.checkpoints.on_acknowledged(of_line(checkpoint_id, SINK), now)
        assert isinstance(store, StoreManifest)
        return store.manifest

    def line(self, checkpoint_id: int, now: float) -> Manifest:
        """A line that is due is written."""
        manifest = self.slices(checkpoint_id, now)
        self.checkpoints.on_manifest_stored(checkpoint_id, now)
        return manifest

    def line_at(self, now: float) -> frozenset[str]:
        """One that is due is written at once; returns what may be deleted by then."""
        id = round(now / 10)
        self.checkpoints.on_trigger_timer(id, now)
        self.slices(id, now)
        commands = self.checkpoints.on_manifest_stored(id, now)
        [clean_up] = [one for one in commands if isinstance(one, CleanUp)]
        return clean_up.unneeded

    def savepoint(self, now: float) -> TriggerCheckpoint:
        request = SavepointRequest(7, "unaligned", None, Afterwards.GO_ON)
        assert self.savepoints.add(request) == []
        trigger, _ = self.checkpoints.on_savepoint_requested(now)
        assert isinstance(trigger, TriggerCheckpoint)
        return trigger


def local(
    subtask: SubtaskId,
    number: int,
    *needs: tuple[SubtaskId, int],
    held: tuple[SinkHandles, ...] = (),
) -> SnapshotAcknowledged:
    event = acknowledged(local_id(1, number), subtask, *held)
    return replace(event, local=LocalCut(number, needs))


def of_line(checkpoint_id: int, subtask: SubtaskId) -> SnapshotAcknowledged:
    stored = SnapshotRef(subtask.vertex, subtask.index, f"slices-{checkpoint_id}", None, 3, 0)
    data = ChannelData("numbers > out", "hash", 0, 0, 1, "in", 3)
    stats = replace(statistics(subtask), in_flight_bytes=3, state_bytes=0)
    return replace(
        acknowledged(checkpoint_id, subtask),
        snapshot=None,
        stats=stats,
        in_flight=InFlightRef(stored, (data,)),
        of_line=True,
    )


def held(number: int) -> SinkHandles:
    return handles(local_id(1, number))


def committed(manifest: Manifest) -> list[str]:
    return [handle["file"] for part in manifest.sink_handles for handle in part.handles]


def files(*numbers: int) -> list[str]:
    return [f"{local_id(1, number)}-0" for number in numbers]


def expire(checkpoint_id: int, at: float) -> SetTimer:
    return SetTimer(Timer(TimerKind.EXPIRE, checkpoint_id), at)


def test_a_checkpoint_that_is_due_is_made_of_the_newest_snapshots_that_fit() -> None:
    job = Job()
    assert job.source(1, 4.0) == []
    assert job.sink(1, 1, 5.0) == []
    assert job.sink(2, 2, 9.0) == []
    [order, timer] = job.checkpoints.on_trigger_timer(1, 10.0)
    assert order == StoreSlices(1, 1, {SOURCE: 1, SINK: 1})
    assert timer == expire(1, 70.0)
    manifest = job.slices(1, 10.5)
    assert [ref.path for ref in manifest.snapshots] == [
        f"{local_id(1, 1)}/0-0",
        f"{local_id(1, 1)}/1-0",
    ]
    assert [one.stored.path for one in manifest.in_flight] == ["slices-1", "slices-1"]
    assert [one.in_flight_bytes for one in manifest.stats] == [3, 3]
    assert [one.state_bytes for one in manifest.stats] == [10, 10]
    assert (manifest.checkpoint_id, manifest.mode, manifest.kind) == (
        1,
        "uncoordinated",
        "checkpoint",
    )


def test_one_that_is_due_waits_until_the_line_has_passed_a_snapshot_of_each_subtask() -> None:
    job = Job()
    job.source(1, 4.0)
    assert job.checkpoints.on_trigger_timer(1, 10.0) == []
    assert job.sink(1, 2, 11.0) == []
    [order, _] = job.source(2, 12.0)
    assert order == StoreSlices(1, 1, {SOURCE: 2, SINK: 1})


def test_a_checkpoint_tells_of_the_snapshots_that_it_passed_over_and_of_its_oldest_one() -> None:
    job = Job()
    job.source(1, 4.0)
    job.sink(1, 1, 5.0)
    forced = replace(local(SINK, 2, (SOURCE, 1)), local=LocalCut(2, ((SOURCE, 1),), forced=True))
    job.checkpoints.on_acknowledged(forced, 6.0)
    job.sink(3, 2, 9.0)
    job.checkpoints.on_trigger_timer(1, 10.0)
    manifest = job.line(1, 10.5)
    of_source, of_sink = manifest.stats
    async_s = statistics(SINK).async_s
    assert (of_source.local, of_source.skipped, of_source.forced) == (1, 0, 0)
    assert (of_sink.local, of_sink.skipped, of_sink.forced) == (2, 1, 1)
    assert (of_source.age_s, of_sink.age_s) == (6.0 + async_s, 4.0 + async_s)
    assert completed_report(manifest).whole_s == 10.5 - 10.0 + of_source.age_s
    job.source(2, 12.0)
    job.checkpoints.on_trigger_timer(2, 20.0)
    of_source, of_sink = job.line(2, 20.5).stats
    assert (of_source.skipped, of_sink.skipped, of_sink.forced) == (0, 0, 0)
    job.source(3, 21.0)
    job.checkpoints.on_trigger_timer(3, 30.0)
    _, of_sink = job.line(3, 30.5).stats
    assert (of_sink.local, of_sink.skipped) == (3, 0)


def test_without_a_new_snapshot_there_is_no_new_checkpoint() -> None:
    job = Job()
    job.source(1, 4.0)
    job.sink(1, 1, 5.0)
    job.checkpoints.on_trigger_timer(1, 10.0)
    job.line(1, 10.5)
    assert job.checkpoints.on_trigger_timer(2, 20.0) == []
    [order, _] = job.source(2, 21.0)
    assert order == StoreSlices(1, 2, {SOURCE: 2, SINK: 1})


def test_a_snapshot_ahead_of_its_time_asks_for_a_checkpoint_ahead_of_its_time() -> None:
    """A subtask whose log is full would wait for it."""
    job = Job()
    job.sink(1, 0, 1.0)
    early = local(SOURCE, 1)
    early = replace(early, local=LocalCut(1, early=True))
    [order, _] = job.checkpoints.on_acknowledged(early, 2.0)
    assert order == StoreSlices(1, 1, {SOURCE: 1, SINK: 1})
    job.slices(1, 2.5)
    assert job.checkpoints.on_acknowledged(replace(early, local=LocalCut(2, early=True)), 2.6) == []
    commands = job.checkpoints.on_manifest_stored(1, 3.0)
    assert commands[-1] == SetTimer(trigger_timer(2), 3.0)


def test_output_is_committed_with_the_line_that_has_come_to_its_snapshot_and_under_its_id() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0, held(1))
    job.sink(2, 1, 3.0, held(2))
    job.sink(3, 2, 4.0, held(3))
    job.checkpoints.on_trigger_timer(1, 10.0)
    manifest = job.slices(1, 11.0)
    assert committed(manifest) == files(1, 2)
    assert {part.checkpoint_id for part in manifest.sink_handles} == {1}
    commands = job.checkpoints.on_manifest_stored(1, 11.0)
    assert CommitHandles(1, manifest.sink_handles) in commands
    job.checkpoints.on_committed(1, 11.5)
    job.source(2, 12.0)
    job.checkpoints.on_trigger_timer(2, 20.0)
    assert committed(job.slices(2, 21.0)) == files(3)


def test_output_of_a_line_that_was_not_written_comes_with_the_next() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0, held(1))
    job.checkpoints.on_trigger_timer(1, 10.0)
    failed = declined(1, SINK)
    assert AbortCheckpoint(1, 1) in job.checkpoints.on_declined(failed, 11.0)
    job.source(2, 12.0)
    job.checkpoints.on_trigger_timer(2, 20.0)
    assert committed(job.slices(2, 21.0)) == files(1)


def test_snapshots_with_barriers_commit_what_was_ahead_of_them_and_no_line_falls_behind() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 2, 2.0, held(1))
    assert job.savepoint(3.0).barrier == Barrier(1, "unaligned", 3.0, savepoint=True)
    job.checkpoints.on_acknowledged(acknowledged(1, SINK, handles(1)), 4.0)
    job.sink(2, 2, 5.0, held(2))
    [store] = job.checkpoints.on_acknowledged(acknowledged(1, SOURCE), 6.0)
    assert isinstance(store, StoreManifest)
    assert committed(store.manifest) == [*files(1), "1-0"]
    job.checkpoints.on_manifest_stored(1, 7.0)
    job.checkpoints.on_committed(1, 7.0)
    assert job.source(2, 8.0) == []
    [order, _] = job.checkpoints.on_trigger_timer(2, 17.0)
    assert order == StoreSlices(1, 2, {SOURCE: 2, SINK: 2})
    assert committed(job.slices(2, 18.0)) == files(2)


def test_no_line_is_written_that_is_behind_a_checkpoint_with_barriers_in_any_subtask() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0, held(1))
    job.savepoint(3.0)
    for subtask in (SOURCE, SINK):
        job.checkpoints.on_acknowledged(acknowledged(1, subtask), 4.0)
    # Whether its manifest exists or not: its output may be committed with any later one.
    job.checkpoints.on_manifest_refused(ManifestRefused(1, OSError("full")), 5.0)
    job.source(2, 6.0)
    assert job.checkpoints.on_trigger_timer(2, 20.0) == []
    [order, _] = job.sink(2, 2, 21.0, held(2))
    assert order == StoreSlices(1, 2, {SOURCE: 2, SINK: 2})
    assert committed(job.slices(2, 22.0)) == files(1, 2)


def test_output_of_a_failed_checkpoint_with_barriers_waits_for_a_line_behind_it() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0, held(1))
    job.savepoint(3.0)
    job.checkpoints.on_acknowledged(acknowledged(1, SINK, handles(1)), 4.0)
    job.checkpoints.on_declined(declined(1, SOURCE), 5.0)
    job.checkpoints.on_trigger_timer(2, 15.0)
    assert committed(job.line(2, 16.0)) == files(1)
    job.checkpoints.on_committed(2, 16.0)
    job.source(2, 17.0)
    job.sink(2, 2, 18.0)
    job.checkpoints.on_trigger_timer(3, 27.0)
    assert committed(job.slices(3, 28.0)) == ["1-0"]


def test_snapshots_behind_the_line_are_deleted_unless_others_build_on_them() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0)
    job.sink(2, 1, 3.0)
    assert job.line_at(10.0) == {f"{local_id(1, 1)}/1-0"}


def test_a_file_that_subtasks_share_is_deleted_when_none_of_them_needs_its_part() -> None:
    def sharing(event: SnapshotAcknowledged, start: int) -> SnapshotAcknowledged:
        assert event.snapshot is not None
        return replace(event, snapshot=replace(event.snapshot, path=f"both@{start}+9"))

    job, unneeded = Job(), []
    job.checkpoints.on_acknowledged(sharing(local(SOURCE, 1), 0), 1.0)
    job.checkpoints.on_acknowledged(sharing(local(SINK, 1, (SOURCE, 1)), 9), 1.0)
    job.line_at(10.0)
    job.source(2, 12.0)
    unneeded.append(job.line_at(20.0))
    job.sink(2, 2, 22.0)
    unneeded.append(job.line_at(30.0))
    assert unneeded == [frozenset(), frozenset({"both"})]


def test_a_job_fails_if_one_subtask_can_store_none_of_its_snapshots() -> None:
    job = Job()
    for number in (1, 2, 3):
        assert job.checkpoints.too_many_failures is None
        event = replace(declined(local_id(1, number), SINK), local=LocalCut(number))
        job.source(number, number)
        assert job.checkpoints.on_declined(event, number) == []
    failure = job.checkpoints.too_many_failures
    assert failure is not None
    assert failure.checkpoint is not None
    assert failure.checkpoint.declined_by == "out (1/1)"


def test_the_last_checkpoint_is_taken_with_barriers() -> None:
    job = Job()
    job.source(1, 1.0)
    job.sink(1, 1, 2.0)
    job.checkpoints.on_drained(SOURCE, 3.0)
    [trigger, _] = job.checkpoints.on_drained(SINK, 4.0)
    assert trigger == TriggerCheckpoint(1, Barrier(1, "uncoordinated", 4.0))
    assert job.sink(2, 1, 20.0) == []


def test_first_snapshots_lie_apart_and_later_ones_come_at_the_interval() -> None:
    firsts = [PLAN.next_at(SubtaskId(1, index), 1, 0.0, 0.0) for index in range(8)]
    assert all(5.0 <= at <= 10.0 for at in firsts)
    assert min(b - a for a, b in zip(sorted(firsts), sorted(firsts)[1:], strict=False)) > 0.2
    later = [PLAN.next_at(SINK, number, 100.0, 0.0) for number in range(2, 50)]
    assert min(later) >= 109.0
    assert max(later) <= 111.0


def test_staggered_snapshots_keep_to_a_beat_and_come_from_sinks_first() -> None:
    plan = Uncoordinated(stagger="100ms", jitter=0.5).local_snapshots(10.0)
    for lateness in (0.0, 0.4, 4.0):
        for beat in (1, 2, 3):
            before = 100.0 + 10.0 * (beat - 1) + (lateness if beat > 1 else 0.0)
            due = {
                vertex: [plan.next_at(SubtaskId(vertex, n), beat, before, 100.0) for n in range(4)]
                for vertex in range(3)
            }
            for vertex, own in due.items():
                latest = 100.0 + 10.0 * beat - 0.1 * vertex
                assert all(latest - 0.05 <= at <= latest for at in own)
            assert max(due[2]) < min(due[1]) < max(due[1]) < min(due[0])


def test_all_processes_have_the_same_beat_whatever_their_monotonic_clocks_say() -> None:
    plan = Uncoordinated(stagger="100ms", jitter=0).local_snapshots(10.0)
    for boot in (0.0, 400.0, 123.5):  # When the monotonic clock was 0, by the wall clock.
        for wall in (1_000_003.0, 1_000_007.0):
            now = wall - boot
            due = plan.next_at(SINK, 1, now, plan.beat_at(now, wall)) + boot
            assert (due + 0.1 * SINK.vertex) % 10 == pytest.approx(0, abs=1e-6)
            assert 5 <= due + 0.1 * SINK.vertex - wall <= 15


def test_a_snapshot_ahead_of_its_time_takes_the_place_of_the_one_that_is_due_soon() -> None:
    plan = Uncoordinated(stagger="100ms", jitter=0).local_snapshots(10.0)
    assert plan.next_at(SOURCE, 2, 104.0, 100.0) == 110.0
    assert plan.next_at(SOURCE, 2, 106.0, 100.0) == 120.0


def test_only_modes_of_the_family_take_local_snapshots() -> None:
    class Given:
        interval_s = 10.0

    plans = {name: local_snapshots(mode, Given()) for name, mode in MODES.items()}
    local = {name for name, plan in plans.items() if plan is not None}
    assert local == {"communication_induced", "uncoordinated"}
    assert local_snapshots(MODES["uncoordinated"], None) is None
