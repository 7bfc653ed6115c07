"""What a checkpoint and a restart cost the coordinator of a large job: `python -m benchmarks.scale`.

`python -m benchmarks.scale --parallelism 2 8 20 40` runs whole jobs instead, in each mode, and measures how
long checkpoints take, how many rows the job makes and how much memory it needs; with `--peers flink` also
those of Flink, where `make bench-peers` has installed it.

The coordinator is the real one, with its storage in a local folder; the workers are made up. They answer
at once, in the bytes that real ones send, so all CPU time is the coordinator's. The job is a source and a
keyed function with a shuffle between them, with as many subtasks of each, and no records. Before that come
rows of what a channel, and a connection of the coordinator, costs.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

import minirt as rt
from benchmarks import scale_jobs
from benchmarks.measure import print_rows
from benchmarks.scale_parts import Costs, barrier_row, channel_row, look_row
from minirt.clock import Clock
from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph
from minirt.graph.planner import build_execution_graph
from minirt.laboratory.peers import PEERS, find_peer
from minirt.modes import MODES
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import (
    CleanUp,
    GenerationFailed,
    JobEvent,
    JobStatus,
    RecordHistory,
    SnapshotAcknowledged,
    StopWorkers,
    StoreManifest,
    Submitted,
    SubtaskStarted,
    WorkerFailed,
    WorkersConnected,
    WorkerSeen,
)
from minirt.protocol.manifest import ManifestKey, SnapshotRef, SubtaskStats
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.source_offsets import SourceOffsets
from minirt.protocol.stored_watermarks import LinkWatermarks, SubtaskWatermarks
from minirt.protocol.subtask_commands import SubtaskCommand, TriggerCheckpoint
from minirt.runtime.control.messages import Heartbeat, Peers, ToCoordinator, Together
from minirt.runtime.control.package import Deployment
from minirt.runtime.coordinator.observer import JobProgress
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.program.execute import job_protocol
from minirt.runtime.program.shapes import place
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.local_files import LocalFiles
from minirt.storage.store import Objects, ObjectStore

STATE_BYTES = 1 << 20
"""What the snapshot of a subtask says that it has."""

_REQUESTS = {
    **dict.fromkeys(("write", "create"), "puts"),
    **dict.fromkeys(("read", "read_range", "size"), "gets"),
    **dict.fromkeys(("sizes", "sweep"), "lists"),
    "delete": "deletes",
}

_DELETED_AT_ONCE = 1000
"""Objects that S3 deletes with one request."""

_RETAIN = 3
_INTERVAL_S = 3600
_STEP_S = 1e-4
"""How far the clock moves with each event: workers of a real job do not all answer at once either."""

_STORAGE: dict[type, str] = {
    StoreManifest: "manifest",
    RecordHistory: "history",
    CleanUp: "clean_up",
}


class CountKeys(rt.KeyedProcess[int, int, int]):
    """Stands for any keyed function."""

    seen = rt.ValueState(default=0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterator[int]:
        self.seen.set(self.seen.get() + 1)
        yield record


def large_job(parallelism: int) -> ExecutionGraph:
    """Two operators with an all-to-all shuffle between them."""
    env = rt.Environment("scale", parallelism=parallelism, max_parallelism=max(128, parallelism))
    (
        env.source(rt.SequenceSource.endless(splits=parallelism), uid="numbers")
        .key_by(lambda number: number)
        .process(CountKeys(), uid="counted")
        .sink(rt.DiscardSink(), uid="out")
    )
    return build_execution_graph(env.graph("scale"))


class MadeUpWorkers:
    """A cluster of workers that do what they were told in `work`; `messages` are as on the wire.

    The snapshots of a worker are all ready at once, so one message acknowledges them.
    """

    def __init__(self, graph: ExecutionGraph, options: rt.Options, folder: Path) -> None:
        self._graph = graph
        self._folder = folder
        self._subtasks: defaultdict[int, list[SubtaskId]] = defaultdict(list)
        self.placement = place(graph, options)
        for id, worker in self.placement.items():
            self._subtasks[worker].append(id)
        self.messages: deque[bytes] = deque()
        self.sent = self.sent_bytes = 0
        self._told: list[Deployment | TriggerCheckpoint] = []

    @property
    def workers(self) -> int:
        return len(self._subtasks)

    @property
    def assignment_bytes(self) -> int:
        """Of where all subtasks and workers are, which each worker hears when it starts."""
        addresses = dict.fromkeys(self._subtasks, ("10.0.0.1", 40_000))
        return len(cloudpickle.dumps(Peers(self.placement, addresses)))

    def deploy(self, deployment: Deployment) -> None:
        self._told.append(deployment)

    def send(self, command: SubtaskCommand) -> None:
        if isinstance(command, TriggerCheckpoint):
            self._told.append(command)

    def stop(self, command: StopWorkers) -> None:
        self._told.clear()
        self.messages.clear()

    def work(self) -> None:
        """Make the answers to all that they were told."""
        told, self._told = self._told, []
        for command in told:
            if isinstance(command, Deployment):
                self._send(WorkersConnected(command.generation))
            for ids in self._subtasks.values():
                if isinstance(command, Deployment):
                    for id in ids:
                        self._send(SubtaskStarted(command.generation, id))
                else:
                    self._send(Together(tuple(self._acknowledged(command, id) for id in ids)))

    def heartbeats(self, generation: int) -> list[bytes]:
        """One of each worker, as on the wire."""
        return [
            cloudpickle.dumps(
                Heartbeat(generation, worker, {id: SubtaskMetrics() for id in subtasks})
            )
            for worker, subtasks in self._subtasks.items()
        ]

    def _send(self, message: ToCoordinator) -> None:
        data = cloudpickle.dumps(message)
        self.messages.append(data)
        self.sent += 1
        self.sent_bytes += len(data)

    def _acknowledged(self, command: TriggerCheckpoint, id: SubtaskId) -> SnapshotAcknowledged:
        checkpoint_id, generation = command.barrier.checkpoint_id, command.generation
        vertex = self._graph.vertices[id.vertex]
        path = CheckpointPaths.snapshot(ManifestKey(checkpoint_id, generation), id.vertex, id.index)
        self._store(self._folder / path)
        inputs = tuple(
            LinkWatermarks.of(str(link.id), "hash", link.senders, [None] * link.senders)
            for link in self._graph.links
            if link.target == id.vertex
        )
        head = vertex.operators[0].uid
        return SnapshotAcknowledged(
            generation,
            checkpoint_id,
            id,
            SnapshotRef(id.vertex, id.index, path, None, STATE_BYTES, 123_456_789),
            SubtaskStats(
                *(id.vertex, id.index, self._graph.subtask_name(id)),
                *(0.001, 0.002, 0.0005, 0.05, 0.0),
                *(STATE_BYTES, 0, 1000),
                unaligned=False,
            ),
            watermarks=SubtaskWatermarks(head, id.index, None, inputs),
            offsets=SourceOffsets(head, {str(id.index): 1}) if vertex.is_source else None,
        )

    def _store(self, path: Path) -> None:
        """A file without content: all that the coordinator looks at is its size."""
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.truncate(STATE_BYTES)


class CountedRequests:
    """Objects, and how often each operation was asked for: on S3 each is a request."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.count: Counter[str] = Counter()

    def delete_all(self, paths: Sequence[str]) -> None:
        self.count["deletes"] += -(-len(paths) // _DELETED_AT_ONCE)
        self._objects.delete_all(paths)

    def __getattr__(self, name: str) -> Any:
        if callable(getattr(self._objects, name)):
            self.count[_REQUESTS[name]] += 1
        return getattr(self._objects, name)


@dataclass
class SteppedClock(Clock):
    """Moves when it is told to."""

    at: float = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class LargeJob:
    """A coordinator and its made-up workers, in one thread."""

    def __init__(self, graph: ExecutionGraph, options: rt.Options, folder: Path) -> None:
        checkpointing = rt.Checkpointing(folder, interval=f"{_INTERVAL_S}s", retain=_RETAIN)
        self.requests = CountedRequests(LocalFiles(str(folder)))
        store = ObjectStore(str(folder), objects=self.requests)
        storage = CheckpointStorage(store, options.limits.inline_snapshot_bytes)
        self.costs = Costs()
        self._graph = graph
        self._monitor = JobMonitor(graph)
        self.workers = MadeUpWorkers(graph, options, folder)
        self._clock = SteppedClock()
        self._protocol = job_protocol(
            graph, checkpointing, MODES, "aligned", rt.Restart.fixed_delay(10, "0s"), options
        )
        self._tasks = StorageTasks(graph, storage, checkpointing, RestoreOptions())
        self._events: deque[JobEvent] = deque()
        self._storage_commands: deque[StorageCommand] = deque()
        self._shell = JobShell(
            self._protocol,
            self.workers,
            self._tasks,
            self._storage_commands.append,
            self._clock,
            self._monitor,
            lambda answer: None,
        )
        self._folder = folder

    def start(self) -> None:
        """From nothing until it runs."""
        self._handle(Submitted())

    def checkpoint(self) -> None:
        """From the trigger until all is told and cleaned up."""
        self._clock.at += _INTERVAL_S
        self._handle()

    def heartbeats(self) -> None:
        """Hear one from each worker, and tell observers once."""
        metrics: dict[SubtaskId, SubtaskMetrics] = {}
        for message in self.workers.heartbeats(self._protocol.generation):
            with self.costs.of("heartbeats"):
                heartbeat = pickle.loads(message)
                metrics.update(heartbeat.metrics)
                self._shell.on_event(WorkerSeen(heartbeat.generation, heartbeat.worker))
        names = {id: self._graph.subtask_name(id) for id in metrics}
        with self.costs.of("figures"):
            self._monitor.on_progress(JobProgress(metrics, names, {}))

    def restart(self) -> None:
        """From the loss of a worker until the job runs again, from its newest checkpoint."""
        lost = rt.WorkerLostError("a made-up worker")
        self._handle(WorkerFailed(self._protocol.generation, lost))

    @property
    def manifest_bytes(self) -> int:
        """The size of the newest manifest."""
        [*_, newest] = sorted(self._folder.glob(f"{CheckpointPaths.MANIFESTS}*.manifest"))
        return newest.stat().st_size

    def _handle(self, *events: JobEvent) -> None:
        """Have events handled, and all that follows from them."""
        self._events.extend(events)
        while True:
            self._shell.fire_timers()
            self.workers.work()
            if self._events:
                event = self._events.popleft()
                with self.costs.of("decide"):
                    self._shell.on_event(event)
            elif self.workers.messages:
                with self.costs.of("receive"):
                    message = pickle.loads(self.workers.messages.popleft())
                    self._events += message.events if isinstance(message, Together) else [message]
            elif self._storage_commands:
                self._run(self._storage_commands.popleft())
            else:
                break
            self._clock.at += _STEP_S
        if self._protocol.status is not JobStatus.RUNNING:
            raise SystemExit(f"the job is {self._protocol.status.value}")

    def _run(self, command: StorageCommand) -> None:
        with self.costs.of(_STORAGE.get(type(command), "other storage")):
            answer = self._tasks.run(command)
        if isinstance(answer, GenerationFailed):
            raise answer.error
        if answer is not None:
            self._events.append(answer)


def measure(parallelism: int, per_worker: int, checkpoints: int) -> dict[str, Any]:
    """A row: CPU seconds are those of a checkpoint, the mean of several, and of the restart behind them.

    Each checkpoint includes the clean-up of an older one.
    """
    workers = max(1, parallelism // per_worker)
    options = rt.Options(placement="slots", workers=workers)
    with tempfile.TemporaryDirectory() as folder:
        job = LargeJob(large_job(parallelism), options, Path(folder))
        job.start()
        for _ in range(_RETAIN):  # Each one from then on has an old one deleted.
            job.checkpoint()
        job.costs.cpu_s.clear()
        job.requests.count.clear()
        sent, sent_bytes = job.workers.sent, job.workers.sent_bytes
        for _ in range(checkpoints):
            job.checkpoint()
        spent = {f"{what}_s": cpu_s / checkpoints for what, cpu_s in job.costs.cpu_s.items()}
        messages = (job.workers.sent - sent) // checkpoints
        message_bytes = (job.workers.sent_bytes - sent_bytes) // checkpoints
        requests = {name: count / checkpoints for name, count in job.requests.count.items()}
        job.costs.cpu_s.clear()
        job.heartbeats()
        beats = {f"{what}_s": cpu_s for what, cpu_s in job.costs.cpu_s.items()}
        job.costs.cpu_s.clear()
        job.restart()
        return {
            "subtasks": 2 * parallelism,
            "workers": workers,
            "messages": messages,
            "message_bytes": message_bytes,
            "manifest_bytes": job.manifest_bytes,
            "assignment_bytes": job.workers.assignment_bytes,
            "checkpoint_s": sum(spent.values()),
            **{name: spent[name] for name in sorted(spent)},
            **requests,
            **beats,
            "restart_s": sum(job.costs.cpu_s.values()),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subtasks", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--per-worker", type=int, default=10, help="slots that share a process")
    parser.add_argument("--checkpoints", type=int, default=3, help="how many of each size")
    parser.add_argument("--parallelism", type=int, nargs="+", help="run whole jobs instead")
    parser.add_argument("--modes", nargs="+", choices=[*MODES], default=[*MODES], help="of these")
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[], help="beside these")
    parser.add_argument("--workers", type=int, default=4, help="processes of such a job")
    parser.add_argument("--interval", default="200ms", help="between its checkpoints")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long a run is measured")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    given = parser.parse_args(arguments)
    if given.parallelism:
        if min(*given.parallelism, given.workers, given.repeat, given.seconds) <= 0:
            parser.error("--parallelism, --workers, --repeat and --seconds must be above 0")
        peers = [find_peer(name) for name in given.peers]
        chosen = scale_jobs.settings(
            given.modes, given.parallelism, given.workers, given.interval, peers
        )
        try:
            found = scale_jobs.measure(chosen, peers, given.seconds, given.repeat)
        except ConfigurationError as error:
            parser.error(str(error))
        print_rows(found, given.json)
        return
    if given.peers:
        parser.error("--peers has an effect only with --parallelism")
    if min(given.subtasks) < 2 or min(given.per_worker, given.checkpoints) < 1:
        parser.error("--subtasks must be at least 2, --per-worker and --checkpoints at least 1")
    rows = [barrier_row(n, mode) for n in given.subtasks for mode in ("aligned", "unaligned")]
    rows += [channel_row(n) for n in given.subtasks]
    rows += [look_row(n // given.per_worker or 1) for n in given.subtasks]
    rows += [measure(n // 2, given.per_worker, given.checkpoints) for n in given.subtasks]
    print_rows(rows, given.json)


if __name__ == "__main__":
    main()
