"""Stores the snapshots of a worker, beside the record path."""

from __future__ import annotations

from collections.abc import Callable

from minirt.errors import ConfigurationError
from minirt.protocol.job_events import JobEvent, WorkerFailed
from minirt.runtime.control.connection import UnsendableError
from minirt.runtime.control.messages import portable
from minirt.runtime.control.package import JobPackage
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.runtime.worker.upload_queue import UploadQueue
from minirt.threads import start_thread


class Uploader:
    """Stores snapshots in a thread of its own, in order, and tells the coordinator from there.

    If the worker's loop told the coordinator, a checkpoint could wait for one more record of a slow
    function. Messages logged during an upload carry the log fields of the slice that ordered it.
    """

    def __init__(
        self,
        package: JobPackage,
        uploads_max: int,
        tell: Callable[[JobEvent], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._writer = package.storage
        self._clock = package.clock
        self._tell = tell
        self._queue = UploadQueue(uploads_max)
        start_thread("uploader", self._run, on_error)

    def put(self, upload: SnapshotUpload) -> None:
        """Raises StorageError if too many wait."""
        self._queue.put(upload)

    def give_up(self, checkpoint_id: int) -> None:
        """The checkpoint is not wanted any more."""
        self._queue.give_up(checkpoint_id)

    def _run(self) -> None:
        while True:
            context, upload = self._queue.take()
            context.run(self._store, upload)
            del upload  # It may hold much state.

    def _store(self, upload: SnapshotUpload) -> None:
        """Whatever becomes of it, the coordinator hears of it: else the checkpoint would never end."""
        try:
            result: JobEvent = upload.run(
                self._writer, self._clock.monotonic, lambda: self._queue.is_given_up(upload)
            )
        except BaseException as error:  # A sink may even call `sys.exit`.
            result = WorkerFailed(upload.generation, portable(error))
        try:
            self._tell(result)
        except UnsendableError as error:
            refused = ConfigurationError(
                f"{upload.name}: what its sink hands over for a checkpoint must be plain data: {error}"
            )
            self._tell(WorkerFailed(upload.generation, refused))
