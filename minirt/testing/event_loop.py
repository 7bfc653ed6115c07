"""Event loops without a thread, sockets or a clock of their own: whoever holds one says when it turns."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import events
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minirt.operators.common.base import CoroutineStart
from minirt.testing.schedule import Actor

if TYPE_CHECKING:
    from minirt.testing.worker import SimulatedWorker


class _NoSockets:
    """What a loop waits with that waits for nothing."""

    def select(self, timeout: float | None = None) -> Sequence[Any]:
        return ()

    def close(self) -> None:
        """There is nothing to close."""


class SteppedLoop(asyncio.BaseEventLoop):
    """Runs coroutines that await each other, and timers: no sockets, and no threads.

    `time` gives the seconds that its timers go by.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoSockets()
        self._time = time
        self._begun: set[asyncio.Task[None]] = set()
        self.set_exception_handler(_nobody_hears)

    def __del__(self) -> None:
        """There is nothing to give back: a worker that was killed closes no loop either."""

    def time(self) -> float:
        return self._time()

    @property
    def next_at(self) -> float | None:
        """When it has something to do, by its clock; None if nothing is left."""
        if self._ready:  # type: ignore[attr-defined]
            return self.time()
        due = [handle.when() for handle in self._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        return min(due, default=None)

    def begin(self, start: CoroutineStart) -> None:
        """Have a coroutine begin at the next turn."""
        self.call_soon(self._begin, start)

    def drop(self) -> None:
        """Nothing goes on any more."""
        for task in asyncio.all_tasks(self):
            with contextlib.suppress(Exception):
                task.get_coro().close()

    def turn(self) -> None:
        """Run what is ready or due, once. Raises what a coroutine has raised that was begun."""
        outer = events._get_running_loop()
        events._set_running_loop(None)  # A notebook has one, and it stands still meanwhile.
        try:
            self.call_soon(self.stop)
            self.run_forever()
        finally:
            events._set_running_loop(outer)
        done = [task for task in self._begun if task.done()]
        self._begun.difference_update(done)
        for task in done:
            if not task.cancelled():
                task.result()

    def _begin(self, start: CoroutineStart) -> None:
        self._begun.add(self.create_task(start()))

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """None come."""

    def _write_to_self(self) -> None:
        """Nobody waits."""


class JumpingLoop:
    """Runs each coroutine to its end, when it is told to: its clock jumps to the next timer."""

    def __init__(self) -> None:
        self._now = 0.0
        self._loop = SteppedLoop(lambda: self._now)

    def begin(self, start: CoroutineStart) -> None:
        """Take up a coroutine; nothing of it runs before `finish`."""
        self._loop.begin(start)

    def finish(self) -> None:
        """Turn until nothing is left to do but timers that nobody waits for."""
        while (at := self._loop.next_at) is not None:
            if at > self._now and not asyncio.all_tasks(self._loop):
                break
            self._now = max(self._now, at)
            self._loop.turn()


class EventLoopActor(Actor):
    """The event loop of a simulated worker; the schedule draws when it turns."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker
        self._loop = SteppedLoop(worker.clock.monotonic)

    @property
    def gone(self) -> bool:
        return self._worker.gone

    @property
    def wake_at(self) -> float | None:
        return self._worker.clock.scheduled(self._loop.next_at) if self._worker.turning else None

    def begin(self, start: CoroutineStart) -> None:
        self._loop.begin(start)

    def drop(self) -> None:
        """The worker is gone, or the simulation over, and with it all that was under way."""
        self._loop.drop()

    def act(self) -> bool:
        at = self._loop.next_at
        if not self._worker.turning or at is None or at > self._worker.clock.monotonic():
            return False
        self._worker.guard(self._loop.turn)
        return True


def _nobody_hears(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What is lost with a worker that was killed is not worth a message."""
