"""What every checkpoint mode must do; a new one inherits this class and offers a `mode` fixture."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirt.protocol.barriers import (
    AbortSnapshot,
    Barrier,
    BarrierHandler,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    ScheduleTimer,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    UnblockChannels,
)
from minirt.testing import Faults
from tests.simulation.counting import CountingJob

Wire = list["int | Mark"]
"""What comes through a channel: records, and barriers."""


@dataclass(frozen=True)
class Mark:
    """A barrier of this checkpoint."""

    id: int


@st.composite
def wires(draw: st.DrawFn) -> list[Wire]:
    """One to four channels with the barriers of the same checkpoints; some end before the last ones."""
    checkpoints = draw(st.integers(1, 3))
    channels = draw(st.integers(1, 4))
    drawn: list[Wire] = []
    for channel in range(channels):
        # Channel 0 stays to the end, so that every checkpoint is taken.
        last = checkpoints if channel == 0 else draw(st.integers(0, checkpoints))
        wire: Wire = []
        for id in range(1, last + 1):
            wire += [*draw(st.lists(st.integers(1, 9), max_size=3)), Mark(id)]
        drawn.append([*wire, *draw(st.lists(st.integers(1, 9), max_size=3))])
    return drawn


@dataclass
class Sum:
    """A subtask that sums its records. The test decides when each element arrives and when it is read."""

    mode: CheckpointMode
    wires: list[Wire]
    total: int = 0
    taken: dict[int, int] = field(default_factory=dict)
    """What each snapshot holds, captured records included."""
    capturing: dict[int, int] = field(default_factory=dict)
    """The checkpoint that each channel's arriving records join."""
    finished: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    timers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.wires)
        self.handler = BarrierHandler(range(count), {self.mode.name: self.mode})
        self.under_way = [deque(wire) for wire in self.wires]
        self.queues: list[deque[int | Mark]] = [deque() for _ in range(count)]
        self.open = set(range(count))

    def steps(self) -> list[tuple[str, int]]:
        """What could happen next."""
        return [
            *(("arrive", channel) for channel, wire in enumerate(self.under_way) if wire),
            *(
                ("read", channel)
                for channel, queue in enumerate(self.queues)
                if channel not in self.blocked
                and (queue or (channel in self.open and not self.under_way[channel]))
            ),
            *(("timer", id) for id in self.timers),
        ]

    def take(self, step: tuple[str, int]) -> None:
        kind, number = step
        getattr(self, kind)(number)

    def arrive(self, channel: int) -> None:
        element = self.under_way[channel].popleft()
        self.queues[channel].append(element)
        if isinstance(element, Mark):
            self.execute(self.handler.on_arrived(channel, self.barrier(element), 0.0))
        elif channel in self.capturing:
            self.taken[self.capturing[channel]] += element

    def read(self, channel: int) -> None:
        """The next element, or the end."""
        assert channel not in self.blocked
        if not self.queues[channel]:
            self.open.discard(channel)
            self.execute(self.handler.on_channel_ended(channel, 0.0))
            return
        element = self.queues[channel].popleft()
        if isinstance(element, Mark):
            self.execute(self.handler.on_reached(channel, self.barrier(element), 0.0))
        else:
            self.total += element

    def timer(self, checkpoint_id: int) -> None:
        self.timers.remove(checkpoint_id)
        self.execute(self.handler.on_timer(checkpoint_id, 0.0))

    def barrier(self, mark: Mark) -> Barrier:
        return Barrier(mark.id, self.mode.name, created_at=0.0)

    def execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannels():
                    self.blocked.clear()
                case ScheduleTimer(id, _):
                    self.timers.append(id)
                case TakeSnapshot(barrier):
                    self.snapshot(barrier)
                case StartCapture(channels):
                    self.capturing = dict.fromkeys(channels, max(self.taken))
                case StopCapture(channel):
                    self.capturing.pop(channel, None)
                case FinishSnapshot(id, _, _):
                    self.finished.append(id)
                    self.capturing.clear()
                case AbortSnapshot(id):
                    self.aborted.append(id)
                    self.taken.pop(id, None)
                    self.capturing.clear()

    def snapshot(self, barrier: Barrier) -> None:
        """State, and what the barrier overtakes in the queues."""
        assert barrier.checkpoint_id not in self.taken
        self.taken[barrier.checkpoint_id] = self.total
        if barrier.overtook:
            own = Mark(barrier.checkpoint_id)
            ahead = [takewhile(lambda element: element != own, queue) for queue in self.queues]
            records = (e for queue in ahead for e in queue if isinstance(e, int))
            self.taken[barrier.checkpoint_id] += sum(records)


