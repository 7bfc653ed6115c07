"""The private socket of a job: whoever sends the job's token along is answered."""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minirt.monitoring.logs import logger_of
from minirt.operations.exchange import (
    REQUESTS_MAX,
    Callers,
    Plain,
    answer_in,
    exchange,
    reply_to,
)
from minirt.threads import start_thread

logger = logger_of("job")

_REST_S = 0.5


class ControlSocket:
    """Takes requests until it is closed. Raises OSError if it cannot listen."""

    def __init__(self, path: Path, token: str, answer: Callable[[Plain], Plain]) -> None:
        self._token = token
        self._answer = answer
        self._callers = Callers(self._reply)
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
        self._callers.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                caller, _ = self._listener.accept()
                self._callers.take(caller)
            except Exception as error:  # No more files or threads can be had: perhaps later.
                if not self._closing:
                    logger.warning("a request to the job could not be taken: %s", error)
                    time.sleep(_REST_S)

    def _on_error(self, error: BaseException) -> None:
        """The job goes on without."""
        logger.error("the job can no longer be asked from outside: %s", error, exc_info=error)

    def _reply(self, request: Plain) -> Plain | None:
        token = request.pop("token", None)
        if isinstance(token, str) and _same(token, self._token):
            return reply_to(request, self._answer)
        return None


def ask(path: Path, token: str, request: Mapping[str, Any], timeout: float | None = None) -> Plain:
    """The answer of a job. `timeout` in seconds; None waits for as long as the job lives.

    Raises ConfigurationError or MinirtError as the job did, MinirtError if it gives no answer, and
    ConnectionRefusedError or FileNotFoundError if there is no job.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        return answer_in(exchange(connection, {**request, "token": token}))


def _same(token: str, known: str) -> bool:
    return hmac.compare_digest(token.encode(errors="replace"), known.encode())
