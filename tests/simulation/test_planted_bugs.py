"""Mistakes planted into the runtime: the simulations must notice each within a bounded number of seeds.

docs/testing.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from minirt.errors import StorageError
from minirt.modes import aligned_with_timeout
from minirt.modes.aligned import Aligned
from minirt.modes.unaligned import Unaligned
from minirt.partitionings import Custom, InFlight
from minirt.protocol.barriers import (
    Alignment,
    Barrier,
    Command,
    StartCapture,
    TakeSnapshot,
    unaligned_snapshot,
)
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.job_events import CommitHandles, JobCommand, StoreManifest
from minirt.protocol.manifest import Reference, SnapshotRef
from minirt.protocol.preparing_events import (
    CommitRestored,
    Done,
    PreparingCommand,
    PreparingEvent,
)
from minirt.runtime.channels.channels import InputGate, OutputChannel
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.channels.output import LinkOutput, Outputs
from minirt.runtime.channels.queue import FrameQueue, Queued
from minirt.runtime.channels.spill import _Segment
from minirt.runtime.coordinator.preparation_tasks import PreparationTasks
from minirt.runtime.coordinator.storage_tasks import StorageTasks
from minirt.runtime.input.recovered import RecoveredChannels
from minirt.runtime.input.splits import SplitState
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.state.keyed import KeyedState
from minirt.state.timers import Timers
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.part_writer import PartWriter
from minirt.storage.parts import encode_part, part_checksum
from minirt.testing import Faults
from minirt.testing.clock import ProcessClock
from minirt.testing.conformance.cases import Case, draw_case, run_case
from minirt.testing.conformance.drawing import impure_plan, timer_plan
from tests.campaigns import sampled, seeds
from tests.simulation.counting import SPILLING, run_counting
from tests.simulation.soak import draw_timeout, run_seed

Patch = pytest.MonkeyPatch
Search = Callable[[int], Sequence[str]]

SEEDS = 400
STEPS_MAX = 20_000


def counting(seed: int) -> Sequence[str]:
    return run_counting(seed, steps_max=STEPS_MAX)


def counting_with_zombies(seed: int) -> Sequence[str]:
    faults = replace(Faults.none(), worker_crashes=1, zombies=3)
    return run_counting(seed, faults=faults, steps_max=STEPS_MAX)


def counting_on_failing_storage(seed: int) -> Sequence[str]:
    """Many checkpoints fail of which parts are stored, and the job goes on behind them."""
    faults = replace(Faults.none(), storage_errors=12, slow_storage=6)
    return run_counting(seed, faults=faults, steps_max=STEPS_MAX)


def counting_unaligned(seed: int) -> Sequence[str]:
    return run_counting(seed, mode="unaligned", steps_max=STEPS_MAX)


def counting_by_epochs(seed: int) -> Sequence[str]:
    return run_counting(seed, mode="epoch", steps_max=STEPS_MAX)


def counting_with_timeout(seed: int) -> Sequence[str]:
    mode = draw_timeout(Random(f"timeout {seed}"))
    return run_counting(seed, mode=mode, steps_max=STEPS_MAX)


def counting_spilled(seed: int) -> Sequence[str]:
    return run_counting(seed, mode="unaligned", steps_max=STEPS_MAX, options=SPILLING)


def impure(seed: int) -> Sequence[str]:
    case = Case(impure_plan(Random(f"impure {seed}")), seed)
    return run_case(case, Unaligned(), look_into_checkpoints=False).wrong


def random_jobs(seed: int) -> Sequence[str]:
    return run_seed(seed).wrong


def random_jobs_unaligned(seed: int) -> Sequence[str]:
    return run_case(draw_case(seed), Unaligned()).wrong


def output_of_random_jobs(seed: int) -> Sequence[str]:
    return run_case(draw_case(seed), Aligned(), look_into_checkpoints=False).wrong


def timers(seed: int) -> Sequence[str]:
    case = Case(timer_plan(Random(f"timers {seed}")), seed)
    return run_case(case, Aligned(), look_into_checkpoints=False).wrong


def assert_noticed(search: Search, *words: str, first: int = 0) -> None:
    """Some seed must fail, in one of these words."""
    for seed in seeds(SEEDS, first):
        found = " ".join(search(seed))
        if found:
            assert any(word in found for word in words), (
                f"seed {seed} noticed something else: {found}"
            )
            return
    pytest.fail(f"nobody noticed in {SEEDS} runs")


def test_without_a_planted_bug_nothing_is_noticed() -> None:
    searches = (counting, counting_unaligned, counting_with_timeout, counting_with_zombies)
    for search in (
        *searches,
        counting_on_failing_storage,
        counting_by_epochs,
        counting_spilled,
        impure,
        random_jobs,
        output_of_random_jobs,
        timers,
    ):
        for seed in range(sampled(6, 6)):  # Other campaigns run the same jobs.
            assert search(seed) == []


def test_a_snapshot_acknowledged_although_its_write_failed(monkeypatch: Patch) -> None:
    write = PartWriter.write_snapshot

    def write_or_pretend(
        writer: PartWriter,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        sections: Mapping[str, bytes],
        references: Sequence[Reference] = (),
    ) -> SnapshotRef:
        try:
            return write(writer, checkpoint_id, generation, vertex, subtask, sections, references)
        except StorageError:
            chunks = encode_part(sections)
            path = f"chk-{checkpoint_id:08}-g{generation:08}/v{vertex}-s{subtask}.part"
            size = sum(map(len, chunks))
            return SnapshotRef(vertex, subtask, path, None, size, part_checksum(chunks[0]))

    monkeypatch.setattr(PartWriter, "write_snapshot", write_or_pretend)
    assert_noticed(counting, "not durable", "missing", "not the snapshot", first=46)


def test_a_snapshot_acknowledged_before_it_is_durable(monkeypatch: Patch) -> None:
    unfinished: list[Callable[[], None]] = []
    finish = SnapshotUpload.finish_output

    def finish_late(upload: SnapshotUpload) -> Any:
        while unfinished:
            unfinished.pop()()
        unfinished.extend(output.finish for _, _, output in upload.prepared if output.finish)
        early = [(uid, id, replace(output, finish=None)) for uid, id, output in upload.prepared]
        return finish(replace(upload, prepared=early))

    monkeypatch.setattr(SnapshotUpload, "finish_output", finish_late)
    assert_noticed(counting, "not durable", "lost")


def test_a_commit_before_the_manifest(monkeypatch: Patch) -> None:
    store = CheckpointCoordinator._store

    def commit_and_store(self: CheckpointCoordinator, *args: Any) -> list[JobCommand]:
        (command,) = store(self, *args)
        assert isinstance(command, StoreManifest)
        manifest = command.manifest
        return [CommitHandles(manifest.checkpoint_id, manifest.sink_handles), command]

    monkeypatch.setattr(CheckpointCoordinator, "_store", commit_and_store)
    assert_noticed(counting, "duplicated", "is lost", first=25)


def test_timers_that_are_not_restored(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Timers, "restore", lambda *args, **options: None)
    assert_noticed(timers, "lost", "counted", first=24)


@pytest.mark.parametrize("error", [1, -1])
def test_a_source_offset_that_is_one_off(monkeypatch: Patch, error: int) -> None:
    to_plain = SplitState.to_plain

    def shifted(state: SplitState) -> list[Any]:
        plain = to_plain(state)
        plain[4] = max(0, plain[4] + error)
        return plain

    monkeypatch.setattr(SplitState, "to_plain", shifted)
    assert_noticed(counting, "no consistent cut")


@pytest.mark.parametrize(("error", "consequence", "first"), [(1, "lost", 7), (-1, "too many", 26)])
def test_a_source_offset_that_is_one_off_shows_in_the_output(
    monkeypatch: Patch, error: int, consequence: str, first: int
) -> None:
    to_plain = SplitState.to_plain

    def shifted(state: SplitState) -> list[Any]:
        plain = to_plain(state)
        plain[4] = max(0, plain[4] + error)
        return plain

    monkeypatch.setattr(SplitState, "to_plain", shifted)
    words = (consequence, "timer", "clock", "numbers", "passed a record")
    assert_noticed(output_of_random_jobs, *words, first=first)


def test_a_stale_generation_that_still_commits(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CheckpointStorage, "is_current", lambda *args: True)
    assert_noticed(counting_with_zombies, "duplicated", "counted", "lost", "comes after")


def test_a_channel_that_stays_blocked(monkeypatch: Patch) -> None:
    monkeypatch.setattr(InputGate, "unblock_all", lambda self: None)
    assert_noticed(counting, "made no progress")


def test_output_of_a_failed_checkpoint_that_is_not_carried_on(monkeypatch: Patch) -> None:
    give_up = CheckpointCoordinator._give_up

    def forget(self: CheckpointCoordinator, *args: Any) -> list[JobCommand]:
        carried = list(self._commits._carried)
        commands = give_up(self, *args)
        self._commits._carried = carried
        return commands

    monkeypatch.setattr(CheckpointCoordinator, "_give_up", forget)
    assert_noticed(counting_on_failing_storage, "no consistent cut", "lost", first=12)


def test_a_barrier_that_overtakes_buffered_records(monkeypatch: Patch) -> None:
    control = LinkOutput.control

    def overtake(self: LinkOutput, frame: Frame) -> None:
        if frame.kind != Kind.BARRIER:
            control(self, frame)
            return
        for buffer in self._buffers:
            buffer.put(frame)

    monkeypatch.setattr(LinkOutput, "control", overtake)
    assert_noticed(counting, "no consistent cut")


def test_aligned_without_blocking(monkeypatch: Patch) -> None:
    on_reached = Aligned.on_reached

    def go_on(self: Aligned, alignment: Alignment, channel: int) -> list[Command]:
        return on_reached(self, alignment, channel) if alignment.all_reached else []

    monkeypatch.setattr(Aligned, "on_reached", go_on)
    assert_noticed(counting, "no consistent cut")


def test_state_of_other_key_groups_restored_as_well(monkeypatch: Patch) -> None:
    restore = KeyedState.restore

    def restore_all(
        self: KeyedState, sections: Mapping[str, bytes], *, filter_groups: bool
    ) -> None:
        restore(self, sections, filter_groups=False)

    monkeypatch.setattr(KeyedState, "restore", restore_all)
    assert_noticed(counting, "no consistent cut", first=36)


def test_timers_of_other_key_groups_restored_as_well(monkeypatch: Patch) -> None:
    restore = Timers.restore

    def restore_all(self: Timers, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        restore(self, sections, filter_groups=False)

    monkeypatch.setattr(Timers, "restore", restore_all)
    assert_noticed(timers, "too many", "KeyError", "timer", "clock", first=84)


def test_a_restored_checkpoint_whose_output_is_not_committed_again(monkeypatch: Patch) -> None:
    run = PreparationTasks._run

    def run_without_commit(self: PreparationTasks, command: PreparingCommand) -> PreparingEvent:
        return Done() if isinstance(command, CommitRestored) else run(self, command)

    monkeypatch.setattr(PreparationTasks, "_run", run_without_commit)
    assert_noticed(counting, "lost", "no consistent cut", first=59)


def test_an_overtaken_frame_that_is_not_captured(monkeypatch: Patch) -> None:
    overtake = OutputChannel.overtake
    monkeypatch.setattr(OutputChannel, "overtake", lambda self, frame: overtake(self, frame)[1:])
    assert_noticed(counting_unaligned, "no consistent cut", "lost")


def test_a_spilled_frame_that_is_not_captured(monkeypatch: Patch) -> None:
    overtake = OutputChannel.overtake

    def overtake_in_memory(self: OutputChannel, barrier: Frame) -> Sequence[Frame]:
        return [frame for frame in overtake(self, barrier) if isinstance(frame, Frame)]

    monkeypatch.setattr(OutputChannel, "overtake", overtake_in_memory)
    assert_noticed(counting_spilled, "no consistent cut", "lost")


def test_a_spill_file_that_is_written_over_while_a_snapshot_needs_it(monkeypatch: Patch) -> None:
    append = _Segment.append

    def append_at_the_start(self: _Segment, data: bytes) -> int:
        self.size = 0
        return append(self, data)

    monkeypatch.setattr(_Segment, "append", append_at_the_start)
    assert_noticed(counting_spilled, "no consistent cut", "duplicated", "frame", "numbers")


def test_data_behind_the_barrier_that_is_captured_as_well(monkeypatch: Patch) -> None:
    monkeypatch.setattr(FrameQueue, "data_ahead", _all_data)
    monkeypatch.setattr(Unaligned, "on_arrived", _on_last_arrival)
    assert_noticed(counting_unaligned, "no consistent cut", "duplicated")


def _all_data(self: FrameQueue, checkpoint_id: int | None) -> Sequence[Queued]:
    return [frame for frame in self if frame.is_data]


def _on_last_arrival(self: Unaligned, alignment: Alignment, channel: int) -> list[Command]:
    """Late enough that there is data behind barriers."""
    if not alignment.all_arrived or alignment.snapshot_taken:
        return []
    return [TakeSnapshot(alignment.barrier, alignment.channels), StartCapture(frozenset())]


def test_channels_that_are_not_captured_until_their_barrier_comes(monkeypatch: Patch) -> None:
    on_arrived = Unaligned.on_arrived

    def no_capture(self: Unaligned, alignment: Alignment, channel: int) -> list[Command]:
        commands = on_arrived(self, alignment, channel)
        return [command for command in commands if not isinstance(command, StartCapture)]

    monkeypatch.setattr(Unaligned, "on_arrived", no_capture)
    assert_noticed(counting_unaligned, "no consistent cut", "lost")


def test_recovered_records_that_are_given_to_every_new_subtask(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RecoveredChannels, "_own", lambda self, channel, frames, room: frames)
    assert_noticed(counting_unaligned, "no consistent cut", "duplicated", "counted", first=92)


def test_recovered_records_that_are_not_captured_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RecoveredChannels, "remaining", lambda self: [])
    assert_noticed(random_jobs_unaligned, "no consistent cut", first=385)


def test_a_reached_channel_that_is_captured_as_well(monkeypatch: Patch) -> None:
    def capture_all(alignment: Alignment, reason: str) -> list[Command]:
        return [
            replace(order, capture=alignment.channels) if isinstance(order, TakeSnapshot) else order
            for order in unaligned_snapshot(alignment, reason)
        ]

    monkeypatch.setattr(aligned_with_timeout, "unaligned_snapshot", capture_all)
    assert_noticed(counting_with_timeout, "no consistent cut", "duplicated")


def test_output_that_is_overtaken_at_the_timeout_and_not_captured(monkeypatch: Patch) -> None:
    move_ahead = OutputChannel.move_ahead
    monkeypatch.setattr(
        OutputChannel, "move_ahead", lambda self, frame: move_ahead(self, frame)[1:]
    )
    assert_noticed(counting_with_timeout, "no consistent cut", "lost", first=6)


def test_a_timer_that_switches_a_checkpoint_finished_before_its_barriers_had_passed(
    monkeypatch: Patch,
) -> None:
    def finish_and_overtake(self: Outputs, barrier: Barrier, passed: Callable[[], None]) -> None:
        passed()
        self.move_ahead(barrier)

    monkeypatch.setattr(Outputs, "watch", finish_and_overtake)
    assert_noticed(counting_with_timeout, "no consistent cut", "lost")


def test_an_impure_partitioner_that_deals_captured_records_again(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Custom, "in_flight", InFlight.DEALT_AGAIN)
    assert_noticed(impure, "lost", "too many", first=66)


def test_a_barrier_that_overtakes_where_it_must_not(monkeypatch: Patch) -> None:
    control = LinkOutput.control

    def overtake(self: LinkOutput, frame: Frame) -> None:
        if frame.kind == Kind.BARRIER and not self.link.capturable:
            self.overtake(frame)
        else:
            control(self, frame)

    monkeypatch.setattr(LinkOutput, "control", overtake)
    assert_noticed(impure, "lost", first=8)


def test_outputs_that_are_still_watched_after_the_checkpoint_is_over(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Outputs, "unwatch", lambda self: None)
    assert_noticed(counting_with_timeout, "AssertionError")


def test_sources_that_nobody_lets_go_on_behind_a_checkpoint(monkeypatch: Patch) -> None:
    monkeypatch.setattr(CheckpointCoordinator, "_release_sources", lambda self, pending, now: [])
    assert_noticed(counting_by_epochs, "steps")


# Clocks and threads.


def counting_with_wrong_clocks(seed: int) -> Sequence[str]:
    faults = replace(Faults.none(), clock_jumps=3)
    return run_counting(seed, faults=faults, steps_max=STEPS_MAX)


def counting_with_unexpected_errors(seed: int) -> Sequence[str]:
    faults = replace(Faults.none(), unexpected_errors=4)
    try:
        return run_counting(seed, faults=faults, steps_max=STEPS_MAX)
    except BaseException as error:
        return [f"the simulation itself ended: {error}"]


def test_processes_that_go_by_the_wall_clock(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ProcessClock, "monotonic", ProcessClock.now)
    monkeypatch.setattr(ProcessClock, "scheduled", lambda clock, at: at)
    assert_noticed(
        counting_with_wrong_clocks, "no progress", "no sign of life", "WorkerLost", first=17
    )


def test_a_storage_command_that_nobody_answers(monkeypatch: Patch) -> None:
    monkeypatch.setattr(StorageTasks, "run", StorageTasks._run)
    assert_noticed(counting_with_unexpected_errors, "the simulation itself ended")


def test_uploads_of_a_checkpoint_that_was_given_up_without_their_output(monkeypatch: Patch) -> None:
    def without_output(upload: SnapshotUpload) -> SnapshotUpload:
        return replace(upload, sections={}, references=(), in_flight=(), prepared=())

    monkeypatch.setattr(SnapshotUpload, "without_state", without_output)
    assert_noticed(random_jobs, "no consistent cut", "lost", first=236)
