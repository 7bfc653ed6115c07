"""What a barrier or a slow call has put into the queues leaves before the next call begins.

So a slow function holds a barrier, and its own output, for one call, wherever it stands in its job.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cloudpickle
import pytest

import minirt as rt
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.operators.common.mailbox import Mailbox
from minirt.protocol.barriers import Barrier
from minirt.protocol.ids import SubtaskId
from minirt.runtime.channels.frames import Frame, Kind, barrier_frame, watermark_frame
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import Assembled, assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.runtime.worker.roster import Roster
from minirt.runtime.worker.worker import Worker
from tests.runtime.processes import wait_until
from tests.runtime.signals import Signals


class Clock:
    """Goes on only where a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Middle:
    """The subtask in the middle of source > slow > sink, with one channel in and one out."""

    def __init__(self, mode: str, **options: Any) -> None:
        env = rt.Environment()
        source = env.source(rt.SequenceSource.endless()).rebalance()
        source.map(lambda number: number, chain=False).rebalance().sink(
            rt.DiscardSink(), chain=False
        )
        graph = build_execution_graph(env.graph())
        package = JobPackage(cloudpickle.dumps(graph), rt.Options(**options), MODES, None)
        self.clock, self.mode = Clock(), mode
        self.uploads: list[Any] = []
        ports = LocalPorts(self.clock, self.uploads.append, lambda subtask: None)
        self.built: Assembled = assemble(
            package, Deployment(1), SubtaskId(1, 0), ports, TimedPacer(60.0), lambda channel: None
        )
        (self.output,) = self.built.outputs.values()

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.built.subtask.on_frame(0, frame)

    def barrier(self) -> Frame:
        return barrier_frame(Barrier(1, self.mode, 0.0))

    def turn(self) -> list[Kind]:
        """A slice, and what is sent behind it."""
        self.built.subtask.run_slice()
        return self.sent()

    def sent(self) -> list[Kind]:
        self.built.subtask.on_time()
        return [frame.kind for frame in iter(self.output.poll, None)]


def rows(*records: Any) -> Frame:
    return Frame(Kind.ROWS, RowCodec().encode(Rows(list(records))), len(records))


def test_a_slice_ends_behind_what_others_wait_for() -> None:
    middle = Middle("aligned", buffer_timeout="1d")
    middle.send(rows(1), watermark_frame(5), rows(2), middle.barrier(), rows(3))
    assert middle.turn() == [Kind.ROWS, Kind.WATERMARK]
    assert len(middle.uploads) == 0
    assert middle.turn() == [Kind.ROWS, Kind.BARRIER]
    assert len(middle.uploads) == 1
    assert middle.turn() == []


@pytest.mark.parametrize(("call_s", "calls"), [(0.3, 1), (0.004, 3), (0.011, 1)])
def test_output_is_due_its_timeout_after_the_slice_began_that_made_it(
    call_s: float, calls: int
) -> None:
    """So it waits for no call that is as long as the one that made it and ends behind the timeout."""
    middle = Middle("aligned", buffer_timeout="10ms")
    subtask = middle.built.subtask
    subtask._pacer = SimpleNamespace(  # type: ignore[assignment]
        begin=lambda: None, piece=lambda columns: 1, done=lambda records, columns: records > 0
    )
    process, until = subtask.chain.process, []

    def slow(batch: Any, *where: int) -> None:
        middle.clock.seconds += call_s
        process(batch, *where)

    subtask.chain.process = slow  # type: ignore[method-assign]
    middle.send(rows(*range(10)))
    while not until or not until[-1]:
        until.append(middle.turn())
    assert len(until) == calls


def test_a_worker_looks_around_and_sends_before_each_slice() -> None:
    worker, done = Worker.__new__(Worker), []

    class One:
        def __init__(self, name: str) -> None:
            self.id = self.name = name
            self.runnable, self.has_input, self.wake_at = True, True, None
            self.outputs = SimpleNamespace(full=False)
            self.changed = lambda: None
            self.input = SimpleNamespace(held_by_drift=False)

        def on_time(self) -> None:
            done.append(f"clock of {self.name}")

        def run_slice(self) -> None:
            done.append(f"slice of {self.name}")
            for one in subtasks:  # Each slice concerns both, as one that emits to another here.
                one.changed()
            if done.count(f"slice of {self.name}") == 2:
                worker._stopping = True

        def close(self) -> None: ...

    def select(timeout: float) -> Sequence[Any]:
        done.append("receive")
        return []

    subtasks = [One("a"), One("b")]
    vars(worker).update(
        subtasks=subtasks,
        _stopping=False,
        _served=False,
        _working=[],
        _mail=deque(),
        _heartbeat_at=None,
        clock=Clock(),
        _roster=Roster(cast(Any, subtasks)),
        _uploaded=Mailbox(),
        _uploader=SimpleNamespace(tell_results=lambda: None),
        _on_control=lambda: None,
        _selector=SimpleNamespace(select=select),
        _wiring=SimpleNamespace(move_frames=lambda: done.append("send")),
        _time={one.id: SimpleNamespace(turn_to=lambda *of: None) for one in subtasks},
        _beat=lambda: None,
        _long_calls=SimpleNamespace(watched=nullcontext),
        _report=lambda: None,
    )
    worker.run()
    slices = [place for place, what in enumerate(done) if what.startswith("slice")]
    assert [done[place] for place in slices] == ["slice of a", "slice of b", "slice of a"]
    for place in slices:
        before = done[place - 4 : place]
        assert before == ["receive", "clock of a", "clock of b", "send"]


