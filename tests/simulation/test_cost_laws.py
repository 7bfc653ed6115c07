"""Laws of cost in simulated jobs: what waits in queues, what checkpoints look at, and who is woken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from minirt.modes import MODES
from minirt.protocol.checkpoints import CheckpointCoordinator
from minirt.protocol.ids import SubtaskId
from minirt.protocol.trigger_times import TriggerTimes
from minirt.runtime.channels.queue import FrameQueue
from minirt.runtime.input.gate_input import GateInput
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing import Faults
from minirt.testing.worker import SimulatedWorker
from tests.campaigns import sampled
from tests.simulation.counting import MARKED, SPILLING, CountingJob

Patch = pytest.MonkeyPatch
SEEDS = sampled(12)
OVERLAPPING = ("aligned", "at_least_once")


def queues_of(subtask: Subtask) -> Iterator[FrameQueue]:
    if isinstance(subtask.input, GateInput):
        yield from (end.frames for end in subtask.input._gate.channels)
    yield from (end._frames for link in subtask.outputs.links for end in link.channels)


def after_each_step(patch: Patch, look: Callable[[SimulatedWorker], None]) -> None:
    """Have something looked at whenever a worker has done anything."""
    guard = SimulatedWorker.guard

    def guard_and_look(worker: SimulatedWorker, action: Callable[[], object]) -> None:
        guard(worker, action)
        if not worker.gone:
            look(worker)

    patch.setattr(SimulatedWorker, "guard", guard_and_look)


def run(seed: int, mode: str, most: int = 1) -> CountingJob:
    job = CountingJob([2, 3] if seed % 2 else [3])
    options = (None, MARKED, SPILLING)[seed % 3]
    job.run(seed, mode, options=options, max_concurrent=most)
    return job


@pytest.mark.parametrize(
    ("mode", "most"), [*((mode, 1) for mode in MODES), *((mode, 3) for mode in OVERLAPPING)]
)
def test_a_queue_holds_no_barrier_of_a_checkpoint_that_is_known_to_be_over(
    mode: str, most: int, monkeypatch: Patch
) -> None:
    looked: Counter[str] = Counter()

    def look(worker: SimulatedWorker) -> None:
        for built in worker.assembled.values():
            over = built.subtask._checkpoints._barriers.is_over
            for queue in queues_of(built.subtask):
                assert queue.barriers <= most
                looked["barriers"] += queue.barriers
            if isinstance(built.subtask.input, GateInput):
                for end in built.subtask.input._gate.channels:
                    assert not [id for id in end.frames._barriers if over(id)]

    after_each_step(monkeypatch, look)
    for seed in range(SEEDS):
        run(seed, mode, most)
    assert looked["barriers"]


@pytest.mark.parametrize("mode", MODES)
def test_a_subtask_that_can_work_was_told_so(mode: str, monkeypatch: Patch) -> None:
    """A worker asks only those that something has happened to since, or whose moment has come."""
    stirred: set[tuple[int, SubtaskId]] = set()
    asleep: dict[tuple[int, SubtaskId], float | None] = {}
    """Until when nobody asks them; None: until something happens."""
    told: Counter[str] = Counter()

    def stir(key: tuple[int, SubtaskId]) -> None:
        stirred.add(key)
        told["stirred"] += 1

    assemble, work, wake = SimulatedWorker._assemble, SimulatedWorker.work, SimulatedWorker.wake
    obey = SimulatedWorker._obey

    def stir_all(worker: SimulatedWorker) -> None:
        for id in worker.assembled:
            stir((builtin_id(worker), id))

    def assemble_and_listen(worker: SimulatedWorker) -> None:
        assemble(worker)
        for id, built in worker.assembled.items():
            subtask = built.subtask
            subtask.changed = subtask.outputs.changed = partial(stir, (builtin_id(worker), id))
        kept.append(worker)
        stir_all(worker)

    def work_and_note(worker: SimulatedWorker, actor: Any) -> bool:
        stir((builtin_id(worker), actor.subtask.id))
        return work(worker, actor)

    def wake_and_note(worker: SimulatedWorker, id: SubtaskId) -> None:
        stir((builtin_id(worker), id))
        wake(worker, id)

    def obey_and_note(worker: SimulatedWorker) -> None:
        obey(worker)
        stir_all(worker)  # As a worker does that loses another one, or has it back.

    kept: list[SimulatedWorker] = []
    """So that none has the number of another one."""
    monkeypatch.setattr(SimulatedWorker, "_assemble", assemble_and_listen)
    monkeypatch.setattr(SimulatedWorker, "work", work_and_note)
    monkeypatch.setattr(SimulatedWorker, "wake", wake_and_note)
    monkeypatch.setattr(SimulatedWorker, "_obey", obey_and_note)

    def look(worker: SimulatedWorker) -> None:
        now = worker.clock.monotonic()
        for id, built in worker.assembled.items():
            key, subtask = (builtin_id(worker), id), built.subtask
            if key in stirred or key not in asleep:
                stirred.discard(key)
                asleep.pop(key, None)
                if not subtask.runnable:
                    asleep[key] = subtask.wake_at
                continue
            at = asleep[key]
            if at is None or now < at:
                told["asleep"] += 1
                assert not subtask.runnable, f"nobody told {subtask.name} that it can work"
            else:
                del asleep[key]

    after_each_step(monkeypatch, look)
    for seed in range(SEEDS):
        run(seed, mode)
    assert told["stirred"]
    assert told["asleep"]


builtin_id = id


@pytest.mark.parametrize("mode", MODES)
def test_what_a_checkpoint_looks_at_is_bounded_by_channels_and_data(
    mode: str, monkeypatch: Patch
) -> None:
    """Each queue is asked once at most for what lies ahead of a barrier, and gives data only."""
    asked: Counter[tuple[int, int, int]] = Counter()
    data_ahead = FrameQueue.data_ahead
    queues: list[FrameQueue] = []

    def count(self: FrameQueue, checkpoint_id: int | None) -> Any:
        found = data_ahead(self, checkpoint_id)
        assert all(frame.is_data for frame in found)
        if checkpoint_id is not None:
            queues.append(self)
            asked[builtin_id(self), checkpoint_id, 0] += 1
        return found

    monkeypatch.setattr(FrameQueue, "data_ahead", count)
    for seed in range(SEEDS):
        run(seed, mode)
    assert all(times <= 1 for times in asked.values())
    overtakes = mode not in ("aligned", "at_least_once", "epoch", "aligned_with_timeout")
    assert bool(asked) or not overtakes


@pytest.mark.parametrize("mode", MODES)
def test_records_get_their_share(mode: str, monkeypatch: Patch) -> None:
    """Between two checkpoints that nobody has asked for, also where storage makes them long."""
    triggered: dict[int, float] = {}
    """By coordinator, when its last periodic checkpoint began, and then when that was over."""
    rests: list[tuple[float, float]] = []
    """How long checkpoints left no room for another one, and how long none began behind that."""
    ended: dict[int, tuple[float, float]] = {}
    on_full, on_room = TriggerTimes.on_full, TriggerTimes.on_room
    urgent = mode in ("uncoordinated", "communication_induced")

    def begin(self: TriggerTimes, now: float) -> None:
        known = ended.pop(builtin_id(self), None)
        if known is not None:
            took_s, at = known
            rests.append((took_s, now - at))
        triggered[builtin_id(self)] = now
        on_full(self, now)

    def end(self: TriggerTimes, now: float) -> float:
        began = triggered.pop(builtin_id(self), None)
        if began is not None:
            ended[builtin_id(self)] = (now - began, now)
            kept.append(self)
        return on_room(self, now)

    kept: list[TriggerTimes] = []
    monkeypatch.setattr(TriggerTimes, "on_full", begin)
    monkeypatch.setattr(TriggerTimes, "on_room", end)
    monkeypatch.setattr(CheckpointCoordinator, "_all_drained", False)
    for seed in range(SEEDS):
        job = CountingJob([2])
        job.run(seed, mode, Faults(slow_storage=12), steps_max=4000)
    assert rests
    if not urgent:  # There one may have to begin early, since records wait for it.
        assert all(rest_s >= took_s * (1 - 1e-9) for took_s, rest_s in rests)
