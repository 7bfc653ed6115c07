"""One request and one answer, as lines of JSON, over a socket that asks for the job's token."""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from minirt.errors import ConfigurationError, MinirtError
from minirt.monitoring.logs import logger_of
from minirt.threads import start_thread

logger = logger_of("job")

Plain = dict[str, Any]

REQUEST_BYTES_MAX = 64 * 1024
REQUEST_S_MAX = 5.0
"""How long a caller may take to send its whole request, in seconds."""
REQUESTS_MAX = 16
"""How many requests are answered at a time; further callers are told to come later."""
_REST_S = 0.5
_LAST_ANSWERS_S = 5.0
"""How long a job that has ended waits for its last answers to be sent."""


class ControlSocket:
    """Answers requests in threads of their own until it is closed. Raises OSError if it cannot listen."""

    def __init__(self, path: Path, token: str, answer: Callable[[Plain], Plain]) -> None:
        self._token = token
        self._answer = answer
        self._lock = threading.Lock()
        self._callers: dict[threading.Thread, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(path))
            os.chmod(path, 0o600)
            self._listener.listen(REQUESTS_MAX)
        except OSError:
            self._listener.close()
            raise
        self._closing = False
        start_thread("minirt-control", self._accept, self._on_error)

    def close(self) -> None:
        """Take no more requests; those that are in work get a moment for their answers."""
        self._closing = True
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the socket never listened
        self._listener.close()
        with self._lock:
            callers = list(self._callers)
        deadline = time.monotonic() + _LAST_ANSWERS_S
        for thread in callers:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while not self._closing:
            try:
                caller, _ = self._listener.accept()
                self._begin(caller)
            except Exception as error:  # No more files or threads can be had: perhaps later.
                if not self._closing:
                    logger.warning("a request to the job could not be taken: %s", error)
                    time.sleep(_REST_S)

    def _begin(self, caller: socket.socket) -> None:
        with self._lock:
            if len(self._callers) >= REQUESTS_MAX:
                caller.close()
                return
            try:
                thread = start_thread("minirt-request", partial(self._serve, caller), _failed)
            except BaseException:
                caller.close()
                raise
            self._callers[thread] = caller

    def _on_error(self, error: BaseException) -> None:
        """The job goes on without."""
        logger.error("the job can no longer be asked from outside: %s", error, exc_info=error)

    def _serve(self, caller: socket.socket) -> None:
        try:
            with caller:
                request = _receive(caller)
                token = request.pop("token", None)
                if isinstance(token, str) and _same(token, self._token):
                    caller.settimeout(REQUEST_S_MAX)
                    caller.sendall(_line(self._answered(request)))
        except (OSError, ValueError, RecursionError):
            pass  # A caller that breaks the rules gets no answer.
        finally:
            with self._lock:
                self._callers.pop(threading.current_thread(), None)

    def _answered(self, request: Plain) -> Plain:
        try:
            return {"answer": self._answer(request)}
        except ConfigurationError as error:
            return {"error": str(error), "wrong_call": True}
        except MinirtError as error:
            return {"error": str(error), "wrong_call": False}
        except Exception as error:
            logger.exception("a request to the job failed")
            return {"error": f"{type(error).__name__}: {error}", "wrong_call": False}


def ask(path: Path, token: str, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
    """The answer of a job. `timeout` in seconds; None waits for as long as the job lives.

    Raises ConfigurationError or MinirtError as the job did, MinirtError if it gives no answer, and
    ConnectionRefusedError or FileNotFoundError if there is no job.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        try:
            connection.sendall(_line({**request, "token": token}))
            with connection.makefile("rb") as file:
                reply = json.loads(file.readline())
        except (OSError, ValueError) as error:
            raise MinirtError("the job gave no answer: it has ended or is too busy") from error
    if "error" in reply:
        kind = ConfigurationError if reply["wrong_call"] else MinirtError
        raise kind(reply["error"])
    answer: Plain = reply["answer"]
    return answer


def _failed(error: BaseException) -> None:
    logger.error("a request to the job was not answered: %s", error, exc_info=error)


def _receive(caller: socket.socket) -> Plain:
    """A request. Raises ValueError for what is none, OSError if it takes too long."""
    deadline = time.monotonic() + REQUEST_S_MAX
    received = b""
    while not received.endswith(b"\n"):
        caller.settimeout(max(0.001, deadline - time.monotonic()))
        part = caller.recv(4096)
        received += part
        if not part or len(received) > REQUEST_BYTES_MAX:
            raise ValueError("no request")
    request = json.loads(received)
    if not isinstance(request, dict):
        raise ValueError("no request")
    return request


def _line(plain: Plain) -> bytes:
    return json.dumps(plain).encode() + b"\n"


def _same(token: str, known: str) -> bool:
    return hmac.compare_digest(token.encode(errors="replace"), known.encode())
