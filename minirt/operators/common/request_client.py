"""Sends the requests of one operator: the part that runs in an event loop, beside the record path."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from math import inf
from typing import Any

from minirt.data.custody import Custody
from minirt.functions import AsyncFunction, Retry
from minirt.monitoring.logs import logger_of
from minirt.operators.common.base import opening_error
from minirt.operators.common.mailbox import Mailbox
from minirt.operators.common.requests import Request

logger = logger_of("worker")

TIMED_OUT = TimeoutError("no answer in time")
"""The error of a request that was given up."""

Answer = tuple[Request | None, Any, BaseException | None]
"""A request, its result and its error, if there is one; no request if the function could not be opened."""

RunAsync = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class RequestClient:
    """Awaits the function for each request, again where `retry` says so, and posts lists of answers.

    The owner calls `send` and `close` in its thread. All else happens in the event loop, in at most
    `capacity` lanes: a lane is a task that sends one request after another, since a task for each would
    cost much more. A record is lent to the function for each attempt, and its result is taken before any
    other code of the user runs.
    """

    def __init__(
        self,
        label: str,
        function: Callable[[Any], Awaitable[Any]],
        capacity: int,
        timeout_s: float | None,
        retry: Retry | None,
        custody: Custody,
        mailbox: Mailbox[list[Answer]],
        run_async: RunAsync,
    ) -> None:
        self._label = label
        self._function = function
        self._capacity = capacity
        self._timeout_s = timeout_s
        self._retry = retry
        self._lend, self._take = custody.lend, custody.take
        self._mailbox = mailbox
        self._run_async = run_async
        self._used = False
        self._closed = False
        self._opening: asyncio.Future[None] | None = None
        self._unsent: deque[Request] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        """Lanes that have sent nothing yet; the loop does not refer to its tasks."""
        self._lanes = 0
        """How many there are, but for those whose request was given up."""
        self._under_way: dict[Request, tuple[float, asyncio.Task[None]]] = {}
        """The deadline and the lane of each request, in the order of the deadlines."""
        self._timer: asyncio.TimerHandle | None = None
        self._sent = 0
        self._answers: list[Answer] = []
        """What is to be posted at the next turn of the loop."""

    # The thread of the owner.

    def send(self, requests: Sequence[Request]) -> None:
        self._used = True
        self._run_async(partial(self._start, requests))

    def close(self) -> None:
        """Give up what is under way. Nothing of it is posted any more."""
        self._closed = True
        if self._used:
            self._run_async(self._close)

    # The event loop.

    async def _start(self, requests: Sequence[Request]) -> None:
        try:
            await self._open()
        except BaseException as error:
            self._post((None, None, error))
            return
        if not self._closed:
            self._unsent.extend(requests)
            self._add_lanes()

    async def _open(self) -> None:
        if not isinstance(self._function, AsyncFunction):
            return
        if self._opening is None:
            opening = asyncio.wait_for(self._open_function(self._function), self._timeout_s)
            self._opening = asyncio.ensure_future(opening)
        await asyncio.shield(self._opening)

    async def _open_function(self, function: AsyncFunction) -> None:
        """What it raises would end the event loop, if it is no Exception."""
        try:
            await function.open()
        except asyncio.CancelledError as cancelled:
            if _is_cancelled():
                raise
            raise opening_error(self._label, cancelled) from cancelled
        except BaseException as error:
            raise opening_error(self._label, error) from error

    def _add_lanes(self) -> None:
        """As many as there are requests for, within the capacity."""
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._unsent), self._capacity - self._lanes)):
            self._lanes += 1
            self._starting.add(loop.create_task(self._send_all()))

    async def _send_all(self) -> None:
        """A lane: send what is unsent. It ends with a request that was given up."""
        loop, lane = asyncio.get_running_loop(), asyncio.current_task()
        assert lane is not None
        self._starting.discard(lane)
        unsent, under_way, timeout_s = self._unsent, self._under_way, self._timeout_s
        while unsent:
            request = unsent.popleft()
            self._sent += 1
            deadline = loop.time() + timeout_s if timeout_s is not None else inf
            under_way[request] = (deadline, lane)
            if self._timer is None and timeout_s is not None:
                self._timer = loop.call_at(deadline, self._give_up_late)
            result, error = await self._ask(request, self._sent)
            if under_way.pop(request, None) is None:
                return
            self._post((request, result, error))
        self._lanes -= 1

    async def _ask(self, request: Request, number: int) -> tuple[Any, BaseException | None]:
        function, retry, attempts = self._function, self._retry, 0
        while True:
            try:
                return self._take(await function(self._lend(request.record))), None
            except (asyncio.CancelledError, GeneratorExit) as ended:
                if request not in self._under_way:
                    raise
                error: BaseException = ended
            except BaseException as failure:
                error = failure
            attempts += 1
            if retry is None or not retry.again(attempts, error):
                return None, error
            await asyncio.sleep(retry.delay_s(attempts, number))

    def _post(self, answer: Answer) -> None:
        """All that comes within one turn of the loop goes into the mailbox at once."""
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._post_all)
        self._answers.append(answer)

    def _post_all(self) -> None:
        answers, self._answers = self._answers, []
        if not self._closed:
            self._mailbox.put(answers)

    def _give_up_late(self) -> None:
        """The first of the deadlines has come, unless its request was answered meanwhile.

        A lane whose request is given up counts no more, even if the function will not be cancelled.
        """
        self._timer = None
        loop = asyncio.get_running_loop()
        now, late = loop.time(), []
        for request, (deadline, lane) in self._under_way.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._give_up_late)
                break
            late.append((request, lane))
        for request, lane in late:
            del self._under_way[request]
            self._post((request, None, TIMED_OUT))
            lane.cancel()
            self._lanes -= 1
        self._add_lanes()

    async def _close(self) -> None:
        lanes = [*self._starting, *(lane for _, lane in self._under_way.values())]
        self._unsent.clear()
        self._under_way.clear()
        if self._timer is not None:
            self._timer.cancel()
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        if self._opening is None or not isinstance(self._function, AsyncFunction):
            return
        try:
            await asyncio.shield(self._opening)
            await self._function.close()
        except BaseException as error:
            logger.error("operator %s could not be closed: %r", self._label, error, exc_info=error)


def _is_cancelled() -> bool:
    """Tells whether the end of the running task was asked for, so that its function has not raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
