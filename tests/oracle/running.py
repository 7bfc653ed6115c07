"""Run a job that fails as planned, and count what that has cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import minirt as rt
from minirt.protocol.job_events import ENDED
from tests.oracle.board import PLANNED, Board, Failure
from tests.oracle.ends import FolderSink, Numbered, ends_of_lanes, timestamp
from tests.oracle.records import track, track_of
from tests.oracle.stages import Checker
from tests.oracle.tally import Faults, Tally
from tests.oracle.topologies import TOPOLOGIES, Parts, Topology

TINY = rt.Limits(
    input_queue_bytes=2048, output_queue_bytes=1024, overdraft_bytes=1 << 20, frame_bytes=256
)
"""Queues that a slow operator fills within moments, and that drain as fast."""

_LOOK_S = 0.2
_QUIET_LANE = 3
"""One lane in so many has little to say."""


@dataclass(frozen=True)
class Plan:
    """One run. With several parallelisms the job is cancelled, and restored at the next one."""

    topology: str
    mode: str
    parallelism: tuple[int, ...]
    failures: tuple[Failure, ...] = ()
    checkpoints: int = 2
    """How many must complete after the last failure, at each parallelism."""
    options: rt.Options = field(default_factory=lambda: rt.Options(allow_pickle=True, limits=TINY))
    run_s_max: float = 240.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    `state` is what the checkers counted in their own checkpointed state, `output` what the committed
    files show. Bytes are those of in-flight data that the job was restored with.
    """

    state: Faults
    output: Faults
    values: int
    restarts: int
    checkpoints: int
    recovered_bytes: int
    unplanned: tuple[str, ...]

    def wrong(self, *, exactly_once: bool, ordered: bool) -> list[str]:
        """What is worse than the mode and the topology allow."""
        wrong = list(self.unplanned)
        for place, faults in (("state", self.state), ("output", self.output)):
            counted = faults._asdict()
            if not exactly_once:
                # Effects of values that the last life of a source did not get to may remain.
                counted = {"lost": faults.lost}
            elif place == "output" or not ordered:
                del counted["disordered"]
            wrong += [f"{place}: {count} {what}" for what, count in counted.items() if count]
        return wrong


def run(plan: Plan, folder: Path) -> Outcome:
    """Run a job through all its failures and parallelisms to its end."""
    topology = TOPOLOGIES[plan.topology]
    for name in ("ends", "out"):
        (folder / name).mkdir(parents=True)
    board = Board(folder, plan.failures)
    sink = FolderSink(folder / "out", board)
    watch = _Watch(board)
    last = len(plan.parallelism)
    for place, parallelism in enumerate(plan.parallelism, start=1):
        armed = len(plan.failures) * place // last
        board.arm(armed)
        watch.aim(armed - closing(plan.failures[:armed]), plan.checkpoints)
        env = rt.Environment(plan.topology, parallelism=parallelism)
        _build(env, topology, plan, parallelism, folder, board, sink)
        job = env.start(
            checkpointing=rt.Checkpointing(
                folder / "checkpoints", interval="50ms", mode=plan.mode, tolerable_failures=0
            ),
            restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
            restore="latest" if place > 1 else None,
            options=plan.options,
            observer=watch,
        )
        _see_through(job, watch, board, plan, stops=place == last)
        if watch.unplanned:
            break
    return _outcome(topology, plan, folder, sink, watch)


def is_ordered(plan: Plan) -> bool:
    """Whether the values of a track must come in order."""
    return TOPOLOGIES[plan.topology].ordered


def closing(failures: Sequence[Failure]) -> int:
    """How many of these come about only once the job has ended."""
    return sum(failure.hook == "close" for failure in failures)


def lanes_of(topology: Topology, parallelism: int) -> list[range]:
    """The lanes of each source: one for each subtask of the job, and one more."""
    count = parallelism + 1
    return [range(first * count, (first + 1) * count) for first in range(topology.sources)]


def _build(
    env: rt.Environment,
    topology: Topology,
    plan: Plan,
    parallelism: int,
    folder: Path,
    board: Board,
    sink: FolderSink,
) -> None:
    lanes = lanes_of(topology, plan.parallelism[0])
    watermarks = rt.Watermarks.monotonous(timestamp=timestamp, idle_timeout="100ms")
    sources = []
    for index, own in enumerate(lanes):
        quiet = [lane for lane in own if lane % _QUIET_LANE == _QUIET_LANE - 1]
        source = Numbered(own, quiet, board, folder / "ends")
        sources.append(env.source(source, uid=f"source-{index}", watermarks=watermarks))
    values = topology.build(Parts(sources, lanes, parallelism, plan.parallelism[0], board))
    checked = values.key_by(track_of).process(Checker(topology.record_s, board), uid="checker")
    checked.sink(sink, uid="sink")


