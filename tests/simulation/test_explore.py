"""Small jobs in every interleaving, and mistakes that must be found there.

`python -m tests.simulation.explore` explores larger ones, and all to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.modes.at_least_once import AtLeastOnce
from minirt.modes.unaligned import Unaligned
from minirt.protocol import preparing
from minirt.protocol.barriers import (
    Alignment,
    Command,
    ScheduleTimer,
    StartCapture,
    TakeSnapshot,
)
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.job_events import CommitHandles, JobCommand, StoreManifest
from minirt.protocol.manifest import SnapshotRef
from minirt.runtime.channels.channels import InputGate, OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.channels.queue import FrameQueue, Queued
from minirt.runtime.input.splits import SplitState
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.storage.part_writer import PartWriter
from minirt.storage.parts import encode_part, part_checksum
from minirt.testing import TransactionalSink
from minirt.testing.exploration import ExplorationResult, Violation, explore
from minirt.testing.exploration.local_states import UnrepeatableError
from tests.campaigns import sampled
from tests.simulation import explore as command_line
from tests.simulation.small_jobs import Checker, SmallJob, build, explore_job

Patch = pytest.MonkeyPatch

EVERY_MODE = pytest.mark.parametrize("mode", command_line.EXPLORED)

SPLIT = SmallJob("shuffle", 1, 2, 2)
JOIN = SmallJob("shuffle", 2, 1, 1)
BARE_JOIN = SmallJob("shuffle", 2, 0, 1)
BARE_LINE = SmallJob("shuffle", 1, 0, 1)
LINE = SmallJob("shuffle", 1, 2, 1)
SHORT_LINE = SmallJob("shuffle", 1, 1, 1)


# Every mode, in as many interleavings as time allows; the command line explores to the end.

STATES_MAX = sampled(2_700, 16)


@EVERY_MODE
@pytest.mark.parametrize(
    ("job", "checkpoints", "crashes", "queue_bytes"),
    [
        (SPLIT, 1, 0, 64),
        (SmallJob("shuffle", 1, 3, 1), 1, 0, 1),
        (SmallJob("broadcast", 1, 1, 2), 1, 0, 64),
        (SmallJob("forward", 1, 1, 1), 1, 0, 64),
        (BARE_JOIN, 1, 0, 64),
        (BARE_LINE, 2, 0, 64),
        (SHORT_LINE, 1, 1, 64),
    ],
    ids=str,
)
def test_a_mode_keeps_its_promise(
    job: SmallJob, mode: str, checkpoints: int, crashes: int, queue_bytes: int
) -> None:
    result = explore_job(
        job,
        mode,
        checkpoints=checkpoints,
        crashes=crashes,
        queue_bytes=queue_bytes,
        states_max=STATES_MAX,
    )
    assert result.violation is None, str(result.violation)
    assert result.complete or result.states > STATES_MAX


@pytest.mark.parametrize("job", [SPLIT, LINE, BARE_JOIN], ids=str)
def test_small_jobs_are_explored_to_the_end(job: SmallJob) -> None:
    explore_job(job, "aligned", checkpoints=1, crashes=0).check()


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
@pytest.mark.parametrize(
    ("job", "crashes"), [(BARE_JOIN, 0), (BARE_LINE, 1), (SHORT_LINE, 0), (SPLIT, 0)], ids=str
)
def test_a_mode_keeps_its_promise_with_two_checkpoints_at_once(
    job: SmallJob, mode: str, crashes: int
) -> None:
    result = explore_job(
        *(job, mode), checkpoints=2, crashes=crashes, states_max=STATES_MAX, max_concurrent=2
    )
    assert result.violation is None, str(result.violation)
    assert result.complete or result.states > STATES_MAX


@pytest.mark.soak
def test_a_small_job_with_two_checkpoints_at_once_is_explored_to_the_end() -> None:
    explore_job(BARE_LINE, "aligned", checkpoints=2, crashes=1, max_concurrent=2).check()


# What the reduction leaves out makes no difference.


def seen(
    job: SmallJob, mode: str, checkpoints: int, crashes: int, *, reduced: bool
) -> tuple[ExplorationResult, set[str]]:
    """The result, and the content of all checkpoints."""
    sinks = [TransactionalSink()]
    checker = Checker(job, sinks, MODES[mode].exactly_once)
    cuts: set[str] = set()

    def look_at(objects: Mapping[str, bytes], path: str) -> None:
        cuts.add(repr((path, checker.contents(objects, path))))

    result = explore(
        build(job, sinks),
        mode,
        checker.check_output,
        checkpoints=checkpoints,
        crashes=crashes,
        on_checkpoint=look_at,
        reduced=reduced,
    )
    return result.check(), cuts


QUICKLY_COMPARED = {("aligned", 0), ("unaligned", 0)}
"""Modes and numbers of checkpoints for which all interleavings are few."""


@pytest.mark.parametrize(
    ("job", "checkpoints", "crashes", "mode"),
    [
        (BARE_LINE, 1, 0, "aligned"),
        *(
            pytest.param(
                *(SHORT_LINE, checkpoints, 1 - checkpoints, mode),
                marks=[] if (mode, checkpoints) in QUICKLY_COMPARED else [pytest.mark.soak],
            )
            for checkpoints in (1, 0)
            for mode in command_line.EXPLORED
        ),
    ],
)
def test_the_reduction_finds_the_same_outputs_and_checkpoints(
    job: SmallJob, checkpoints: int, crashes: int, mode: str
) -> None:
    fewer, cuts = seen(job, mode, checkpoints, crashes, reduced=True)
    every, all_cuts = seen(job, mode, checkpoints, crashes, reduced=False)
    assert fewer.states < every.states / 2
    assert fewer.outputs == every.outputs
    assert cuts == all_cuts


# Planted mistakes.


def violation_of(
    job: SmallJob, mode: Any, *, checkpoints: int = 1, crashes: int = 0, states_max: int = 20_000
) -> Violation:
    """What an exploration finds; it must find something.

    Nobody looks for a shorter way to it: that takes longer than to find it.
    """
    with Patch.context() as patch:
        patch.setattr("minirt.testing.exploration.search._SHORTEST_STATES_MAX", 0)
        result = explore_job(
            job, mode, checkpoints=checkpoints, crashes=crashes, states_max=states_max
        )
    assert result.violation is not None, f"nothing found: {result.line()}"
    assert result.violation.steps
    return result.violation


def test_a_late_channel_that_is_not_captured(monkeypatch: Patch) -> None:
    on_arrived = Unaligned.on_arrived

    def no_capture(self: Unaligned, alignment: Alignment, channel: int) -> list[Command]:
        commands = on_arrived(self, alignment, channel)
        return [command for command in commands if not isinstance(command, StartCapture)]

    monkeypatch.setattr(Unaligned, "on_arrived", no_capture)
    assert "no consistent cut" in violation_of(JOIN, "unaligned").problem


def test_an_overtaken_frame_that_is_not_captured(monkeypatch: Patch) -> None:
    overtake = OutputChannel.overtake
    monkeypatch.setattr(OutputChannel, "overtake", lambda self, frame: overtake(self, frame)[1:])
    assert "no consistent cut" in violation_of(LINE, "unaligned").problem


def test_a_frame_behind_the_barrier_that_is_captured_as_well(monkeypatch: Patch) -> None:
    def capture_all(self: FrameQueue, checkpoint_id: int | None) -> Sequence[Queued]:
        return [frame for frame in self if frame.is_data]

    class Late(Unaligned):
        """Acts on the last arrival: by then there is data behind barriers."""

        name: ClassVar[str] = "late"

        def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
            if not alignment.all_arrived:
                return []
            return [TakeSnapshot(alignment.barrier, alignment.channels), StartCapture(frozenset())]

        def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
            return []

    monkeypatch.setattr(FrameQueue, "data_ahead", capture_all)
    assert "no consistent cut" in violation_of(JOIN, Late()).problem


def test_a_channel_that_is_unblocked_too_early(monkeypatch: Patch) -> None:
    put = InputGate.put

    def put_and_unblock(self: InputGate, index: int, frame: Frame) -> None:
        put(self, index, frame)
        self.unblock_all()

    monkeypatch.setattr(InputGate, "put", put_and_unblock)
    assert "no consistent cut" in violation_of(JOIN, "aligned").problem


def test_a_channel_that_stays_blocked(monkeypatch: Patch) -> None:
    monkeypatch.setattr(InputGate, "unblock_all", lambda self: None)
    assert "the job is stuck" in violation_of(BARE_JOIN, "aligned").problem


def test_an_acknowledgement_before_the_snapshot_is_stored(monkeypatch: Patch) -> None:
    def pretend(
        writer: PartWriter,
        checkpoint_id: int,
        generation: int,
        vertex: int,
        subtask: int,
        sections: Mapping[str, bytes],
        *more: object,
    ) -> SnapshotRef:
        chunks = encode_part(sections)
        path = f"chk-{checkpoint_id:08}-g{generation:08}/v{vertex}-s{subtask}.part"
        size = sum(map(len, chunks))
        return SnapshotRef(vertex, subtask, path, None, size, part_checksum(chunks[0]))

    monkeypatch.setattr(PartWriter, "write_snapshot", pretend)
    assert "not durable" in violation_of(SHORT_LINE, "aligned", checkpoints=0).problem


def test_an_acknowledgement_before_output_is_durable(monkeypatch: Patch) -> None:
    finish = SnapshotUpload.finish_output

    def unfinished(upload: SnapshotUpload) -> Any:
        early = [(uid, id, replace(output, finish=None)) for uid, id, output in upload.prepared]
        return finish(replace(upload, prepared=early))

    monkeypatch.setattr(SnapshotUpload, "finish_output", unfinished)
    assert "not durable" in violation_of(SHORT_LINE, "aligned", checkpoints=0).problem


def test_a_commit_before_the_manifest(monkeypatch: Patch) -> None:
    store = CheckpointCoordinator._store

    def commit_and_store(self: CheckpointCoordinator, *args: Any) -> list[JobCommand]:
        (command,) = store(self, *args)
        assert isinstance(command, StoreManifest)
        manifest = command.manifest
        return [CommitHandles(manifest.checkpoint_id, manifest.sink_handles), command]

    monkeypatch.setattr(CheckpointCoordinator, "_store", commit_and_store)
    found = violation_of(SHORT_LINE, "aligned", checkpoints=0)
    assert "before its manifest" in found.problem
    shortest = explore_job(SHORT_LINE, "aligned", checkpoints=0, crashes=0).violation
    assert shortest is not None
    assert "before its manifest" in shortest.problem
    assert len(shortest.steps) <= len(found.steps)


def test_in_flight_data_that_is_not_restored(monkeypatch: Patch) -> None:
    monkeypatch.setattr(preparing, "plan_in_flight", lambda *args: {})
    found = violation_of(SHORT_LINE, "unaligned", crashes=1)
    assert "lost" in found.problem or "no consistent cut" in found.problem
    assert any("crashes" in step for step in found.steps)


def test_a_source_offset_that_is_one_off(monkeypatch: Patch) -> None:
    to_plain = SplitState.to_plain

    def shifted(state: SplitState) -> list[Any]:
        plain = to_plain(state)
        plain[4] += 1
        return plain

    monkeypatch.setattr(SplitState, "to_plain", shifted)
    assert "no consistent cut" in violation_of(LINE, "aligned").problem


class Hasty(AtLeastOnce):
    """A wrong mode: it claims exactly once, and does not wait at barriers."""

    name: ClassVar[str] = "hasty"
    exactly_once: ClassVar[bool] = True


def test_a_mode_that_does_not_wait() -> None:
    found = violation_of(JOIN, Hasty())
    assert "no consistent cut" in found.problem
    assert str(found).count("\n") == len(found.steps) + 1


class TimesOut(Unaligned):
    """A wrong mode: it snapshots when its timer fires, and forgets to capture what is still to come."""

    name: ClassVar[str] = "times_out"

    def on_arrived(self, alignment: Alignment, channel: int) -> list[Command]:
        if len(alignment.arrived) == 1:
            return [ScheduleTimer(alignment.barrier.checkpoint_id, alignment.now + 1)]
        return []

    def on_reached(self, alignment: Alignment, channel: int) -> list[Command]:
        if alignment.all_reached and not alignment.snapshot_taken:
            return [TakeSnapshot(alignment.barrier)]
        return []

    def on_timer(self, alignment: Alignment) -> list[Command]:
        if alignment.snapshot_taken:
            return []
        return [TakeSnapshot(alignment.barrier, alignment.channels), StartCapture(frozenset())]


def test_a_timer_fires_at_the_worst_moment() -> None:
    found = violation_of(JOIN, TimesOut(), states_max=100_000)
    assert "no consistent cut" in found.problem


# The exploration itself.


_RANDOM = Random(1)


def noisy(record: Any) -> Any:
    return (record, _RANDOM.random())


def test_what_cannot_be_repeated_is_refused() -> None:
    env = rt.Environment(parallelism=1)
    env.source(rt.SequenceSource(2)).map(noisy).sink(TransactionalSink())
    with pytest.raises(UnrepeatableError, match="random numbers"):
        explore(env, "aligned", lambda rows: None, checkpoints=1)


def test_too_many_states_are_reported() -> None:
    result = explore_job(LINE, "aligned", checkpoints=1, crashes=0, states_max=100)
    assert not result.complete
    with pytest.raises(AssertionError, match="not all was explored"):
        result.check()


def test_other_sinks_are_refused() -> None:
    env = rt.Environment()
    env.source(rt.SequenceSource(2)).sink(rt.DiscardSink())
    with pytest.raises(ValueError, match="TransactionalSink"):
        explore(env, "aligned", lambda rows: None)


def test_the_last_line_counts_the_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--job", "shuffle 1x3>1", "--mode", "aligned"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    states = first.split("states=")[1].split()[0]
    assert last == f"states={states} failures=0 unfinished=0"
