"""The simulated workers of one coordinator, and the messages between them and it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from minirt.clock import Clock
from minirt.errors import ConfigurationError, WorkerLostError
from minirt.graph.execution import ExecutionGraph
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import (
    JobEvent,
    SnapshotAcknowledged,
    StopWorkers,
    WorkerFailed,
    WorkersConnected,
)
from minirt.protocol.restart_commands import KeepFor
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.cluster.cluster import Receivers
from minirt.runtime.control.messages import PeerBack, PeerLost, SentCommand
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.input.service_log import LogFiles
from minirt.testing.faults import INJECTED, Chaos
from minirt.testing.memory_files import MemoryFiles
from minirt.testing.schedule import Schedule
from minirt.testing.simulated_channel import SimulatedChannel
from minirt.testing.subtask_actor import SubtaskEnd
from minirt.testing.worker import LINGER_STEPS, SimulatedWorker

_NOTICE_STEPS = 60
"""Within how many steps the coordinator hears that a worker died."""


class SimulatedCluster:
    """Starts a worker for each place of a placement; a `minirt.runtime.cluster.cluster.Cluster`."""

    def __init__(
        self,
        schedule: Schedule,
        clock: Clock,
        chaos: Chaos,
        package: JobPackage,
        placement: Mapping[SubtaskId, int],
        problem: Callable[[str], None],
    ) -> None:
        self.workers: list[SimulatedWorker] = []
        """The workers of the current generation."""
        self.on_message: Callable[[], None] = _nothing
        """Called when a message has arrived at the coordinator."""
        self.messages: dict[Hashable, deque[JobEvent]] = {}
        """What is under way to the coordinator, by sender; each sender's messages stay in order."""
        self._schedule = schedule
        self._clock = clock
        self._chaos = chaos
        self._package = package
        self._graph: ExecutionGraph = package.load_graph()
        self._placement = placement
        self._problem = problem
        self.order_files: LogFiles = MemoryFiles()
        self._greeted = 0
        self._connected: set[ChannelId] = set()
        self._awaited: set[ChannelId] = set()
        """Those of a worker that comes back, whose other ends do not know yet that it is there."""

    # What the coordinator orders.

    def deploy(self, deployment: Deployment) -> None:
        self._greeted = 0
        self._connected, self._awaited = set(), set()
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

    def send(self, command: SubtaskCommand) -> None:
        numbers = Receivers(self._graph, self._placement).of(command)
        for worker in self.workers:
            if worker.generation == command.generation and worker.number in numbers:
                worker.tell(SentCommand(command, self._clock.monotonic()))

    def keep_for(self, command: KeepFor) -> None:
        for worker in self.workers:
            worker.tell(PeerLost(command.worker))

    def bring_back(self, worker: int, deployment: Deployment) -> None:
        ids = [id for id, at in self._placement.items() if at == worker]
        back = SimulatedWorker(
            self._schedule, self._chaos, self, self._package, deployment, worker, ids
        )
        self.workers = [back if one.number == worker else one for one in self.workers]
        ends = {
            id for id in self._connected if worker in (self.sender_of(id), self.receiver_of(id))
        }
        self._connected -= ends
        self._awaited |= ends
        self._schedule.add(back)

    def stop(self, command: StopWorkers) -> None:
        for worker in self.workers:
            if worker.generation != command.generation:
                continue
            if command.kill:
                worker.end_within(LINGER_STEPS)
            else:
                worker.tell(command)

    def abandon(self) -> None:
        """The coordinator is gone: its workers notice sooner or later."""
        for worker in self.workers:
            worker.end_within(LINGER_STEPS)

    # What the workers say.

    def post(self, worker: SimulatedWorker, event: JobEvent) -> None:
        if isinstance(event, SnapshotAcknowledged) and event.trace is not None:
            ahead_s = worker.clock.monotonic() - self._clock.monotonic()
            trace = replace(event.trace, clock_ahead_s=ahead_s, clock_error_s=0.0)
            event = replace(event, trace=trace)
        if worker.heard:
            self.to_coordinator(worker.key, event)

    def on_hello(self, worker: SimulatedWorker) -> None:
        if not worker.heard:
            return
        if worker.life:
            worker.start()
            return
        self._greeted += 1
        if self._greeted == len(self.workers):
            self.to_coordinator("cluster", WorkersConnected(worker.generation))
            for each in self.workers:
                each.start()

    def on_assembled(self, worker: SimulatedWorker) -> None:
        """Connect the channels that have both their ends by now.

        The others connect a worker that has come back, each as soon as it hears of it.
        """
        if worker not in self.workers:
            return
        if worker.life:
            for other in self.workers:
                other.tell(PeerBack(worker.number, "", worker.processed, worker.marks))
            return
        self._connect()

    def receiver_of(self, channel: ChannelId) -> int:
        target = self._graph.links[channel.link].target
        return self._placement[SubtaskId(target, channel.receiver)]

    def sender_of(self, channel: ChannelId) -> int:
        source = self._graph.links[channel.link].source
        return self._placement[SubtaskId(source, channel.sender)]

    def on_peer_back(self, worker: SimulatedWorker, peer: int) -> None:
        for ends in worker.assembled.values() if worker.number != peer else ():
            self._awaited -= ends.outputs.keys() | ends.inputs.keys()
        self._connect()
        [back] = [one for one in self.workers if one.number == peer]
        if not self._awaited:
            back.on_connected()

    def _connect(self) -> None:
        built = [(w, w.actors[id], ends) for w in self.workers for id, ends in w.assembled.items()]
        outputs = {
            id: (sender, actor, end)
            for sender, actor, ends in built
            for id, end in ends.outputs.items()
        }
        channels = []
        for receiver, actor, ends in built:
            for id, (index, input) in ends.inputs.items():
                if id in self._connected or id in self._awaited or id not in outputs:
                    continue
                self._connected.add(id)
                sender, feeder, output = outputs[id]
                end = SubtaskEnd(actor, index)
                channels.append(
                    SimulatedChannel(self._schedule, output, sender, feeder, input, receiver, end)
                )
        self._schedule.add(*channels)

    def on_died(self, worker: SimulatedWorker, error: Exception | None) -> None:
        """What it had sent may still arrive, or some of it."""
        sent = self.messages.get(worker.key)
        while sent and self._schedule.random.random() < 0.5:
            sent.pop()
        if error is not None:
            failed: WorkerFailed = WorkerFailed(worker.generation, error)
            heard_from: Hashable = "cluster"
            if self._package.alone:  # Then the coordinator first hears out who is gone.
                failed, heard_from = replace(failed, worker=worker.number), worker.key
            self._schedule.later(_NOTICE_STEPS, lambda: self.to_coordinator(heard_from, failed))

    def on_unheard(self, worker: SimulatedWorker) -> None:
        lost = WorkerLostError(f"{INJECTED}: {worker.name} lost its connection")
        self.post(worker, WorkerFailed(worker.generation, lost))

    def on_unexpected(self, error: Exception) -> None:
        if not isinstance(
            error, ConfigurationError
        ):  # The job ends with it, and is judged by that.
            self._problem(f"{type(error).__name__}: {error}")

    def to_coordinator(self, sender: Hashable, event: JobEvent) -> None:
        """Put a message on its way to the coordinator."""
        self.messages.setdefault(sender, deque()).append(event)
        self.on_message()


def _nothing() -> None:
    return None
