"""A worker whose control connection closes is lost at once, however it is with its process."""

from __future__ import annotations

import contextlib
import gc
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import minirt as rt
from minirt.filesystems import Protocols
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.monitoring.log_lines import LogLine
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    JobEvent,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.protocol.trace import SubtaskTrace
from minirt.runtime.cluster import process_cluster
from minirt.runtime.cluster.process_cluster import ProcessCluster
from minirt.runtime.cluster.template_process import LocalLaunch, TemplateProcess
from minirt.runtime.cluster.watch import Watch
from minirt.runtime.control.connection import MessageConnection, connect_to
from minirt.runtime.control.control import ORPHANED_EXIT, Control
from minirt.runtime.control.messages import (
    Assignment,
    ClockAnswer,
    FiguresOfCall,
    Heartbeat,
    JobOver,
    TemplateReady,
    ToCoordinator,
    Together,
    WorkerExited,
    WorkerHello,
)
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.network.sockets import Address, Network
from minirt.runtime.program.shapes import place
from minirt.runtime.worker.template import TemplateStart
from tests.protocol.parts import acknowledged

WORKER = 1
PID = 4711
GENERATION = 1
RESTARTS = 5


class PlayedTemplate(TemplateProcess):
    """Starts no process: a test plays the template, and the workers."""

    def __init__(self, start: TemplateStart) -> None:
        self.start = start

    def failure(self) -> None:
        return None

    def close(self, *, orderly: bool) -> None:
        pass


class PlayedLaunch(LocalLaunch):
    played: PlayedTemplate

    def start(
        self, package: JobPackage, network: Network, address: Address, slots: int
    ) -> TemplateProcess:
        start = TemplateStart(address, network, [], Protocols({}, {}), b"")
        PlayedLaunch.played = PlayedTemplate(start)
        return PlayedLaunch.played


