"""The snapshots of a worker that wait to be stored, in order: bounded, and without those nobody wants."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Collection
from contextvars import Context, copy_context

from minirt.errors import StorageError
from minirt.protocol.ended import EndedCheckpoints
from minirt.runtime.subtask.snapshot import SnapshotUpload


class UploadQueue:
    """Filled and told of aborts by the worker's loop, emptied by whoever stores.

    A checkpoint that was given up leaves of each snapshot only what its sink has prepared: that output is
    not written again, so it belongs to the next checkpoint. So what waits is little even where storage
    hangs while checkpoints expire one after the other. `uploads_max` bounds it all the same.
    """

    def __init__(self, uploads_max: int) -> None:
        self._uploads_max = uploads_max
        self._waiting: deque[tuple[Context, SnapshotUpload]] = deque()
        self._lock = threading.Lock()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Rung for each snapshot: whoever waits for it wakes in one step, which a condition does not."""
        self._given_up = EndedCheckpoints()
        """Those that are complete may be among them: nothing of them waits."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, upload: SnapshotUpload) -> None:
        """Raises StorageError if too many wait: whoever goes on taking snapshots runs out of memory."""
        with self._lock:
            if len(self._waiting) >= self._uploads_max:
                raise StorageError(
                    f"{len(self._waiting)} snapshots wait to be stored, and {upload.name} has one more: "
                    "storage does not keep up or hangs"
                )
            self._waiting.append((copy_context(), upload))
        self._bell.put(None)

    def take(self) -> list[tuple[Context, SnapshotUpload]]:
        """The next one, waiting for it, and what else waits of its checkpoint, each with the context in
        which it was put here."""
        while True:
            self._bell.get()
            with self._lock:
                if taken := self._first():  # Else it was stored together with the one before.
                    return taken

    def give_up(self, checkpoint_id: int, spared: Collection[int] = ()) -> None:
        """Nobody wants the snapshots of this checkpoint any more, nor of older ones but the `spared`."""
        with self._lock:
            self._given_up.add(checkpoint_id, spared)
            self._waiting = deque(
                (context, upload.without_state() if self.is_given_up(upload) else upload)
                for context, upload in self._waiting
            )

    def is_given_up(self, upload: SnapshotUpload) -> bool:
        """Whether it need not be stored; to be asked also while that is done."""
        return upload.checkpoint_id in self._given_up

    def _first(self) -> list[tuple[Context, SnapshotUpload]]:
        """All that waits at the head of one checkpoint, which waits no more."""
        taken: list[tuple[Context, SnapshotUpload]] = []
        while self._waiting:
            if taken and self._waiting[0][1].checkpoint_id != taken[0][1].checkpoint_id:
                break
            taken.append(self._waiting.popleft())
        return taken
