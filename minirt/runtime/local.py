"""All subtasks of a job in the caller's process and thread, connected by direct calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from minirt.graph.execution import ChannelId, SubtaskId
from minirt.monitoring.logs import logger_of
from minirt.protocol.barriers import Barrier
from minirt.protocol.job_events import (
    JobEvent,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
    WorkersConnected,
)
from minirt.runtime.assembly import Assembled, Deployment, JobPackage, assemble
from minirt.runtime.channels import InputChannel, OutputChannel
from minirt.runtime.messages import Abort, Drain, Resume, Trigger
from minirt.runtime.orders import deliver
from minirt.runtime.pacer import Pacer
from minirt.runtime.snapshot import SnapshotUpload
from minirt.runtime.subtask import Subtask

logger = logger_of("local")

T = TypeVar("T")


class LocalLink:
    """Moves frames from one end of a channel to the other within a process."""

    def __init__(self, output: OutputChannel, input: InputChannel, to: Subtask, index: int) -> None:
        self._output = output
        self.receiver = to
        self._index = index
        input.grant = output.on_credit

    @property
    def ready(self) -> bool:
        return self._output.sendable

    def move(self) -> bool:
        """Deliver the next frame that credit allows; False if there is none."""
        frame = self._output.poll()
        if frame is None:
            return False
        self.receiver.on_frame(self._index, frame)
        return True


@dataclass(slots=True)
class LocalPorts:
    """What subtasks ask, answered by whoever runs the loop."""

    now: Callable[[], float]
    upload: Callable[[SnapshotUpload], None]
    drained: Callable[[SubtaskId], None]


class LocalCluster:
    """Runs no loop of its own: whoever holds it decides which subtask or link goes next.

    `post` takes events for the coordinator, `upload` snapshots to be stored.
    """

    def __init__(
        self,
        package: JobPackage,
        post: Callable[[JobEvent], None],
        upload: Callable[[SnapshotUpload], None],
        now: Callable[[], float],
        pacer: Callable[[], Pacer],
    ) -> None:
        self._package = package
        self._post = post
        self._upload = upload
        self._now = now
        self._pacer = pacer
        self._generation = 0
        self.subtasks: dict[SubtaskId, Subtask] = {}
        self.links: list[LocalLink] = []

    def deploy(self, deployment: Deployment) -> None:
        self._generation = generation = deployment.generation
        ports = LocalPorts(self._now, self._upload, self._on_drained)
        assembled: dict[SubtaskId, Assembled] = {}
        try:
            for id in self._package.load_graph().subtasks():
                assembled[id] = assemble(
                    self._package, deployment, id, ports, self._pacer(), _no_limit
                )
        except Exception as error:
            _release(built.subtask for built in assembled.values())
            self._post(WorkerFailed(generation, error))
            return
        self.subtasks = {id: built.subtask for id, built in assembled.items()}
        self.links = self._connect(assembled)
        self._post(WorkersConnected(generation))
        for id in assembled:
            self._post(SubtaskStarted(generation, id))

    def stop(self, generation: int, *, kill: bool) -> None:
        stopping, self.subtasks, self.links = self.subtasks, {}, []
        if kill:
            _release(stopping.values())
            return
        for subtask in stopping.values():
            subtask.close()

    def trigger(self, generation: int, barrier: Barrier, *, pause: bool) -> None:
        self.attempt(lambda: deliver(Trigger(barrier, pause), self.subtasks.values()))

    def resume(self, generation: int) -> None:
        deliver(Resume(), self.subtasks.values())

    def drain(self, generation: int) -> None:
        deliver(Drain(), self.subtasks.values())

    def abort(self, generation: int, checkpoint_id: int) -> None:
        deliver(Abort(checkpoint_id), self.subtasks.values())

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Have a subtask do something; if it fails, all are stopped and the coordinator hears of it."""
        try:
            return action()
        except Exception as error:
            self._post(WorkerFailed(self._generation, error))
            self.stop(self._generation, kill=True)
            return None

    def _on_drained(self, id: SubtaskId) -> None:
        self._post(SubtaskDrained(self._generation, id))

    def _connect(self, assembled: dict[SubtaskId, Assembled]) -> list[LocalLink]:
        inputs: dict[ChannelId, tuple[Subtask, int, InputChannel]] = {
            id: (built.subtask, index, end)
            for built in assembled.values()
            for id, (index, end) in built.inputs.items()
        }
        links = []
        for built in assembled.values():
            for id, output in built.outputs.items():
                receiver, index, end = inputs[id]
                links.append(LocalLink(output, end, receiver, index))
        return links


def _no_limit(channel: OutputChannel) -> None:
    """One thread runs sender and receiver: the sender's record has to finish whatever it emits."""


def _release(subtasks: Iterable[Subtask]) -> None:
    """Close what a process that is killed would not: here files and connections would stay open."""
    for subtask in subtasks:
        try:
            subtask.close()
        except Exception as error:
            logger.warning("%s could not be closed: %s", subtask.name, error)