class PlayedCluster:
    """Two workers, each with one of two subtasks, and what they have told so far."""

    def __init__(self) -> None:
        env = rt.Environment("played")
        env.source(rt.SequenceSource(3), uid="numbers").rebalance().sink(
            rt.CollectSink(), uid="out"
        )
        graph, options = build_execution_graph(env.graph()), rt.Options()
        package = JobPackage(cloudpickle.dumps(graph), options, MODES, None)
        self.events: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        self.cluster = ProcessCluster(
            package, place(graph, options), self.events.put, PlayedLaunch()
        )
        self.template = self.connect(TemplateReady(1))
        self.cluster.deploy(Deployment(GENERATION))
        self.workers = [self.connect(self.hello(worker)) for worker in (0, WORKER)]
        self.poll_until(WorkersConnected)

    @staticmethod
    def hello(worker: int, generation: int = GENERATION) -> WorkerHello:
        return WorkerHello(generation, worker, PID + worker, ("unix", "nowhere"))  # type: ignore[arg-type]

    def connect(self, greeting: ToCoordinator) -> MessageConnection:
        """Another process connects and says who it is."""
        made: list[MessageConnection] = []

        def call() -> None:
            start = PlayedLaunch.played.start
            made.append(connect_to(start.coordinator, start.network))
            made[0].send(greeting)

        caller = threading.Thread(target=call)
        caller.start()
        deadline = time.monotonic() + 10
        while caller.is_alive() and time.monotonic() < deadline:
            self.cluster.poll(0.01)
        return made[0]

    def poll_until(self, kind: type, timeout: float = 10.0) -> list[JobEvent]:
        """What was posted up to the first event of a kind."""
        posted, deadline = [], time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.cluster.poll(0.01)
            while not self.events.empty():
                posted.append(self.events.get())
                if isinstance(posted[-1], kind):
                    return posted
        pytest.fail(f"no {kind.__name__} in {timeout:g} s, only {posted}")

    def rest(self, for_s: float = 0.2) -> list[JobEvent]:
        """What is posted from now on."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.cluster.poll(0.01)
        return [self.events.get() for _ in range(self.events.qsize())]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedCluster]:
    monkeypatch.setattr(process_cluster, "_EXPLAINED_S_MAX", 1.0)
    cluster = PlayedCluster()
    yield cluster
    for connection in (cluster.template, *cluster.workers):
        with contextlib.suppress(OSError):
            connection.close()
    cluster.cluster.close(0, JobOver())


def killed(number: int = signal.SIGKILL) -> WorkerExited:
    return WorkerExited(GENERATION, WORKER, number)


def exited(code: int) -> WorkerExited:
    return WorkerExited(GENERATION, WORKER, code << 8)


def failure(events: list[JobEvent]) -> str:
    """What the only failure among these events says."""
    [failed] = [event for event in events if isinstance(event, WorkerFailed)]
    assert failed.generation == GENERATION
    assert isinstance(failed.error, rt.WorkerLostError)
    return str(failed.error)


def told() -> list[ToCoordinator]:
    subtask = SubtaskId(1, 0)
    return [SubtaskStarted(GENERATION, subtask), SubtaskDrained(GENERATION, subtask)]


def test_a_connection_that_closes_fails_the_generation_without_the_template(
    cluster: PlayedCluster,
) -> None:
    began = time.monotonic()
    cluster.workers[WORKER].close()
    text = failure(cluster.poll_until(WorkerFailed))
    who = f"worker {WORKER} (process {PID + WORKER}: CollectSink (1/1))"
    assert text == f"{who} has lost its connection to the coordinator"
    assert time.monotonic() - began < 5
    assert cluster.rest() == []


def test_all_that_a_worker_had_told_comes_before_its_loss(cluster: PlayedCluster) -> None:
    for message in told():
        cluster.workers[WORKER].send(message)
    cluster.workers[WORKER].close()
    *before, _ = cluster.poll_until(WorkerFailed)
    assert before == told()


@pytest.mark.parametrize("first", ["connection", "template"])
def test_the_template_says_how_a_worker_died_and_the_death_counts_once(
    cluster: PlayedCluster, first: str
) -> None:
    for message in told():
        cluster.workers[WORKER].send(message)
    if first == "template":
        cluster.template.send(killed())
        cluster.workers[WORKER].close()
    else:
        cluster.workers[WORKER].close()
        assert cluster.rest(0.1) == told()
        cluster.template.send(killed())
    events = cluster.poll_until(WorkerFailed)
    assert failure(events).endswith("(process 4712: CollectSink (1/1)) was killed by SIGKILL")
    if first == "template":
        assert events[:-1] == told()
    assert cluster.rest(process_cluster._EXPLAINED_S_MAX + 0.3) == []


def test_a_worker_that_ended_since_its_connection_broke_says_so(cluster: PlayedCluster) -> None:
    cluster.workers[WORKER].close()
    cluster.template.send(exited(ORPHANED_EXIT))
    text = failure(cluster.poll_until(WorkerFailed))
    assert text.endswith("has lost its connection to the coordinator")
    assert cluster.rest() == []


@pytest.mark.parametrize("kill", [True, False])
def test_workers_that_were_told_to_end_are_not_lost(cluster: PlayedCluster, kill: bool) -> None:
    cluster.cluster.stop(StopWorkers(GENERATION, kill=kill))
    received = [] if kill else [connection.receive() for connection in cluster.workers * 2]
    assert [type(message) for message in received] == [*[Assignment] * 2, *[StopWorkers] * 2][
        : len(received)
    ]
    for connection in cluster.workers:
        connection.close()
    cluster.template.send(exited(0))
    assert cluster.rest(process_cluster._EXPLAINED_S_MAX + 0.3) == []


def test_the_connection_of_an_earlier_generation_is_nobodys_loss(cluster: PlayedCluster) -> None:
    cluster.workers[WORKER].close()
    cluster.rest(0.1)
    cluster.cluster.stop(StopWorkers(GENERATION, kill=True))
    cluster.cluster.deploy(Deployment(GENERATION + 1))
    cluster.template.send(killed())
    events = cluster.rest(process_cluster._EXPLAINED_S_MAX + 0.3)
    assert [event for event in events if not isinstance(event, WorkerSeen)] == []


def test_what_workers_of_an_earlier_generation_tell_late_counts_for_nothing(
    cluster: PlayedCluster,
) -> None:
    """Its subtasks may not even exist any more: the parallelism may be another one by now."""
    line = LogLine(1.0, "warning", "minirt.user", "the last words")
    gone = SubtaskId(1, 7)
    trace = SubtaskTrace(gone.vertex, gone.index, "gone", 0.0, (), ())
    late: list[ToCoordinator] = [
        Heartbeat(GENERATION, WORKER, {gone: SubtaskMetrics()}, (line,)),
        FiguresOfCall(GENERATION, {gone: SubtaskMetrics()}),
        ClockAnswer(GENERATION, WORKER, 0.0, 1e9),
        replace(acknowledged(1, gone, generation=GENERATION), trace=trace),
        Together((SubtaskStarted(GENERATION, gone), SubtaskDrained(GENERATION, gone))),
        WorkerFailed(GENERATION, rt.MinirtError("late")),
    ]
    cluster.cluster.stop(StopWorkers(GENERATION, kill=True))
    cluster.cluster.deploy(Deployment(GENERATION + 1))
    for connection in cluster.workers:
        connection.close()
    cluster.workers = [
        cluster.connect(cluster.hello(worker, GENERATION + 1)) for worker in (0, WORKER)
    ]
    cluster.poll_until(WorkersConnected)
    for message in late:
        cluster.workers[WORKER].send(message)
    assert cluster.rest() == []
    assert (cluster.cluster.metrics, cluster.cluster.figures_changed) == ({}, False)
    assert list(cluster.cluster.logs) == [line]


# In a whole job.


class BreaksItsConnection(rt.Process):
    """Once, in the first run: then it goes on for as long as the job would wait for a sign of life."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def process(self, record: int, ctx: rt.ProcessContext) -> list[int]:
        if record == 50 and not Path(self.mark).exists():
            Path(self.mark).touch()
            [control] = [one for one in gc.get_objects() if isinstance(one, Control)]
            control._connection._sock.shutdown(socket.SHUT_RDWR)
            time.sleep(60)
        return [record]


