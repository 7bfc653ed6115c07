"""What every checkpoint mode must do; a new one inherits this class and offers a `mode` fixture."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from minirt.protocol.barrier_handler import BarrierHandler
from minirt.protocol.barriers import (
    AbortSnapshot,
    Barrier,
    BlockChannel,
    CheckpointMode,
    Command,
    FinishSnapshot,
    OvertakeOutputs,
    ScheduleTimer,
    StartCapture,
    StopCapture,
    TakeSnapshot,
    UnblockChannels,
    WatchOutputs,
    may_overlap,
)

END = "end"
Element = int | str
"""In a wire: a record (positive), the barrier of checkpoint `n` as `-n`, or END."""
Wire = list[Element]
Step = tuple[str, int]


@st.composite
def wires(draw: st.DrawFn) -> list[Wire]:
    """Up to three channels with distinct records and all barriers; some end before one of these."""
    checkpoints = draw(st.integers(1, 2))
    result: list[Wire] = []
    record = 1
    for _ in range(draw(st.integers(1, 3))):
        wire: Wire = []
        for checkpoint_id in range(1, checkpoints + 2):
            for _ in range(draw(st.integers(0, 3))):
                wire.append(record)
                record += 1
            wire.append(-checkpoint_id if checkpoint_id <= checkpoints else END)
        if draw(st.integers(0, 3)) == 0:
            wire = [*wire[: draw(st.integers(0, len(wire) - 1))], END]
        result.append(wire)
    return result


def schedules() -> st.SearchStrategy[list[Step]]:
    """In which order what was sent arrives, is read and sent on, and timers fire."""
    steps = st.sampled_from(["arrive", "arrive", "read", "read", "send", "timers"])
    return st.lists(st.tuples(steps, st.integers(0, 2)), max_size=40)


def channel_sets() -> st.SearchStrategy[frozenset[int]]:
    """Which channels forbid to capture their data: mostly none."""
    return st.one_of(st.just(frozenset[int]()), st.frozensets(st.integers(0, 2)))


@dataclass
class Cut:
    """What one snapshot holds."""

    state: frozenset[int]
    captured: set[int]
    """Records of input channels."""
    overtaken: set[int]
    """Records of the output queue."""

    @property
    def records(self) -> set[int]:
        return {*self.state, *self.captured}


@dataclass
class SimulatedSubtask:
    """Collects its records and sends them on. The schedule decides when each element arrives, is read,
    and leaves the output queue. Every record counts as one byte.
    """

    mode: CheckpointMode
    sent: list[Wire]
    uncapturable: frozenset[int] = frozenset()
    overlap: bool = False
    """Whether all checkpoints are under way at once; else each ends those before it."""
    now: float = 0.0
    state: set[int] = field(default_factory=set)
    blocked: set[int] = field(default_factory=set)
    capturing: frozenset[int] = frozenset()
    taken: dict[int, Cut] = field(default_factory=dict)
    """Snapshots whose end is still to come."""
    snapshots: dict[int, Cut] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)
    timers: list[tuple[float, int]] = field(default_factory=list)
    outputs: deque[int] = field(default_factory=deque)
    """Records and barriers that were not sent on yet."""
    left: list[int] = field(default_factory=list)
    """Records and barriers that were sent on."""
    watched: int | None = None

    def __post_init__(self) -> None:
        channels = range(len(self.sent))
        self.uncapturable &= frozenset(channels)
        modes = {self.mode.name: self.mode}
        self.barriers = BarrierHandler(channels, modes, self.uncapturable)
        self.wires = [deque(wire) for wire in self.sent]
        self.queues: list[deque[Element]] = [deque() for _ in channels]

    def run(self, schedule: list[Step]) -> None:
        """Follow the schedule, then let everything arrive, be read and be sent on."""
        for step, channel in schedule:
            self.step(step, channel)
        for channel in range(len(self.sent)):
            while self.wires[channel]:
                self.arrive(channel)
        while readable := [c for c in range(len(self.sent)) if self.may_read(c)]:
            for channel in readable:
                self.step("read", channel)
        while self.outputs:
            self.send()

    def step(self, step: str, channel: int) -> None:
        self.now += 1.0
        if channel >= len(self.sent):
            return
        if step == "arrive" and self.wires[channel]:
            self.arrive(channel)
        elif step == "read" and self.may_read(channel):
            self.read(channel)
        elif step == "send" and self.outputs:
            self.send()
        elif step == "timers":
            self.fire_timers()

    def may_read(self, channel: int) -> bool:
        return bool(self.queues[channel]) and channel not in self.blocked

    def arrive(self, channel: int) -> None:
        element = self.wires[channel].popleft()
        self.queues[channel].append(element)
        if is_barrier(element):
            self.execute(self.barriers.on_arrived(channel, self.barrier(element), self.now))
        elif isinstance(element, int) and channel in self.capturing:
            for cut in self.taken.values():
                cut.captured.add(element)

    def read(self, channel: int) -> None:
        element = self.queues[channel].popleft()
        if element == END:
            self.execute(self.barriers.on_channel_ended(channel, self.now))
        elif is_barrier(element):
            self.execute(self.barriers.on_reached(channel, self.barrier(element), self.now))
        else:
            assert isinstance(element, int)
            self.state.add(element)
            self.outputs.append(element)

    def send(self) -> None:
        self.left.append(self.outputs.popleft())
        self.look_at_watched()

    def look_at_watched(self) -> None:
        checkpoint_id = self.watched
        if checkpoint_id is not None and -checkpoint_id not in self.outputs:
            self.watched = None
            self.execute(self.barriers.on_outputs_passed(checkpoint_id))

    def fire_timers(self) -> None:
        due = [checkpoint_id for at, checkpoint_id in self.timers if at <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for checkpoint_id in due:
            size = self.capture_bytes()
            self.execute(self.barriers.on_timer(checkpoint_id, self.now, capture_bytes=size))

    def barrier(self, element: Element) -> Barrier:
        assert isinstance(element, int)
        oldest_id = 1 if self.overlap and element < -1 else None
        return Barrier(-element, self.mode.name, created_at=0.0, oldest_id=oldest_id)

    def execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case BlockChannel(channel):
                    self.blocked.add(channel)
                case UnblockChannels():
                    self.blocked.clear()
                case ScheduleTimer(checkpoint_id, at):
                    self.timers.append((at, checkpoint_id))
                case TakeSnapshot(barrier, capture, _, overtake):
                    assert not self.taken, "a snapshot was taken before the last one had ended"
                    self.take(barrier.checkpoint_id, capture, overtake)
                case StartCapture(channels):
                    assert not channels & self.uncapturable
                    self.capturing = channels
                case StopCapture(channel):
                    self.capturing -= {channel}
                case WatchOutputs(checkpoint_id):
                    self.watched = checkpoint_id
                    self.look_at_watched()
                case OvertakeOutputs(checkpoint_id):
                    self.watched = None
                    self.taken[checkpoint_id].overtaken = self.move_ahead(checkpoint_id)
                case FinishSnapshot(checkpoint_id):
                    assert checkpoint_id not in self.snapshots, "a checkpoint finished twice"
                    self.snapshots[checkpoint_id] = self.taken.pop(checkpoint_id)
                    assert not self.capturing - self.ended, "a finished snapshot still captured"
                    self.capturing = frozenset()
                case AbortSnapshot(checkpoint_id):
                    self.taken.pop(checkpoint_id, None)
                    self.capturing = frozenset()
                    self.watched = None
                    self.aborted.append(checkpoint_id)
        if any(isinstance(command, ScheduleTimer) for command in commands):
            self.fire_timers()

    def take(self, checkpoint_id: int, capture: frozenset[int] | None, overtake: bool) -> None:
        cut = Cut(frozenset(self.state), set(), set())
        self.outputs.append(-checkpoint_id)
        if capture is not None:
            assert not capture & self.uncapturable
            cut.captured = self.queued(checkpoint_id, capture)
        if capture is not None and overtake:
            cut.overtaken = self.move_ahead(checkpoint_id)
        self.taken[checkpoint_id] = cut

    @property
    def ended(self) -> set[int]:
        """Channels from which nothing more can come."""
        return {c for c in range(len(self.sent)) if not self.wires[c]}

    def queued(self, checkpoint_id: int, channels: frozenset[int]) -> set[int]:
        """The records that are queued ahead of the barrier, all of a queue if it is not there yet."""
        queues = [list(self.queues[channel]) for channel in channels]
        return {r for queue in queues for r in records(before(queue, checkpoint_id))}

    def move_ahead(self, checkpoint_id: int) -> set[int]:
        """Let the barrier overtake what it has not left behind; returns the records among that."""
        overtaken = set(records(before(list(self.outputs), checkpoint_id)))
        self.outputs.remove(-checkpoint_id)
        self.outputs.appendleft(-checkpoint_id)
        return overtaken

    def capture_bytes(self) -> int:
        alignment = self.barriers.current
        if alignment is None:
            return 0
        id = alignment.barrier.checkpoint_id
        sent_on = len(records(before(list(self.outputs), id)))
        if alignment.snapshot_taken:
            return sent_on
        return sent_on + len(self.queued(id, alignment.channels - alignment.reached))


def is_barrier(element: Element) -> bool:
    return isinstance(element, int) and element < 0


def before(wire: Sequence[Element], checkpoint_id: int) -> Sequence[Element]:
    return wire[: wire.index(-checkpoint_id)] if -checkpoint_id in wire else wire


def records(wire: Sequence[Element]) -> list[int]:
    return [element for element in wire if isinstance(element, int) and element > 0]


def checkpoints_of(sent: list[Wire]) -> set[int]:
    return {-e for wire in sent for e in wire if isinstance(e, int) and e < 0}


class ModeContract:
    """Tests of the checkpoint mode given by the fixture `mode`, in one simulated subtask."""

    def test_says_what_it_is(self, mode: CheckpointMode) -> None:
        assert isinstance(mode.name, str)
        assert isinstance(mode.exactly_once, bool)

    @given(sent=wires(), schedule=schedules(), uncapturable=channel_sets())
    def test_every_record_is_processed_and_no_channel_stays_blocked(
        self,
        mode: CheckpointMode,
        sent: list[Wire],
        schedule: list[Step],
        uncapturable: frozenset[int],
    ) -> None:
        subtask = SimulatedSubtask(mode, sent, uncapturable)
        subtask.run(schedule)
        assert subtask.state == {record for wire in sent for record in records(wire)}
        assert sorted(records(subtask.left)) == sorted(subtask.state)
        assert subtask.blocked == set()

    @given(sent=wires(), schedule=schedules(), uncapturable=channel_sets())
    def test_every_checkpoint_ends_once_and_the_newest_with_a_snapshot(
        self,
        mode: CheckpointMode,
        sent: list[Wire],
        schedule: list[Step],
        uncapturable: frozenset[int],
    ) -> None:
        subtask = SimulatedSubtask(mode, sent, uncapturable)
        subtask.run(schedule)
        began = checkpoints_of(sent)
        assert set(subtask.snapshots) | set(subtask.aborted) <= began
        assert not set(subtask.snapshots) & set(subtask.aborted)
        assert len(set(subtask.aborted)) == len(subtask.aborted)
        assert not began or max(began) in subtask.snapshots
        assert (subtask.taken, subtask.barriers.current) == ({}, None)

    @given(sent=wires(), schedule=schedules(), uncapturable=channel_sets())
    def test_every_snapshot_holds_the_records_before_its_barriers(
        self,
        mode: CheckpointMode,
        sent: list[Wire],
        schedule: list[Step],
        uncapturable: frozenset[int],
    ) -> None:
        subtask = SimulatedSubtask(mode, sent, uncapturable)
        subtask.run(schedule)
        for checkpoint_id, cut in subtask.snapshots.items():
            wanted = {r for wire in sent for r in records(before(wire, checkpoint_id))}
            assert cut.records == wanted if mode.exactly_once else cut.records >= wanted
            assert not cut.state & cut.captured

    @given(sent=wires(), schedule=schedules(), uncapturable=channel_sets())
    def test_every_record_in_state_was_sent_on_before_the_barrier_or_is_captured(
        self,
        mode: CheckpointMode,
        sent: list[Wire],
        schedule: list[Step],
        uncapturable: frozenset[int],
    ) -> None:
        subtask = SimulatedSubtask(mode, sent, uncapturable)
        subtask.run(schedule)
        for checkpoint_id, cut in subtask.snapshots.items():
            ahead = set(records(before(subtask.left, checkpoint_id)))
            assert ahead | cut.overtaken == cut.state
            assert not ahead & cut.overtaken

    @given(sent=wires(), schedule=schedules())
    def test_of_checkpoints_that_may_overlap_each_has_its_snapshot(
        self, mode: CheckpointMode, sent: list[Wire], schedule: list[Step]
    ) -> None:
        overlap = may_overlap(mode)
        subtask = SimulatedSubtask(mode, sent, overlap=overlap)
        subtask.run(schedule)
        began = checkpoints_of(sent)
        assert subtask.snapshots.keys() >= (began if overlap else {*sorted(began)[-1:]})
        for checkpoint_id, cut in subtask.snapshots.items():
            wanted = {r for wire in sent for r in records(before(wire, checkpoint_id))}
            assert cut.records == wanted if mode.exactly_once else cut.records >= wanted

    @given(sent=wires(), schedule=schedules(), abort_at=st.integers(0, 40))
    def test_abort_at_any_time_leaves_a_subtask_that_goes_on(
        self, mode: CheckpointMode, sent: list[Wire], schedule: list[Step], abort_at: int
    ) -> None:
        subtask = SimulatedSubtask(mode, sent)
        for step, channel in schedule[:abort_at]:
            subtask.step(step, channel)
        done = 1 in subtask.snapshots
        subtask.execute(subtask.barriers.on_abort(1))
        subtask.run(schedule[abort_at:])
        assert subtask.state == {record for wire in sent for record in records(wire)}
        assert (1 in subtask.snapshots) == done
        assert (subtask.blocked, subtask.taken, subtask.barriers.current) == (set(), {}, None)