def _see_through(job: rt.Job, watch: _Watch, board: Board, plan: Plan, *, stops: bool) -> None:
    try:
        if not _comes_so_far(job, watch, plan.run_s_max):
            watch.unplanned.append(f"no progress: {board.restarts} restarts, {board.completed=}")
        elif stops and not watch.unplanned:
            board.stop()
            result = job.wait(plan.run_s_max)
            assert result.status is rt.JobStatus.FINISHED
            return
        job.cancel()
        watch.recover()
        job.wait(plan.run_s_max)
    except (rt.MinirtError, TimeoutError) as error:
        watch.unplanned.append(repr(error))
    finally:
        job.cancel()


def _comes_so_far(job: rt.Job, watch: _Watch, wait_s: float) -> bool:
    """Whether the job reaches what it is watched for; a job that ends before does not."""
    until = time.monotonic() + wait_s
    while not watch.reached.wait(_LOOK_S):
        if job.status in ENDED or time.monotonic() > until:
            return watch.reached.is_set()
    return True


class _Watch(rt.JobObserver):
    """Writes down how far the job is, and tells when it has come to where it should."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._restarts = self._checkpoints = 0
        self._in_flight_bytes = 0
        self.reached = threading.Event()
        self.completed = 0
        self.recovered_bytes = 0
        self.unplanned: list[str] = []

    @property
    def restarts(self) -> int:
        return self._board.restarts

    def aim(self, restarts: int, checkpoints: int) -> None:
        """Wait for so many restarts in all, and so many checkpoints after the last of them."""
        self._restarts, self._checkpoints = restarts, checkpoints
        self.reached.clear()

    def recover(self) -> None:
        """The job goes back to the newest checkpoint."""
        self.recovered_bytes += self._in_flight_bytes

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        if entry["status"] != "completed":
            return  # None is tolerated, so the reason of this one comes with the restart.
        self.completed += 1
        self._in_flight_bytes = sum(each["in_flight_bytes"] for each in entry["subtasks"])
        self._board.completed_one()
        far = self._board.restarts >= self._restarts
        if far and self._board.completed >= self._checkpoints:
            self.reached.set()

    def on_restart(self, error: Exception, delay_s: float) -> None:
        restarts = self._board.restarts
        armed = restarts < self._board.armed
        killed = armed and self._board.failures[restarts].kill
        if not (killed and isinstance(error, rt.WorkerLostError)) and PLANNED not in str(error):
            self.unplanned.append(f"restart {restarts}: {error}")
            self.reached.set()
        self.recover()
        self._board.restarted()


def _outcome(
    topology: Topology, plan: Plan, folder: Path, sink: FolderSink, watch: _Watch
) -> Outcome:
    ends = dict(_ends_of_tracks(topology, plan.parallelism[0], ends_of_lanes(folder / "ends")))
    committed = sink.read()
    state = {row["track"]: Tally.from_plain(row["tally"]) for row in committed if "tally" in row}
    output: dict[int, Tally] = {number: Tally() for number in ends}
    for row in committed:
        if "sequence" in row:
            output.setdefault(row["track"], Tally()).add(row["sequence"])
    return Outcome(
        _summed(state, ends),
        _summed(output, ends),
        sum(ends.values()),
        watch.restarts,
        watch.completed,
        watch.recovered_bytes,
        tuple(watch.unplanned),
    )


def _ends_of_tracks(
    topology: Topology, parallelism: int, ends: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """How many values must come on each track."""
    for index, lanes in enumerate(lanes_of(topology, parallelism)):
        copies = parallelism if index == topology.copied else topology.copies
        for lane in lanes:
            for copy in range(copies):
                yield track(lane, copy), ends.get(lane, 0)


def _summed(tallies: Mapping[int, Tally], ends: Mapping[int, int]) -> Faults:
    total = Faults()
    for number in {*tallies, *ends}:
        total = total.plus(tallies.get(number, Tally()).faults(ends.get(number, 0)))
    return total
