"""The control port of a job: whoever proves its token there is answered, from any host."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import Any

from minirt.clusters import parse_address
from minirt.errors import ConfigurationError, MinirtError, WorkerLostError
from minirt.monitoring.logs import logger_of
from minirt.operations.access import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, ControlUrl, certificate_of
from minirt.operations.exchange import (
    Callers,
    JobHasEndedError,
    Plain,
    answer_in,
    exchange,
    refusal,
    reply_to,
)
from minirt.runtime.control.entrance import Entrance
from minirt.runtime.control.handshake import call
from minirt.runtime.network.sockets import Network, connected, reachable
from minirt.runtime.network.tls import WrongCertificateError
from minirt.threads import start_thread
from minirt.version import __version__
from minirt.wording import given

logger = logger_of("job")

CONNECT_S_MAX = 5.0
"""How long it may take until a job is reached, and again until both sides have proved the token."""
_LOOK_S = 0.5
_LAST_CALLERS_S = 0.5
"""How long the end of a job waits for those who have come by then to prove the token."""
_REST_S = 0.05


class ControlPort:
    """Binds `control`, "HOST:PORT", and no other address; takes requests from `open` until `close`.

    Raises ConfigurationError if it cannot listen there.
    """

    def __init__(self, control: str, token: str) -> None:
        host, port = parse_address(control, "control")
        self._callers = Callers(self._reply)
        certificate = certificate_of(token)
        network = Network(token.encode(), "", host, certificate)
        try:
            self._entrance = Entrance(network, self._callers.take, port)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(
                f"the control port cannot be at {control}: {reason}; name an address of this host "
                f"by {given('options.control', 'HOST:PORT')}, where port 0 is any that is free"
            ) from error
        self.token = token
        where = reachable(self._entrance.address)
        assert isinstance(where, tuple)
        self.url = str(ControlUrl(where, certificate.fingerprint))
        self._closing = threading.Event()
        self._accepting: threading.Thread | None = None
        self._job_id = ""
        self._answer: Callable[[Plain], Plain] | None = None

    def open(self, job_id: str, answer: Callable[[Plain], Plain]) -> None:
        """Answer for the job of that id; who has called before that has waited."""
        self._job_id, self._answer = job_id, answer
        self._accepting = start_thread("minirt-control-port", self._accept, self._on_error)

    def close(self) -> None:
        """Take no more requests; who has come by now, and waits for an answer, gets a moment."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._accepting is not None:
            self._entrance.finish(_LAST_CALLERS_S)
            with contextlib.suppress(OSError):  # It wakes the thread that waits for callers.
                self._entrance.listener.shutdown(socket.SHUT_RDWR)
            self._accepting.join()
        self._entrance.close()
        self._callers.close()

    def _accept(self) -> None:
        listener = self._entrance.listener
        while not self._closing.is_set():
            if wait([listener], _LOOK_S) and not self._entrance.accept():
                time.sleep(_REST_S)  # No more files can be had, perhaps.

    def _reply(self, request: Plain) -> Plain:
        assert self._answer is not None
        theirs = request.pop("minirt", None)
        if theirs != __version__:
            return refusal(
                f"the job runs minirt {__version__}, and this is minirt {theirs}: use the same version"
            )
        return {**reply_to(request, self._answer), "job": self._job_id}

    def _on_error(self, error: BaseException) -> None:
        """The job goes on without."""
        logger.error("the job can no longer be asked at %s: %s", self.url, error, exc_info=error)


def ask_at(
    url: ControlUrl, token: str, request: Mapping[str, Any], timeout: float | None = None
) -> tuple[Plain, str]:
    """The answer of the job there, and its id. `timeout` is that of the answer in seconds, None for none.

    Raises JobHasEndedError if nobody listens, or another program runs the job by now, ConfigurationError if
    it is another job or has another token or version, MinirtError if it cannot be reached or gives no
    answer, and both as the job did.
    """
    place = url.place
    try:
        connection = connected(url.address, CONNECT_S_MAX, url.fingerprint)
    except ConnectionRefusedError:
        raise JobHasEndedError(
            f"nobody listens at {place}: the job has ended, or has another URL by now; see its log, or "
            "`minirt jobs` on its host"
        ) from None
    except (OSError, UnicodeError) as error:
        raise MinirtError(
            f"{place} cannot be reached ({error}): look at the address, at firewalls and at that host"
        ) from error
    with contextlib.closing(connection):
        try:
            call(connection, token.encode(), CONNECT_S_MAX)
        except WrongCertificateError:
            raise ConfigurationError(
                f"who listens at {place} shows another certificate than that of the URL: it is another job "
                "or one with another token; copy its URL from its log, or from `minirt jobs` on its host"
            ) from None
        except WorkerLostError:
            raise ConfigurationError(
                f"the job at {place} has another token: give its own in {TOKEN_VARIABLE} or "
                f"{TOKEN_FILE_VARIABLE}"
            ) from None
        except OSError as error:
            raise MinirtError(
                f"no job has answered at {place} ({error}): it has ended, is too busy, or something else "
                "listens there"
            ) from error
        connection.settimeout(timeout)
        reply = exchange(connection, {**request, "minirt": __version__})
    return answer_in(reply), str(reply.get("job"))
