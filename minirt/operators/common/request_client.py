"""Sends the requests of one operator: the part that runs in an event loop, beside the record path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from minirt.data.custody import Custody
from minirt.functions import AsyncFunction, Retry
from minirt.monitoring.logs import logger_of
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

    The owner calls `send` and `close` in its thread. All else happens in the event loop. A record is lent
    to the function for each attempt, and its result is taken before any other code of the user runs.
    """

    def __init__(
        self,
        label: str,
        function: Callable[[Any], Awaitable[Any]],
        timeout_s: float | None,
        retry: Retry | None,
        custody: Custody,
        mailbox: Mailbox[list[Answer]],
        run_async: RunAsync,
    ) -> None:
        self._label = label
        self._function = function
        self._timeout_s = timeout_s
        self._retry = retry
        self._lend, self._take = custody.lend, custody.take
        self._mailbox = mailbox
        self._run_async = run_async
        self._used = False
        self._closed = False
        self._opening: asyncio.Future[None] | None = None
        self._under_way: dict[Request, tuple[float, asyncio.Task[None]]] = {}
        """The deadline and the task of each request, in the order of the deadlines."""
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
        except (Exception, asyncio.CancelledError) as error:
            self._post((None, None, error))
            return
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._timeout_s or 0.0)
        for request in requests:
            self._sent += 1
            task = loop.create_task(self._ask(request, self._sent))
            self._under_way[request] = (deadline, task)
        if self._timeout_s is not None and self._timer is None:
            self._timer = loop.call_at(deadline, self._give_up_late)

    async def _open(self) -> None:
        if not isinstance(self._function, AsyncFunction):
            return
        if self._opening is None:
            opening = asyncio.wait_for(self._function.open(), self._timeout_s)
            self._opening = asyncio.ensure_future(opening)
        await asyncio.shield(self._opening)

    async def _ask(self, request: Request, number: int) -> None:
        function, retry, attempts = self._function, self._retry, 0
        while True:
            try:
                result = self._take(await function(self._lend(request.record)))
            except asyncio.CancelledError as cancelled:
                if request not in self._under_way:
                    raise
                error: BaseException = cancelled
            except (Exception, SystemExit, KeyboardInterrupt) as failure:
                error = failure
            else:
                self._answer(request, result, None)
                return
            attempts += 1
            if retry is None or not retry.again(attempts, error):
                self._answer(request, None, error)
                return
            await asyncio.sleep(retry.delay_s(attempts, number))

    def _answer(self, request: Request, result: Any, error: BaseException | None) -> None:
        if self._under_way.pop(request, None) is not None:
            self._post((request, result, error))

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
        """The first of the deadlines has come, unless its request was answered meanwhile."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now, late = loop.time(), []
        for request, (deadline, task) in self._under_way.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._give_up_late)
                break
            late.append((request, task))
        for request, task in late:
            self._answer(request, None, TIMED_OUT)
            task.cancel()

    async def _close(self) -> None:
        tasks = [task for _, task in self._under_way.values()]
        self._under_way.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._opening is None or not isinstance(self._function, AsyncFunction):
            return
        try:
            await asyncio.shield(self._opening)
            await self._function.close()
        except (Exception, asyncio.CancelledError) as error:
            logger.error("operator %s could not be closed: %r", self._label, error, exc_info=error)