class Numbers(rt.Source):
    """Gives the signal "triggered" when it is snapshotted for the first checkpoint."""

    bounded = False

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split("0", {})]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self._signals)


class _Reader(rt.SplitReader):
    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._count = 0

    @property
    def offset(self) -> Any:
        if self._count and self._signals.given("slow"):
            self._signals.give("triggered")
        return self._count

    def read(self) -> list[Any]:
        self._count += 1
        return [self._count]


class Telling(rt.Sink):
    """Gives the signal "passed" when a barrier reaches it, and "received n" for each record n."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _Writer(self._signals)

    def commit(self, handles: Sequence[Any]) -> None: ...


class _Writer(rt.SinkWriter):
    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def write(self, batch: Any) -> None:
        for record in batch.rows().records:
            self._signals.give(f"received {record}")

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        if self._signals.given("triggered"):
            self._signals.give("passed")
        return rt.Prepared()


PLACEMENTS = [
    pytest.param(rt.Options(), id="a worker each"),
    pytest.param(rt.Options(placement="slots", workers=1), id="one worker"),
]


def run(function: Callable[[int], int], signals: Signals, until: str, **settings: Any) -> None:
    """source > slow > sink, each in a subtask of its own, until a signal is given."""
    env = rt.Environment()
    numbers = env.source(Numbers(signals)).rebalance().map(function, chain=False)
    numbers.rebalance().sink(Telling(signals), chain=False)
    job = env.start(**settings)
    try:
        wait_until(lambda: signals.given(until) or job.status.value == "failed", until)
    finally:
        job.cancel()
        job.wait_for_end()
    assert signals.given(until), job.status


@pytest.mark.processes
@pytest.mark.parametrize("options", PLACEMENTS)
def test_a_barrier_that_comes_during_a_call_leaves_before_the_next(
    tmp_path: Path, options: rt.Options
) -> None:
    signals = Signals(tmp_path)

    def slow(number: int) -> int:
        signals.give("slow")
        if signals.given("triggered") and not signals.given("done"):
            if signals.given("arrived"):
                signals.wait("passed")
                signals.give("done")
            signals.give("arrived")
            time.sleep(1.0)  # On a busy machine the barrier takes a while to come.
        time.sleep(0.2)
        return number

    checkpointing = rt.Checkpointing(tmp_path / "checkpoints", interval="300ms", mode="unaligned")
    run(slow, signals, "done", checkpointing=checkpointing, options=options)


@pytest.mark.processes
@pytest.mark.parametrize("options", PLACEMENTS)
def test_the_output_of_a_call_leaves_before_the_next(tmp_path: Path, options: rt.Options) -> None:
    signals = Signals(tmp_path)

    def slow(number: int) -> int:
        if number > 3:  # The first calls may be in one slice.
            signals.wait(f"received {number - 1}")
        time.sleep(0.1)
        return number

    checkpointing = rt.Checkpointing(tmp_path / "checkpoints", interval="1h")
    run(slow, signals, "received 10", checkpointing=checkpointing, options=options)


class Delays(rt.JobObserver):
    """How long barriers took from their trigger to the subtask that they reached last."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        self.seconds.append(max(subtask["start_delay_s"] for subtask in entry["subtasks"]))


def test_inline_a_barrier_waits_for_no_call_that_begins_after_it(tmp_path: Path) -> None:
    call_s = 0.3

    def slow(number: int) -> int:
        time.sleep(call_s)
        return number

    env, delays = rt.Environment(), Delays()
    numbers = env.source(rt.SequenceSource(5)).rebalance().map(slow, chain=False)
    numbers.rebalance().map(slow, chain=False).rebalance().sink(rt.DiscardSink(), chain=False)
    env.execute(
        runner="inline",
        checkpointing=rt.Checkpointing(tmp_path / "store", interval=call_s, mode="unaligned"),
        observer=delays,
    )
    assert len(delays.seconds) >= 3
    assert max(delays.seconds) < call_s


def test_on_demand_output_leaves_when_nothing_is_left_to_do_and_waits_while_its_receiver_works() -> (
    None
):
    """No clock moves, and the timeout is a day: only who waits for whom decides."""
    middle = Middle("aligned", buffer_timeout="1d", flush="on_demand")
    subtask = middle.built.subtask
    middle.send(rows(1))
    subtask.run_slice()
    first = middle.output.poll()
    assert first is not None
    middle.send(rows(2))
    assert middle.turn() == []  # The receiver works on the first one.
    assert subtask.wake_at is not None
    assert subtask.wake_at > middle.clock.seconds
    middle.output.on_credit(first.size, 1 << 20)
    assert subtask.wake_at == 0.0
    assert middle.sent() == [Kind.ROWS]


def test_on_demand_output_waits_while_its_sender_has_more_to_do() -> None:
    middle = Middle("aligned", buffer_timeout="1d", flush="on_demand")
    middle.built.subtask._pacer = SimpleNamespace(  # type: ignore[assignment]
        begin=lambda: None, piece=lambda columns: 1, done=lambda records, columns: records > 0
    )
    middle.send(rows(1, 2, 3))
    assert [middle.turn() for _ in range(3)] == [[], [], [Kind.ROWS]]


def test_by_timeout_output_waits_though_nobody_has_anything_to_do() -> None:
    middle = Middle("aligned", buffer_timeout="1d")
    middle.send(rows(1))
    assert [middle.turn() for _ in range(3)] == [[], [], []]
