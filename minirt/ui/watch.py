"""Reads a job once a second while anybody looks, for all who look, and not at all while nobody does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import MinirtError
from minirt.ui import timeline
from minirt.ui.reading import Plain, Reading, Subject
from minirt.ui.snapshot import Course, snapshot

EVERY_S = 1.0
VIEWERS_MAX = 50
"""How many pages may be open at a time."""
KEPT_CHECKPOINTS = 32
"""How many checkpoints that somebody has chosen are kept with their parts."""


class TooManyViewersError(MinirtError):
    """As many pages are open as may be."""


class Watch:
    """All methods but `checkpoint` and `strip` belong to one event loop."""

    def __init__(self, subject: Subject, every_s: float = EVERY_S) -> None:
        self.subject = subject
        self._every_s = every_s
        self._reading_lock = threading.Lock()
        self._course = Course()
        self._reading: Reading | None = None
        self._read_at = float("-inf")
        self._newest = ""
        self._viewers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._chosen: OrderedDict[tuple[int, int], Plain] = OrderedDict()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    async def snapshots(self) -> AsyncIterator[str]:
        """The newest snapshot as JSON again and again, for one viewer. Raises TooManyViewersError."""
        if self.viewers >= VIEWERS_MAX:
            raise TooManyViewersError(f"{VIEWERS_MAX} pages look at this job already; close one")
        changed = asyncio.Event()
        self._viewers.add(changed)
        try:
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            elif self._newest:
                yield self._newest
            while True:
                await changed.wait()
                changed.clear()
                yield self._newest
        finally:
            self._viewers.discard(changed)
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task, self._newest = None, ""

    async def _run(self) -> None:
        while True:
            began_at = SYSTEM_CLOCK.monotonic()
            self._newest = await asyncio.to_thread(self.read)
            for changed in self._viewers:
                changed.set()
            await asyncio.sleep(max(0.0, self._every_s - (SYSTEM_CLOCK.monotonic() - began_at)))

    def read(self) -> str:
        """A snapshot as JSON, not older than the time between two; or the error in its place."""
        with self._reading_lock:
            now = SYSTEM_CLOCK.monotonic()
            try:
                if self._reading is None or now - self._read_at >= self._every_s / 2:
                    self._reading, self._read_at = self.subject.read(), now
                return json.dumps(snapshot(self._reading, self._course))
            except MinirtError as error:
                return json.dumps({"error": str(error)})

    def strip(self, end: int) -> Plain:
        """The checkpoints before number `end`."""
        reading = self._reading
        return timeline.strip(() if reading is None else reading.checkpoints, end)

    def checkpoint(self, checkpoint_id: int, generation: int) -> Plain:
        """One that is over, by subtask. Raises MinirtError if nobody remembers it."""
        key = (checkpoint_id, generation)
        with self._reading_lock:
            if key not in self._chosen:
                self._chosen[key] = self.subject.checkpoint(*key)
                if len(self._chosen) > KEPT_CHECKPOINTS:
                    self._chosen.popitem(last=False)
            found, reading = self._chosen[key], self._reading
        vertices = () if reading is None else reading.description["vertices"]
        return timeline.timeline(found, vertices)
