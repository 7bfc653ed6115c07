"""Stores the snapshots of a worker, beside the record path."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context

from minirt.protocol.job_events import JobEvent, WorkerFailed
from minirt.runtime.assembly import JobPackage
from minirt.runtime.messages import portable
from minirt.runtime.snapshot import SnapshotUpload


class Uploader:
    """Stores snapshots in a thread of its own, in order, and tells the coordinator from there.

    What is logged meanwhile carries the fields of whoever has put them here.

    Told by the worker's loop, a checkpoint would wait for one more record of a slow function.
    """

    def __init__(self, package: JobPackage, tell: Callable[[JobEvent], None]) -> None:
        self._writer = package.storage
        self._tell = tell
        self._uploads: queue.SimpleQueue[tuple[Context, SnapshotUpload]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="uploader", daemon=True).start()

    def put(self, upload: SnapshotUpload) -> None:
        self._uploads.put((copy_context(), upload))

    def _run(self) -> None:
        while True:
            context, upload = self._uploads.get()
            try:
                result: JobEvent = context.run(upload.run, self._writer, time.time)
            except Exception as error:
                result = WorkerFailed(upload.generation, portable(error))
            self._tell(result)
            del upload  # It may hold much state.