def run(subtask: Sum, choices: Iterator[int]) -> None:
    """Let things happen in the order of the choices, until nothing can."""
    while steps := subtask.steps():
        subtask.take(steps[next(choices) % len(steps)])


def endless(choices: list[int]) -> Iterator[int]:
    yield from choices
    number = 0
    while True:
        number += 1
        yield number


def sum_before(wires: list[Wire], checkpoint_id: int) -> int:
    """The records ahead of a barrier; all those of a channel that ends before it."""
    total = 0
    for wire in wires:
        for element in wire:
            if element == Mark(checkpoint_id):
                break
            total += element if isinstance(element, int) else 0
    return total


SCHEDULES = st.lists(st.integers(0, 99), max_size=80)


class ModeContract:
    """Tests of a checkpoint mode given by the fixture `mode`."""

    # Whole jobs per test of exactly-once; in the suite of a slow machine, fewer will do.
    simulated_jobs = 60

    @given(wires=wires(), schedule=SCHEDULES)
    @settings(max_examples=200)
    def test_all_records_are_read_and_all_channels_free_in_the_end(
        self, mode: CheckpointMode, wires: list[Wire], schedule: list[int]
    ) -> None:
        subtask = Sum(mode, wires)
        run(subtask, endless(schedule))
        assert subtask.blocked == set()
        assert not any(subtask.queues)
        assert subtask.total == sum(e for wire in wires for e in wire if isinstance(e, int))
        assert subtask.handler.current is None

    @given(wires=wires(), schedule=SCHEDULES)
    @settings(max_examples=200)
    def test_each_checkpoint_is_taken_once_and_finished_or_subsumed(
        self, mode: CheckpointMode, wires: list[Wire], schedule: list[int]
    ) -> None:
        subtask = Sum(mode, wires)
        run(subtask, endless(schedule))
        begun = {element.id for wire in wires for element in wire if isinstance(element, Mark)}
        assert sorted({*subtask.finished, *subtask.aborted}) == sorted(begun)
        assert subtask.finished == sorted(set(subtask.finished))
        assert set(subtask.taken) == set(subtask.finished)
        assert max(begun) in subtask.finished

    @given(wires=wires(), schedule=SCHEDULES)
    @settings(max_examples=300)
    def test_an_exactly_once_snapshot_is_a_consistent_cut(
        self, mode: CheckpointMode, wires: list[Wire], schedule: list[int]
    ) -> None:
        subtask = Sum(mode, wires)
        run(subtask, endless(schedule))
        for checkpoint_id, total in subtask.taken.items():
            before = sum_before(wires, checkpoint_id)
            assert total == before if mode.exactly_once else total >= before

    @given(wires=wires(), schedule=SCHEDULES, abort_at=st.integers(0, 40), data=st.data())
    @settings(max_examples=200)
    def test_an_abort_at_any_time_blocks_nothing_for_ever(
        self,
        mode: CheckpointMode,
        wires: list[Wire],
        schedule: list[int],
        abort_at: int,
        data: Any,
    ) -> None:
        subtask = Sum(mode, wires)
        choices = endless(schedule)
        for _ in range(abort_at):
            if not (steps := subtask.steps()):
                break
            subtask.take(steps[next(choices) % len(steps)])
        aborted = data.draw(st.integers(1, 3), label="aborted")
        finished_before = list(subtask.finished)
        subtask.execute(subtask.handler.on_abort(aborted))
        run(subtask, choices)
        assert subtask.blocked == set()
        assert not any(subtask.queues)
        later = [id for id in subtask.finished if id not in finished_before]
        assert all(id > aborted for id in later)

    def test_whole_jobs_survive_crashes(self, mode: CheckpointMode) -> None:
        for seed in range(self.simulated_jobs):
            job = CountingJob([2, 3])
            job.run(seed, mode=mode).check()
            assert job.wrong(exactly_once=mode.exactly_once) == [], f"seed {seed}"

    def test_without_faults_every_mode_gives_each_record_once(self, mode: CheckpointMode) -> None:
        for seed in range(10):
            job = CountingJob([2])
            job.run(seed, mode=mode, faults=Faults.none()).check()
            assert job.wrong() == [], f"seed {seed}"


@pytest.fixture
def mode() -> CheckpointMode:
    raise NotImplementedError("a suite that inherits the contract offers its mode")
