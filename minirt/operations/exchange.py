"""One request and one answer, as lines of JSON, over a socket of any kind."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minirt.errors import ConfigurationError, MinirtError, SupersededError
from minirt.monitoring.logs import logger_of
from minirt.runtime.network.sockets import Socket
from minirt.threads import start_thread

logger = logger_of("job")

Plain = dict[str, Any]

REQUEST_BYTES_MAX = 64 * 1024
REQUEST_S_MAX = 5.0
"""How long a caller may take to send its whole request, in seconds."""
REQUESTS_MAX = 16
"""How many requests are answered at a time; further callers are told to come later."""
REPLY_BYTES_MAX = 256 * 1024 * 1024
_RECEIVE_BYTES = 64 * 1024
_LAST_ANSWERS_S = 5.0
"""How long a job that has ended waits for its last answers to be sent."""


class JobHasEndedError(ConfigurationError):
    """Nobody answers for the job any more, or another program does."""


class Callers:
    """Those whose requests are in work, each in a thread of its own.

    `reply` is what a caller is sent for a request; None hangs up.
    """

    def __init__(self, reply: Callable[[Plain], Plain | None]) -> None:
        self._reply = reply
        self._lock = threading.Lock()
        self._serving: set[threading.Thread] = set()

    def take(self, caller: Socket) -> None:
        """Serve one more, or hang up if there are too many. Raises RuntimeError if no thread can be had."""
        with self._lock:
            if len(self._serving) >= REQUESTS_MAX:
                caller.close()
                return
            try:
                self._serving.add(
                    start_thread("minirt-request", partial(self._serve, caller), _failed)
                )
            except BaseException:
                caller.close()
                raise

    def close(self) -> None:
        """Requests that are in work get a moment for their answers."""
        with self._lock:
            serving = list(self._serving)
        deadline = time.monotonic() + _LAST_ANSWERS_S
        for thread in serving:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self, caller: Socket) -> None:
        try:
            with contextlib.closing(caller):
                reply = self._reply(_receive(caller))
                if reply is not None:
                    caller.settimeout(REQUEST_S_MAX)
                    caller.sendall(_line(reply))
        except (OSError, ValueError, RecursionError):
            pass  # A caller that breaks the rules gets no answer.
        finally:
            with self._lock:
                self._serving.discard(threading.current_thread())


def reply_to(request: Plain, answer: Callable[[Plain], Plain]) -> Plain:
    """What a caller is sent: the answer, or the error that was raised in its place."""
    try:
        return {"answer": answer(request)}
    except SupersededError as error:
        return {**refusal(f"{error}; ask that one"), "ended": True}
    except ConfigurationError as error:
        return refusal(str(error))
    except MinirtError as error:
        return {"error": str(error), "wrong_call": False}
    except Exception as error:
        logger.exception("a request to the job failed")
        return {"error": f"{type(error).__name__}: {error}", "wrong_call": False}


def refusal(why: str) -> Plain:
    """The reply to a request that must be put in another way."""
    return {"error": why, "wrong_call": True}


def exchange(connection: Socket, request: Mapping[str, Any]) -> Plain:
    """The reply to a request. Raises MinirtError if there is none."""
    try:
        connection.sendall(_line(request))
        reply = json.loads(_received(connection, REPLY_BYTES_MAX))
        if isinstance(reply, dict):
            return reply
    except (OSError, ValueError):
        pass
    raise MinirtError("the job gave no answer: it has ended or is too busy")


def answer_in(reply: Plain) -> Plain:
    """Raises JobHasEndedError, ConfigurationError or MinirtError as the job did."""
    if reply.get("ended"):
        raise JobHasEndedError(reply["error"])
    if "error" in reply:
        kind = ConfigurationError if reply["wrong_call"] else MinirtError
        raise kind(reply["error"])
    answer: Plain = reply["answer"]
    return answer


def _failed(error: BaseException) -> None:
    logger.error("a request to the job was not answered: %s", error, exc_info=error)


def _receive(caller: Socket) -> Plain:
    """A request. Raises ValueError for what is none, OSError if it takes too long."""
    request = json.loads(_received(caller, REQUEST_BYTES_MAX, time.monotonic() + REQUEST_S_MAX))
    if not isinstance(request, dict):
        raise ValueError("no request")
    return request


def _received(sock: Socket, bytes_max: int, deadline: float | None = None) -> bytes:
    """A line. Raises ValueError if it is torn or too long, OSError if it takes too long."""
    received = bytearray()
    while not received.endswith(b"\n"):
        if deadline is not None:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
        part = sock.recv(_RECEIVE_BYTES)
        received += part
        if not part or len(received) > bytes_max:
            raise ValueError("no line")
    return bytes(received)


def _line(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain).encode() + b"\n"
