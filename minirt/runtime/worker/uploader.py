"""Stores the snapshots of a worker, beside the record path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextvars import Context

from minirt.errors import ConfigurationError
from minirt.protocol.job_events import (
    SnapshotAcknowledged,
    SnapshotDeclined,
    WorkerFailed,
)
from minirt.runtime.control.connection import UnsendableError
from minirt.runtime.control.messages import ToCoordinator, Together, WorkerEvent, portable
from minirt.runtime.control.package import JobPackage
from minirt.runtime.subtask.snapshot import SnapshotUpload, store_snapshots
from minirt.runtime.worker.upload_queue import UploadQueue
from minirt.threads import start_thread

_UNTOLD_MAX = 64
"""How many acknowledgements one message has at most."""


class Uploader:
    """Stores snapshots in a thread of its own, in order, and tells the coordinator from there.

    What waits while one is being stored is stored together, as long as it is of one checkpoint.

    While more snapshots wait, acknowledgements do as well, until the next turn of the worker's loop: those
    that are ready by then go in one message. The loop alone would not do: a checkpoint could wait for one
    more record of a slow function. `on_result` is called in the thread, before the coordinator hears of it;
    `wake` afterwards, and only if the loop has something to do, as after a local snapshot, behind which the
    next one may be due: it would hold up the thread until then.
    Messages logged during an upload carry the log fields of the slice that ordered it.
    """

    def __init__(
        self,
        package: JobPackage,
        uploads_max: int,
        on_result: Callable[[WorkerEvent], None],
        wake: Callable[[], None],
        tell: Callable[[ToCoordinator], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._storage = package.storage
        self._clock = package.clock
        self._on_result = on_result
        self._wake = wake
        self._tell = tell
        self._queue = UploadQueue(uploads_max)
        self._lock = threading.Lock()
        self._untold: list[tuple[str, WorkerEvent]] = []
        """The names of subtasks, and what has become of their snapshots."""
        self._telling = threading.Lock()
        """Held from taking what is untold until it is told: the coordinator hears of all in order."""
        start_thread("uploader", self._run, on_error)

    def put(self, upload: SnapshotUpload) -> None:
        """Raises StorageError if too many wait."""
        self._queue.put(upload)

    def give_up(self, checkpoint_id: int, spared: Collection[int] = ()) -> None:
        """The checkpoint is not wanted any more, nor are older ones but for the `spared`."""
        self._queue.give_up(checkpoint_id, spared)

    def tell_results(self) -> None:
        """Tell the coordinator what has become of snapshots; may be called from any thread."""
        if not self._untold:
            return  # The loop asks in each turn, and waits for nobody who is telling.
        with self._telling:
            with self._lock:
                untold, self._untold = self._untold, []
            if not untold:
                return
            try:
                events = tuple(result for _, result in untold)
                self._tell(events[0] if len(events) == 1 else Together(events))
            except UnsendableError:
                for name, result in untold:
                    self._tell_alone(name, result)

    def _run(self) -> None:
        while True:
            taken = self._queue.take()
            names = [upload.name for _, upload in taken]
            results = self._store(taken)
            del taken  # It may hold much state.
            for result in results:
                self._on_result(result)
            with self._lock:
                self._untold += zip(names, results, strict=False)
                count = len(self._untold)
            stored = all(isinstance(result, SnapshotAcknowledged) for result in results)
            waits = stored and count < _UNTOLD_MAX and len(self._queue)
            if not waits:
                self.tell_results()
            if waits or not stored or any(map(_of_own_clock, results)):
                self._wake()

    def _store(self, taken: Sequence[tuple[Context, SnapshotUpload]]) -> Sequence[WorkerEvent]:
        """Whatever becomes of them, the coordinator hears of it: else the checkpoint would never end."""
        try:
            return store_snapshots(
                taken, self._storage, self._clock.monotonic, self._queue.is_given_up
            )
        except BaseException as error:  # A sink may even call `sys.exit`.
            _, first = taken[0]
            return [WorkerFailed(first.generation, portable(error))]

    def _tell_alone(self, name: str, result: WorkerEvent) -> None:
        try:
            self._tell(result)
        except UnsendableError as error:
            assert isinstance(result, SnapshotAcknowledged | SnapshotDeclined)
            refused = ConfigurationError(
                f"{name}: what its sink hands over for a checkpoint must be plain data: {error}"
            )
            self._tell(WorkerFailed(result.generation, refused))


def _of_own_clock(result: WorkerEvent) -> bool:
    """Whether it is about a local snapshot that is stored."""
    return isinstance(result, SnapshotAcknowledged) and result.local is not None
