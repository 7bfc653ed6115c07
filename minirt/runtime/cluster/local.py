"""All subtasks of a job in the caller's process and thread, connected by direct calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from minirt.clock import Clock
from minirt.operators.common.base import CoroutineStart, chain_error
from minirt.operators.common.calling import ends_program
from minirt.protocol.drift import Progress
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import (
    JobEvent,
    SourceProgressed,
    StopWorkers,
    SubtaskDrained,
    SubtaskStarted,
    WorkerFailed,
    WorkersConnected,
)
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import Assembled, assemble
from minirt.runtime.subtask.local_channel import LocalChannel
from minirt.runtime.subtask.pacer import Pacer
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.runtime.subtask.subtask import Subtask
from minirt.runtime.worker.orders import deliver

T = TypeVar("T")


def nobody_waits(subtask: SubtaskId) -> None:
    """A port `wake` that does nothing: whoever runs the loop looks at all subtasks."""


def run_at_once(call: Callable[[], None]) -> None:
    """A port `run_beside` that makes the call in this thread, since there is no other."""
    call()


def no_event_loop(start: CoroutineStart) -> None:
    """A port `run_async` for subtasks whose operators run no coroutines."""
    raise NotImplementedError("nobody runs coroutines here")


def nobody_asks(subtask: SubtaskId, progress: Progress) -> None:
    """A port `progressed` for sources that are in no drift group."""


@dataclass(slots=True)
class LocalPorts:
    """What subtasks ask, answered by whoever runs the loop."""

    clock: Clock
    upload: Callable[[SnapshotUpload], None]
    drained: Callable[[SubtaskId], None]
    wake: Callable[[SubtaskId], None] = nobody_waits
    run_beside: Callable[[Callable[[], None]], None] = run_at_once
    run_async: Callable[[CoroutineStart], None] = no_event_loop
    progressed: Callable[[SubtaskId, Progress], None] = nobody_asks
    caught_up: Callable[[SubtaskId], None] = nobody_waits


class LocalCluster:
    """Runs no loop of its own: whoever holds it decides which subtask or link goes next.

    `post` takes events for the coordinator, `upload` snapshots to be stored. `wake`, `run_beside`
    and `run_async` are the ports of that name.
    """

    def __init__(
        self,
        package: JobPackage,
        post: Callable[[JobEvent], None],
        upload: Callable[[SnapshotUpload], None],
        clock: Clock,
        pacer: Callable[[], Pacer],
        wake: Callable[[SubtaskId], None] = nobody_waits,
        run_beside: Callable[[Callable[[], None]], None] = run_at_once,
        run_async: Callable[[CoroutineStart], None] = no_event_loop,
    ) -> None:
        self._package = package
        self._post = post
        self._upload = upload
        self._clock = clock
        self._pacer = pacer
        self._wake = wake
        self._run_beside = run_beside
        self._run_async = run_async
        self.generation = 0
        self.subtasks: dict[SubtaskId, Subtask] = {}
        self.links: list[LocalChannel] = []

    # What the coordinator orders: it is a Cluster.

    def deploy(self, deployment: Deployment) -> None:
        self.generation = generation = deployment.generation
        ports = LocalPorts(
            self._clock,
            self._upload,
            self._on_drained,
            self._wake,
            self._run_beside,
            self._run_async,
            self._on_progressed,
        )
        assembled: dict[SubtaskId, Assembled] = {}
        try:
            for id in self._package.load_graph().subtasks():
                assembled[id] = assemble(
                    self._package, deployment, id, ports, self._pacer(), _no_limit
                )
        except Exception as error:
            for built in assembled.values():
                built.subtask.close()
            self._post(WorkerFailed(generation, error))
            return
        self.subtasks = {id: built.subtask for id, built in assembled.items()}
        self.links = self._connect(assembled)
        self._post(WorkersConnected(generation))
        for id in assembled:
            self._post(SubtaskStarted(generation, id))

    def send(self, command: SubtaskCommand) -> None:
        if command.generation == self.generation:
            self.attempt(lambda: deliver(command, self.subtasks.values()))

    def stop(self, command: StopWorkers) -> None:
        if command.generation == self.generation:
            self._close_all()

    # What the loop calls.

    def on_time(self) -> None:
        """Have all subtasks look at the clock."""
        for subtask in list(self.subtasks.values()):
            self.attempt(subtask.on_time)

    def move_frames(self) -> bool:
        """Deliver all that credit allows; whether that was anything."""
        moved, links = False, self.links
        for link in links:
            while links is self.links and self.attempt(link.move):
                moved = True
        return moved

    def work(self, subtask: Subtask) -> None:
        """Have a subtask work for a slice."""

        def run_slice() -> None:
            try:
                subtask.run_slice()
            except BaseException as error:
                if ends_program(error):
                    raise
                raise chain_error(subtask.name, error) from error

        self.attempt(run_slice)

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Have a subtask do something; if it fails, all are stopped and the coordinator hears of it."""
        try:
            return action()
        except Exception as error:
            self._post(WorkerFailed(self.generation, error))
            self._close_all()
            return None

    def _close_all(self) -> None:
        stopping, self.subtasks, self.links = self.subtasks, {}, []
        for subtask in stopping.values():
            subtask.close()

    def _on_drained(self, id: SubtaskId) -> None:
        self._post(SubtaskDrained(self.generation, id))

    def _on_progressed(self, id: SubtaskId, progress: Progress) -> None:
        self._post(SourceProgressed(self.generation, id, progress))

    def _connect(self, assembled: dict[SubtaskId, Assembled]) -> list[LocalChannel]:
        inputs: dict[ChannelId, tuple[Subtask, int, InputChannel]] = {
            id: (built.subtask, index, end)
            for built in assembled.values()
            for id, (index, end) in built.inputs.items()
        }
        links = []
        for built in assembled.values():
            for id, output in built.outputs.items():
                receiver, index, end = inputs[id]
                links.append(LocalChannel(output, end, receiver, index))
        return links


def _no_limit(channel: OutputChannel) -> None:
    """One thread runs sender and receiver: the sender's record has to finish whatever it emits."""
