"""An event loop beside the record path, in a thread that is started when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

from minirt.operators.common.base import CoroutineStart
from minirt.threads import start_thread


class EventLoop:
    """Runs coroutines. If one raises, or the thread fails, `on_error` is called in that thread."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Nobody else refers to them."""

    def run(self, start: CoroutineStart) -> None:
        """Have a coroutine run soon, behind those before it. It logs as whoever calls this does."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = start_thread("event loop", self._run_for_ever, self._on_error)
        self._loop.call_soon_threadsafe(self._begin, start)

    def finish(self, timeout_s: float) -> None:
        """Wait until all coroutines have ended, at most so many seconds; then end the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        ending = asyncio.run_coroutine_threadsafe(self._wait(), loop)
        with contextlib.suppress(TimeoutError, CancelledError):
            ending.result(timeout_s)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout_s)

    def _run_for_ever(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _begin(self, start: CoroutineStart) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._watched(start))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watched(self, start: CoroutineStart) -> None:
        try:
            await start()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._on_error(error)

    async def _wait(self) -> None:
        others = self._tasks
        if others:
            await asyncio.wait([*others])