@pytest.mark.processes
def test_a_job_restarts_at_once_when_a_worker_that_lives_cannot_be_heard(tmp_path: Path) -> None:
    class Hears(rt.JobObserver):
        restarts: list[Any] = []

        def on_restart(self, error: Exception, delay_s: float) -> None:
            self.restarts.append(error)

    env, sink = rt.Environment("unheard"), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(100), uid="numbers").rebalance()
    numbers.process(BreaksItsConnection(str(tmp_path / "mark")), uid="breaks").sink(sink, uid="out")
    began = time.monotonic()
    result = env.execute(
        checkpointing=rt.Checkpointing(str(tmp_path / "checkpoints"), interval="50ms"),
        restart=rt.Restart.fixed_delay(1, 0),
        options=rt.Options(heartbeat_timeout="60s"),
        observer=Hears(),
    )
    assert result.restarts == 1
    assert [type(error) for error in Hears.restarts] == [rt.WorkerLostError]
    assert "has lost its connection to the coordinator" in str(Hears.restarts[0])
    assert time.monotonic() - began < 40
    assert sorted(sink.rows) == list(range(100))


class FailsFirst(rt.Sink):
    """Fails as it is opened at one subtask, in whose worker others then find nobody."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        if context.subtask == 0 and len(list(self._marks.iterdir())) < RESTARTS:
            (self._marks / str(time.monotonic_ns())).touch()
            raise RuntimeError("the first to fail")
        return Forgets()

    def commit(self, handles: Sequence[Any]) -> None:
        pass


class Forgets(rt.SinkWriter):
    def write(self, batch: Any) -> None:
        pass

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        return rt.Prepared()


@pytest.mark.processes
def test_the_worker_that_failed_is_heard_and_not_those_that_miss_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hears(rt.JobObserver):
        def __init__(self) -> None:
            self.restarts: list[str] = []

        def on_restart(self, error: Exception, delay_s: float) -> None:
            self.restarts.append(str(error))

    def late_and_reversed(watch: Watch, watched: Any, timeout: float | None) -> list[Any]:
        """What the coordinator hears at one time, it hears from the last worker first."""
        waiting = set(readable(watch, watched, timeout))
        time.sleep(0.05)
        waiting |= set(readable(watch, watched, 0))
        return [one for one in reversed(watched) if one in waiting]

    readable = Watch.readable
    monkeypatch.setattr(Watch, "readable", late_and_reversed)
    hears, marks = Hears(), tmp_path / "marks"
    marks.mkdir()
    env = rt.Environment("first", parallelism=3)
    numbers = env.source(rt.SequenceSource(100), uid="numbers").rebalance()
    numbers.map(abs).rebalance().sink(FailsFirst(marks), uid="out")
    env.execute(restart=rt.Restart.fixed_delay(RESTARTS, 0), observer=hears)
    assert ["the first to fail" in error for error in hears.restarts] == [True] * RESTARTS
