"""A job as it is explored: what never changes, and numbers for what travels between its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from minirt import by_value
from minirt.config import Checkpointing, Limits, Options
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import JobGraph
from minirt.graph.planner import build_execution_graph
from minirt.operators.sink import SinkSpec
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.job_events import JobEvent, SnapshotAcknowledged
from minirt.protocol.subtask_commands import SubtaskCommand
from minirt.runtime.channels.frames import Frame
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshot
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from minirt.testing.clock import START
from minirt.testing.exploration.durable import Storage
from minirt.testing.exploration.fingerprint import fingerprint
from minirt.testing.sink import TransactionalSink

NEVER_S = 1e9
"""What waits for so long never happens in an exploration."""

INTERVAL_S = 1.0
"""Between checkpoints by the coordinator's clock, which moves only when a timer fires."""

Item = TypeVar("Item")


class Numbers(Generic[Item]):
    """Gives equal things one number; 0 stands for none."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._items: list[Item] = []

    def __getitem__(self, number: int) -> Item:
        return self._items[number - 1]

    def of(self, item: Item) -> int:
        number = self._numbers.setdefault(fingerprint(item), len(self._items) + 1)
        if number > len(self._items):
            self._items.append(item)
        return number


class ExploredJob:
    """Everything that the parts of a job have in common."""

    def __init__(
        self,
        graph: JobGraph,
        mode: CheckpointMode,
        limits: Limits,
        on_checkpoint: Callable[[Mapping[str, bytes], str], None] | None,
        max_concurrent: int = 1,
    ) -> None:
        self.graph: ExecutionGraph = build_execution_graph(graph)
        self.mode = mode
        self.checkpointing = Checkpointing(
            *("simulated://", INTERVAL_S, mode, NEVER_S), retain=1, max_concurrent=max_concurrent
        )
        self.options = Options(buffer_timeout=0, heartbeat_timeout=NEVER_S, limits=limits)
        self.on_checkpoint = on_checkpoint
        self.sinks = _sinks(self.graph)
        self.storage = Storage(list(self.sinks.values()))
        self.package = JobPackage(
            by_value.dumps(self.graph),
            self.options,
            {mode.name: mode},
            self.checkpoint_storage(),
        )
        self.subtasks: list[SubtaskId] = list(self.graph.subtasks())
        self.channels: list[ChannelId] = [id for link in self.graph.links for id in link.channels()]
        self.frames: Numbers[Frame] = Numbers()
        self.to_coordinator: Numbers[JobEvent] = Numbers()
        self.to_subtask: Numbers[SubtaskCommand] = Numbers()
        self.uploads: Numbers[SnapshotUpload] = Numbers()
        self._stored: dict[int, tuple[int, int]] = {}
        self.deployments: Numbers[Deployment] = Numbers()

    def checkpoint_storage(self) -> CheckpointStorage:
        """A process's own view of the storage; every snapshot is an object of its own."""
        store = ObjectStore("simulated://", objects=self.storage.objects)
        return CheckpointStorage(store, inline_bytes_max=0)

    def store(self, number: int) -> tuple[int, int]:
        """Carry out an upload; returns what it makes durable, and the message about it."""
        known = self._stored.get(number)
        if known is None:
            self.storage.load(self.storage.empty)
            result = store_snapshot(self.uploads[number], self.package.storage, lambda: START)
            if isinstance(result, SnapshotAcknowledged):
                # A figure that is only reported: it differs between states that do not.
                result = replace(result, stats=replace(result.stats, processed_bytes=0))
            known = self._stored[number] = (self.storage.save(), self.to_coordinator.of(result))
        return known

    def ends_of(self, channel: ChannelId) -> tuple[int, int]:
        """The places of its sender and its receiver among the subtasks."""
        link = self.graph.links[channel.link]
        sender = self.subtasks.index(SubtaskId(link.source, channel.sender))
        receiver = self.subtasks.index(SubtaskId(link.target, channel.receiver))
        return sender, receiver


def small_limits(queue_bytes: int) -> Limits:
    """A frame for each record, and queues of so many bytes at both ends of a channel."""
    return Limits(
        input_queue_bytes=queue_bytes,
        output_queue_bytes=queue_bytes,
        frame_bytes=1,
        frame_records=1,
        heartbeat_s=NEVER_S / 4,
        connect_timeout_s=NEVER_S,
        start_timeout_s=NEVER_S,
    )


def _sinks(graph: ExecutionGraph) -> dict[str, TransactionalSink]:
    """The sinks by uid. Raises ValueError for one whose outside world is not known."""
    sinks: dict[str, TransactionalSink] = {}
    for vertex in graph.vertices:
        for node in vertex.operators:
            if not isinstance(node.spec, SinkSpec):
                continue
            if not isinstance(node.spec.sink, TransactionalSink):
                raise ValueError(
                    f"sink {node.label} is a {type(node.spec.sink).__name__}: a job that is explored "
                    "writes to a minirt.testing.TransactionalSink, whose output can be set back"
                )
            sinks[node.uid] = node.spec.sink
    if len({id(sink) for sink in sinks.values()}) < len(sinks):
        raise ValueError("a job that is explored has a TransactionalSink of its own for each sink")
    return sinks


def rows_of(sinks: Mapping[str, TransactionalSink]) -> dict[str, Sequence[Any]]:
    """What the outside world sees, by the uid of the sink."""
    return {uid: sink.rows for uid, sink in sinks.items()}
