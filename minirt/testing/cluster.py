"""The simulated workers of one coordinator, and the messages between them and it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping

from minirt.graph.execution import ChannelId, ExecutionGraph, SubtaskId
from minirt.protocol.barriers import Barrier
from minirt.protocol.job_events import JobEvent, WorkerFailed, WorkersConnected
from minirt.runtime.assembly import Deployment, JobPackage
from minirt.runtime.messages import Abort, Drain, Resume, SourceMessage, Stop, Trigger
from minirt.testing.faults import Chaos
from minirt.testing.links import SimulatedLink
from minirt.testing.schedule import Schedule
from minirt.testing.worker import SimulatedWorker, SubtaskEnd

_LINGER_STEPS = 60
"""Within how many steps a worker ends that was killed or has lost its coordinator."""

_NOTICE_STEPS = 60
"""Within how many steps the coordinator hears that a worker died."""


class SimulatedCluster:
    """Starts a worker for each place of a placement; a `minirt.runtime.shell.Cluster`."""

    def __init__(
        self,
        schedule: Schedule,
        chaos: Chaos,
        package: JobPackage,
        placement: Mapping[SubtaskId, int],
        problem: Callable[[str], None],
    ) -> None:
        self.workers: list[SimulatedWorker] = []
        """Those of the current generation."""
        self.on_message: Callable[[], None] = _nothing
        """Called when a message has arrived at the coordinator."""
        self.messages: dict[Hashable, deque[JobEvent]] = {}
        """What is under way to the coordinator, by sender; each sender's messages stay in order."""
        self._schedule = schedule
        self._chaos = chaos
        self._package = package
        self._graph: ExecutionGraph = package.load_graph()
        self._placement = placement
        self._problem = problem
        self._greeted = 0
        self._connected: set[ChannelId] = set()

    # What the coordinator orders.

    def deploy(self, deployment: Deployment) -> None:
        self._greeted = 0
        self._connected = set()
        hosts: dict[int, list[SubtaskId]] = {}
        for id, worker in self._placement.items():
            hosts.setdefault(worker, []).append(id)
        self.workers = [
            SimulatedWorker(
                self._schedule, self._chaos, self, self._package, deployment, worker, ids
            )
            for worker, ids in sorted(hosts.items())
        ]
        self._schedule.add(*self.workers)

    def stop(self, generation: int, *, kill: bool) -> None:
        for worker in self.workers:
            if worker.generation != generation:
                continue
            if kill:
                worker.end_within(_LINGER_STEPS)
            else:
                worker.tell(Stop())

    def trigger(self, generation: int, barrier: Barrier, *, pause: bool) -> None:
        self._tell_sources(Trigger(barrier, pause))

    def resume(self, generation: int) -> None:
        self._tell_sources(Resume())

    def drain(self, generation: int) -> None:
        self._tell_sources(Drain())

    def abort(self, generation: int, checkpoint_id: int) -> None:
        for worker in self.workers:
            worker.tell(Abort(checkpoint_id))

    def abandon(self) -> None:
        """The coordinator is gone: its workers notice sooner or later."""
        for worker in self.workers:
            worker.end_within(_LINGER_STEPS)

    def _tell_sources(self, message: SourceMessage) -> None:
        sources = [vertex for vertex in self._graph.vertices if vertex.is_source]
        hosts = {self._placement[id] for vertex in sources for id in vertex.subtasks()}
        for worker in self.workers:
            if worker.number in hosts:
                worker.tell(message)

    # What the workers say.

    def post(self, worker: SimulatedWorker, event: JobEvent) -> None:
        if worker.heard:
            self.send((worker.generation, worker.number), event)

    def on_hello(self, worker: SimulatedWorker) -> None:
        if not worker.heard:
            return
        self._greeted += 1
        if self._greeted == len(self.workers):
            self.send("cluster", WorkersConnected(worker.generation))
            for each in self.workers:
                each.start()

    def on_assembled(self, worker: SimulatedWorker) -> None:
        """Connect the channels that have both their ends by now."""
        if worker not in self.workers:
            return
        built = [(w, w.actors[id], ends) for w in self.workers for id, ends in w.assembled.items()]
        outputs = {
            id: (sender, actor, end)
            for sender, actor, ends in built
            for id, end in ends.outputs.items()
        }
        links = []
        for receiver, actor, ends in built:
            for id, (index, input) in ends.inputs.items():
                if id in self._connected or id not in outputs:
                    continue
                self._connected.add(id)
                sender, feeder, output = outputs[id]
                end = SubtaskEnd(actor, index)
                links.append(
                    SimulatedLink(self._schedule, output, sender, feeder, input, receiver, end)
                )
        self._schedule.add(*links)

    def on_died(self, worker: SimulatedWorker, error: Exception | None) -> None:
        """What it had sent may still arrive, or some of it."""
        sent = self.messages.get((worker.generation, worker.number))
        while sent and self._schedule.random.random() < 0.5:
            sent.pop()
        if error is not None:
            failed = WorkerFailed(worker.generation, error)
            self._schedule.later(_NOTICE_STEPS, lambda: self.send("cluster", failed))

    def on_unexpected(self, error: Exception) -> None:
        self._problem(f"{type(error).__name__}: {error}")

    def send(self, sender: Hashable, event: JobEvent) -> None:
        """Put a message on its way to the coordinator."""
        self.messages.setdefault(sender, deque()).append(event)
        self.on_message()


def _nothing() -> None:
    return None
