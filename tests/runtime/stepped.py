"""A whole job in the hands of a test: it decides who works, and when a checkpoint is taken.

Everything runs in one thread with a clock that only the test moves, and answers to requests that all
wait for. So a test can fill all queues, take a checkpoint of them, and restore it in another job: the
same every time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

import cloudpickle

import minirt as rt
from minirt.graph.execution import ExecutionGraph
from minirt.graph.planner import build_execution_graph
from minirt.modes import find_mode
from minirt.protocol.job_events import (
    JobEvent,
    JobStatus,
    SavepointRequested,
    StopWorkers,
    Submitted,
    WorkerFailed,
)
from minirt.protocol.manifest import Manifest
from minirt.protocol.restarts import RestartStrategy
from minirt.protocol.restore_options import RestoreOptions
from minirt.protocol.savepoint_requests import Afterwards, SavepointRequest
from minirt.runtime.cluster.local import LocalCluster
from minirt.runtime.control.package import JobPackage
from minirt.runtime.coordinator.observer import JobObserver
from minirt.runtime.coordinator.shell import JobShell
from minirt.runtime.coordinator.storage_tasks import StorageCommand, StorageTasks
from minirt.runtime.program.execute import job_protocol
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshot
from minirt.runtime.subtask.subtask import Subtask
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from minirt.testing.clock import HeldClock
from minirt.testing.event_loop import SteppedLoop

INTERVAL_S = 1000.0
"""So long that no checkpoint begins unless a test asks for one."""

RESTART_DELAY_S = 1.0
ONE_RESTART = rt.Restart.fixed_delay(1, RESTART_DELAY_S)

SMALL = rt.Limits(
    input_queue_bytes=200,
    output_queue_bytes=200,
    frame_bytes=40,
    watermark_interval_s=0,
    source_poll_s=0,
    inline_snapshot_bytes=0,
)
"""Queues that are soon full, and every part of a checkpoint in a file of its own."""


class OneRecordAtATime:
    """The smallest slices there are; a `Pacer`."""

    def begin(self) -> None:
        pass

    def piece(self, *, columns: bool) -> int:
        return 1

    def done(self, records: int, *, columns: bool) -> bool:
        return True


class SteppedJob:
    """A job that has started, from `restore` if given, and stands still until it is told to go on."""

    def __init__(
        self,
        env: rt.Environment,
        folder: Path,
        *,
        mode: str = "unaligned",
        restore: RestoreOptions | None = None,
        restart: RestartStrategy | None = None,
        watermarks: Literal["regenerated", "restored"] = "regenerated",
    ) -> None:
        self.graph: ExecutionGraph = build_execution_graph(env.graph())
        self.storage = CheckpointStorage(ObjectStore(str(folder)), SMALL.inline_snapshot_bytes)
        checkpointing = rt.Checkpointing(
            folder, interval=INTERVAL_S, mode=mode, timeout="1d", watermarks=watermarks
        )
        options = rt.Options(limits=SMALL, heartbeat_timeout="365d", buffer_timeout=0)
        self._mode = mode
        modes = {mode: find_mode(mode)}
        package = JobPackage(cloudpickle.dumps(self.graph), options, modes, self.storage)
        tasks = StorageTasks(self.graph, self.storage, checkpointing, restore or RestoreOptions())
        self._protocol = job_protocol(
            self.graph, checkpointing, modes, mode, restart or rt.Restart.none(), options
        )
        self._clock = HeldClock(1000.0)
        self._event_loop = SteppedLoop(self._clock.monotonic)
        self._events: deque[JobEvent] = deque([Submitted()])
        self._cluster = LocalCluster(
            package,
            self._events.append,
            self._upload,
            self._clock,
            OneRecordAtATime,
            run_async=lambda start: self._event_loop.begin(start),
        )
        self._shell = JobShell(
            self._protocol,
            self._cluster,
            tasks,
            self._run_storage(tasks),
            self._clock,
            JobObserver(),
            lambda answer: None,
        )
        self._settle()

    def clog(self) -> None:
        """Let all but the last vertices work until every queue that they feed is full."""
        feeding = {link.source for link in self.graph.links}
        while self._turn(lambda subtask: subtask.id.vertex in feeding):
            pass

    def checkpoint(self, *, working: bool = False) -> Manifest:
        """Take a checkpoint. Unless all are `working` meanwhile, only what overtakes gets through."""
        before = set(self.storage.manifest_keys())
        self._clock.at += INTERVAL_S
        self._shell.fire_timers()
        while not (new := set(self.storage.manifest_keys()) - before):
            assert self._turn(lambda subtask: working), "the checkpoint does not complete"
        self._settle()
        return self.storage.read_manifest(new.pop())

    def try_checkpoint(self) -> Manifest | None:
        """Take a checkpoint while all work; None if the job has come to its end before."""
        before = set(self.storage.manifest_keys())
        self._clock.at += INTERVAL_S
        self._shell.fire_timers()
        while not (new := set(self.storage.manifest_keys()) - before) and not self.over:
            assert self._turn(lambda subtask: True), "the checkpoint does not complete"
        self._settle()
        return self.storage.read_manifest(max(new)) if new and not self.over else None

    def stop(self) -> None:
        """End the job with a savepoint, while all work."""
        request = SavepointRequest(1, self._mode, None, Afterwards.STOP)
        self._events.append(SavepointRequested(request))
        while not self.over:
            assert self._turn(lambda subtask: True), "the stop does not complete"

    @property
    def subtasks(self) -> Collection[Subtask]:
        """Those of the current generation."""
        return self._cluster.subtasks.values()

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self._shell.ending is not None

    def work(self, turns: int) -> None:
        """Let everybody process this many records, as far as there are any."""
        for _ in range(turns):
            self._turn(lambda subtask: True)

    def finish(self) -> None:
        """Run to the end, with its last checkpoint. Raises the error of a job that failed."""
        while self._shell.ending is None:
            if not self._turn(lambda subtask: True):
                self._clock.at += 1.0
                self._shell.fire_timers()
        self.leave()
        self._raise_failure()

    def leave(self) -> None:
        """Do nothing more with it: what waits in its event loop is dropped, as with a process that ends."""
        self._event_loop.drop()

    def crash(self) -> None:
        """A worker is lost; the job restarts, if its strategy lets it."""
        generation = self._protocol.generation
        self._cluster.stop(StopWorkers(generation, kill=True))
        self.leave()
        self._event_loop = SteppedLoop(self._clock.monotonic)
        self._events.append(WorkerFailed(generation, rt.WorkerLostError("killed by the test")))
        self._settle()
        self._clock.at += RESTART_DELAY_S
        self._shell.fire_timers()
        self._settle()

    def _turn(self, works: Callable[[Subtask], bool]) -> bool:
        """Whether anything was done."""
        progress = self._settle()
        for subtask in list(self._cluster.subtasks.values()):
            subtask.on_time()
            if works(subtask) and subtask.runnable:
                self._cluster.attempt(subtask.run_slice)
                progress = True
        for link in self._cluster.links:
            while link.move():
                progress = True
        progress = self._settle() or progress
        return self._answer(jump=not progress) or progress

    def _answer(self, *, jump: bool) -> bool:
        """Turn the event loop if something in it is due, or, to `jump`, whenever that will be."""
        at = self._event_loop.next_at
        if at is None or (at > self._clock.at and not jump):
            return False
        self._clock.at = max(self._clock.at, at)
        self._event_loop.turn()
        return True

    def _settle(self) -> bool:
        progress = bool(self._events)
        while self._events and self._shell.ending is None:
            self._shell.on_event(self._events.popleft())
        self._raise_failure()
        return progress

    def _raise_failure(self) -> None:
        ending = self._shell.ending
        if ending is not None and ending.status is JobStatus.FAILED:
            assert ending.error is not None
            raise ending.error

    def _upload(self, upload: SnapshotUpload) -> None:
        self._events.append(store_snapshot(upload, self.storage, self._clock.monotonic))

    def _run_storage(self, tasks: StorageTasks) -> Callable[[StorageCommand], None]:
        def run(command: StorageCommand) -> None:
            event = tasks.run(command)
            if event is not None:
                self._events.append(event)

        return run
