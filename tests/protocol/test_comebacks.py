"""A worker that is gone: when it comes back alone, with what, and when the whole job restarts instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from minirt.errors import BadRecordError, WorkerLostError
from minirt.modes import MODES
from minirt.modes.uncoordinated import Uncoordinated
from minirt.protocol.barriers import Barrier
from minirt.protocol.checkpoint_settings import CheckpointSettings
from minirt.protocol.families import local_id
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job import JobProtocol
from minirt.protocol.job_events import (
    CancelRequested,
    GenerationPrepared,
    JobCommand,
    JobEvent,
    JobStatus,
    SavepointRequested,
    SetTimer,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StopWorkers,
    Submitted,
    SubtaskDrained,
    SubtaskStarted,
    Timer,
    TimerFired,
    TimerKind,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.protocol.lines import LineTracker, LocalCut
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.reasons import GenerationFailure, GenerationFailureReason
from minirt.protocol.restart_commands import (
    AnnounceComeback,
    AnnounceRestart,
    BringBack,
    FallenBack,
    KeepFor,
)
from minirt.protocol.restarts import Restart
from minirt.protocol.restore import RestorePart
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.protocol.starting_point import CheckpointLocation, StartingPoint
from minirt.protocol.stored_watermarks import RestoredWatermarks, SubtaskWatermarks
from minirt.protocol.subtask_commands import AbortCheckpoint, StoreSlices, TriggerCheckpoint
from minirt.protocol.uncoordinated import Uncoordinated as Family
from minirt.protocol.workers import Patience
from tests.protocol.parts import SINK, SOURCE, VERTICES, acknowledged, declined, handles

CHANNEL = ChannelId(0, 0, 0)
SINK_WORKER = 1
LOST = WorkerLostError("worker 1 was killed")
GONE = WorkerFailed(1, LOST, SINK_WORKER)
WATERMARKS = SubtaskWatermarks("out", 0, 7)
FAILURE = GenerationFailure(GenerationFailureReason.WORKER_FAILED, LOST)
BRING_BACK, BACK = Timer(TimerKind.BRING_BACK, 1), Timer(TimerKind.BACK, 1)


def local(
    subtask: SubtaskId, number: int, need: int = 0, done: int | None = 0
) -> SnapshotAcknowledged:
    """A local snapshot; that of the sink hands output over as well."""
    if subtask == SOURCE:
        cut = LocalCut(number)
        return replace(acknowledged(local_id(1, number), SOURCE), local=cut)
    processed = None if done is None else ((CHANNEL, done),)
    cut = LocalCut(number, ((SOURCE, need),), processed=processed)
    event = acknowledged(local_id(1, number), SINK, handles(local_id(1, number)))
    return replace(event, local=cut, watermarks=WATERMARKS)


class Job:
    """One that runs, of a source in worker 0 and a sink in worker 1."""

    def __init__(
        self,
        start: StartingPoint | None = None,
        attempts: int | None = None,
        mode: str = "uncoordinated",
    ) -> None:
        plan = Uncoordinated().local_snapshots(10.0) if mode == "uncoordinated" else None
        self.protocol = JobProtocol(
            "job",
            VERTICES,
            frozenset({SOURCE, SINK}),
            CheckpointSettings(mode, 10.0, timeout_s=60.0, modes=MODES, local=plan),
            Restart.fixed_delay(attempts, 2.0).start(),
            Patience(connect_s=30.0, start_s=40.0, silence_s=20.0),
            alone={SINK_WORKER: frozenset({SINK})},
        )
        self.tell(Submitted())
        self.tell(GenerationPrepared(1, None, 1, start=start or StartingPoint()))
        self.tell(WorkersConnected(1))
        self.tell(SubtaskStarted(1, SOURCE))
        self.tell(SubtaskStarted(1, SINK))
        assert self.protocol.status is JobStatus.RUNNING

    def tell(self, event: JobEvent, now: float = 0.0) -> list[JobCommand]:
        return self.protocol.handle(event, now)

    def snapshots(self, *events: SnapshotAcknowledged | SnapshotDeclined) -> None:
        for event in events:
            self.tell(event, 5.0)

    def line(self, now: float = 10.0) -> StoreSlices:
        """The line that is ordered when the first checkpoint is due."""
        [order, _] = self.tell(TimerFired(Timer(TimerKind.TRIGGER, 1)), now)
        assert isinstance(order, StoreSlices)
        return order

    def savepoint(self, now: float = 11.0) -> list[JobCommand]:
        request = SavepointRequest(7, "unaligned", None, Afterwards.GO_ON)
        return self.tell(SavepointRequested(request), now)


def of_line(checkpoint_id: int, subtask: SubtaskId) -> SnapshotAcknowledged:
    return replace(acknowledged(checkpoint_id, subtask), snapshot=None, of_line=True)


def on_the_line() -> Job:
    """The sink has a snapshot on the line, and one ahead of it."""
    job = Job()
    job.snapshots(local(SOURCE, 1), local(SINK, 1, 1, done=30), local(SINK, 2, 2, done=50))
    return job


def test_it_comes_back_after_the_delay_with_its_snapshot_on_the_line() -> None:
    job = on_the_line()
    assert job.tell(GONE, 20.0) == [
        KeepFor(1, SINK_WORKER),
        AnnounceComeback(FAILURE, 2.0),
        SetTimer(BRING_BACK, 22.0),
    ]
    snapshot = local(SINK, 1, 1, done=30)
    [bring_back, timer] = job.tell(TimerFired(BRING_BACK), 22.0)
    assert isinstance(bring_back, BringBack)
    assert (bring_back.generation, bring_back.worker, bring_back.life) == (1, SINK_WORKER, 1)
    cut = LocalCut(1, ((SOURCE, 1),), processed=((CHANNEL, 30),))
    assert bring_back.fallen_back == {SINK: FallenBack(1, cut, WATERMARKS)}
    assert snapshot.snapshot is not None
    assert bring_back.start == StartingPoint(
        CheckpointLocation(None, ManifestKey(local_id(1, 1), 1)),
        {SINK: {"out": RestorePart((snapshot.snapshot,), exact=True)}},
    )
    assert timer == SetTimer(BACK, 92.0)
    assert job.protocol.status is JobStatus.RUNNING
    assert job.tell(SubtaskStarted(1, SINK), 23.0) != []
    assert job.tell(TimerFired(BACK), 92.0) == []
    assert (job.protocol.restarts, job.protocol.comebacks.count) == (0, 1)


def test_the_line_is_ordered_again_once_it_is_back() -> None:
    job = on_the_line()
    assert job.line() == StoreSlices(1, 1, {SOURCE: 1, SINK: 1}, {CHANNEL: 30})
    keep, abort, *_ = job.tell(GONE, 11.0)
    assert (keep, abort) == (KeepFor(1, SINK_WORKER), AbortCheckpoint(1, 1))
    job.tell(local(SOURCE, 2), 12.0)
    assert job.tell(TimerFired(Timer(TimerKind.TRIGGER, 2)), 20.0) == []
    job.tell(TimerFired(BRING_BACK), 22.0)
    [order, _] = job.tell(SubtaskStarted(1, SINK), 23.0)
    assert order == StoreSlices(1, 2, {SOURCE: 2, SINK: 1}, {CHANNEL: 30})


def test_what_it_has_handed_over_since_is_not_committed() -> None:
    """Snapshots ahead of the line count no more, stored or not: their output comes again."""
    family = Family({SOURCE, SINK})
    not_stored = replace(
        declined(local_id(1, 3), SINK, handles(local_id(1, 3))), local=LocalCut(3, ((SOURCE, 2),))
    )
    for event in (local(SOURCE, 1), local(SINK, 1, 1), local(SINK, 2, 2), not_stored):
        family.on_local(event, 5.0)
    assert family.fall_back([SINK]) == {SINK: replace(local(SINK, 1, 1), handles=())}
    again = 1_000_001
    for event in (local(SOURCE, 2), local(SOURCE, 3), local(SINK, again, 2)):
        family.on_local(event, 6.0)
    assert family.ready
    order = family.begin(1, Barrier(4, "uncoordinated", 0.0), pause=False)
    assert order == StoreSlices(1, 4, {SOURCE: 3, SINK: again}, {CHANNEL: 0})
    committed = [one.handles[0]["file"] for one in family.on_whole(4)]
    assert committed == [f"{local_id(1, 1)}-0", f"{local_id(1, again)}-0"]


def without_a_line(job: Job) -> None:
    job.snapshots(local(SOURCE, 1))


def with_a_line(job: Job) -> None:
    job.snapshots(local(SOURCE, 1), local(SINK, 1, 1))


def while_restored_records_are_left(job: Job) -> None:
    job.snapshots(local(SOURCE, 1), local(SINK, 1, 1, done=None))


def during_a_savepoint(job: Job) -> None:
    with_a_line(job)
    assert isinstance(job.savepoint()[0], TriggerCheckpoint)


def while_it_is_away(job: Job) -> None:
    with_a_line(job)
    assert isinstance(job.tell(GONE, 19.0)[0], KeepFor)


@pytest.mark.parametrize(
    "before",
    [without_a_line, while_restored_records_are_left, during_a_savepoint, while_it_is_away],
)
def test_otherwise_the_whole_job_restarts(before: Callable[[Job], None]) -> None:
    job = Job()
    before(job)
    assert_whole(job, GONE)


@pytest.mark.parametrize(
    "event",
    [WorkerFailed(1, LOST, 0), WorkerFailed(1, LOST)],
    ids=["a worker that others read from", "nobody knows that it has ended"],
)
def test_only_a_worker_that_has_ended_and_sends_to_nobody_comes_back(event: WorkerFailed) -> None:
    job = on_the_line()
    assert_whole(job, event)


def test_one_that_would_meet_its_record_again_does_not_come_back() -> None:
    job = on_the_line()
    job.tell(WorkerFailed(1, BadRecordError("no JSON"), SINK_WORKER), 20.0)
    assert job.protocol.status is JobStatus.FAILED


def test_a_generation_with_restored_watermarks_restarts_as_a_whole() -> None:
    start = StartingPoint(watermarks={SINK: RestoredWatermarks(5, (5,))})
    job = Job(start)
    with_a_line(job)
    assert_whole(job, GONE)


def test_modes_with_barriers_have_nothing_to_fall_back_to() -> None:
    job = Job(mode="unaligned")
    assert_whole(job, GONE)


def assert_whole(job: Job, event: WorkerFailed) -> None:
    commands = job.tell(event, 20.0)
    assert commands[0] == StopWorkers(1, kill=True)
    assert any(isinstance(one, AnnounceRestart) for one in commands)
    assert not any(isinstance(one, KeepFor | AnnounceComeback) for one in commands)
    assert job.protocol.status is JobStatus.WAITING


def test_one_that_does_not_come_back_in_time_ends_the_generation() -> None:
    job = on_the_line()
    job.tell(GONE, 20.0)
    job.tell(TimerFired(BRING_BACK), 22.0)
    commands = job.tell(TimerFired(BACK), 92.0)
    assert commands[0] == StopWorkers(1, kill=True)
    [announced] = [one for one in commands if isinstance(one, AnnounceRestart)]
    assert str(announced.failure) == "1 subtasks did not start within 70 s"


def test_the_restart_strategy_counts_it() -> None:
    job = Job(attempts=1)
    with_a_line(job)
    job.tell(GONE, 20.0)
    job.tell(TimerFired(BRING_BACK), 22.0)
    job.tell(SubtaskStarted(1, SINK), 23.0)
    commands = job.tell(GONE, 30.0)
    assert job.protocol.status is JobStatus.FAILED
    assert StopWorkers(1, kill=True) in commands


def test_its_silence_says_nothing_while_it_is_away() -> None:
    job = on_the_line()
    job.tell(WorkerSeen(1, 0), 18.0)
    job.tell(WorkerSeen(1, SINK_WORKER), 1.0)
    job.tell(GONE, 19.0)
    look = TimerFired(Timer(TimerKind.LIVENESS, 1))
    assert [type(one) for one in job.tell(look, 30.0)] == [SetTimer]


def test_a_savepoint_waits_until_it_is_back() -> None:
    job = on_the_line()
    job.tell(GONE, 20.0)
    assert job.savepoint(21.0) == []
    job.tell(TimerFired(BRING_BACK), 22.0)
    trigger, *_ = job.tell(SubtaskStarted(1, SINK), 23.0)
    assert isinstance(trigger, TriggerCheckpoint)


def test_the_job_does_not_end_before_it_has_read_all_again() -> None:
    job = on_the_line()
    job.tell(SubtaskDrained(1, SINK), 6.0)
    job.tell(GONE, 6.0)
    assert job.tell(SubtaskDrained(1, SOURCE), 7.0) == []
    job.tell(TimerFired(BRING_BACK), 8.0)
    job.tell(SubtaskStarted(1, SINK), 8.5)
    trigger, *_ = job.tell(SubtaskDrained(1, SINK), 9.0)
    assert isinstance(trigger, TriggerCheckpoint)


def test_timers_of_an_earlier_absence_bring_nobody_back() -> None:
    job = on_the_line()
    job.tell(GONE, 20.0)
    job.tell(TimerFired(BRING_BACK), 22.0)
    job.tell(SubtaskStarted(1, SINK), 23.0)
    job.tell(GONE, 30.0)
    assert job.tell(TimerFired(BACK), 31.0) == []
    assert job.tell(TimerFired(BRING_BACK), 31.0) == []
    [again, _] = job.tell(TimerFired(Timer(TimerKind.BRING_BACK, 2)), 32.0)
    assert isinstance(again, BringBack)
    assert again.life == 2


def test_a_job_that_is_cancelled_meanwhile_brings_nobody_back() -> None:
    job = on_the_line()
    job.tell(GONE, 20.0)
    assert StopWorkers(1, kill=True) in job.tell(CancelRequested(), 21.0)
    assert job.tell(TimerFired(BRING_BACK), 22.0) == []


# Lines after a subtask has fallen back, against all cuts there are.


def _cuts(random: Random, tracker: LineTracker, stored: Mapping[SubtaskId, list[LocalCut]]) -> None:
    """Snapshots of a source and two sinks, each of which may fall back."""
    sinks = [SubtaskId(1, 0), SubtaskId(1, 1)]
    lives = dict.fromkeys(sinks, 0)
    for _ in range(random.randint(5, 25)):
        subtask = random.choice([SOURCE, *sinks])
        own = stored[subtask]
        if subtask == SOURCE:
            own.append(LocalCut(own[-1].number + 1))
            tracker.add(SOURCE, own[-1])
            continue
        if random.random() < 0.3:
            tracker.fall_back(subtask)
            on_line = tracker.line[subtask]
            own[:] = [cut for cut in own if cut.number <= on_line]
            lives[subtask] += 1
        least = dict(own[-1].needs).get(SOURCE, 0)
        need = random.randint(least, stored[SOURCE][-1].number + 1)
        number = max(own[-1].number, 1000 * lives[subtask]) + 1
        own.append(LocalCut(number, ((SOURCE, need),)))
        tracker.add(subtask, own[-1])
        assert dict(tracker.line) == _greatest(stored)


def _greatest(stored: Mapping[SubtaskId, list[LocalCut]]) -> dict[SubtaskId, int]:
    """Of all cuts that hold no orphan, the one that is ahead of all others."""
    consistent = [
        {subtask: cut.number for subtask, cut in chosen.items()}
        for chosen in _choices(stored)
        if all(
            chosen[sender].number >= need for cut in chosen.values() for sender, need in cut.needs
        )
    ]
    return {subtask: max(cut[subtask] for cut in consistent) for subtask in stored}


def _choices(stored: Mapping[SubtaskId, list[LocalCut]]) -> Iterator[dict[SubtaskId, LocalCut]]:
    for chosen in product(*stored.values()):
        yield dict(zip(stored, chosen, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_the_greatest_cut_of_what_still_counts(seed: int) -> None:
    subtasks = [SOURCE, SubtaskId(1, 0), SubtaskId(1, 1)]
    stored = {subtask: [LocalCut(0)] for subtask in subtasks}
    _cuts(Random(seed), LineTracker(subtasks), stored)
