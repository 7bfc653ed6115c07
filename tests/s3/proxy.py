"""An HTTP proxy in front of an S3 server that breaks requests: faults below s3fs and its retries."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

SLOW_S = 0.3
_TIMEOUT_S = 30.0
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}


class Fault(Enum):
    """What becomes of a request."""

    SLOW = auto()
    UNAVAILABLE = auto()
    """503, and nothing happens."""
    INTERNAL_ERROR = auto()
    """500, and nothing happens."""
    RESET = auto()
    """The connection is reset before anything happens."""
    TORN = auto()
    """The connection is cut in the middle of the body: that of the answer, if the request has none."""
    LOST_ANSWER = auto()
    """It happens, but the connection is reset before the answer."""
    MISSING = auto()
    """404: there is no such object."""
    FORBIDDEN = auto()
    """403: the key is not known."""
    LAGGING = auto()
    """A listing leaves out what was written since the proxy has started."""


_ANSWERS = {
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.INTERNAL_ERROR: (500, "InternalError"),
    Fault.MISSING: (404, "NoSuchKey"),
    Fault.FORBIDDEN: (403, "InvalidAccessKeyId"),
}


@dataclass(frozen=True)
class Request:
    """What a fault is chosen by. `key` is that of the object, or the prefix of a listing."""

    method: str
    key: str
    lists: bool


Plan = Callable[[Request], Fault | None]


class FaultyProxy:
    """Passes requests on to `upstream`, a URL, but for the faults that `plan` chooses."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.plan: Plan = lambda request: None
        self.faults: list[tuple[Request, Fault]] = []
        """What was broken so far."""
        self.written: set[str] = set()
        """The keys of the objects that were written."""
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    proxy: FaultyProxy

    def _serve(self) -> None:
        request = self._request()
        fault = self.proxy.plan(request)
        if fault is not None:
            self.proxy.faults.append((request, fault))
        length = int(self.headers.get("Content-Length", 0))
        if fault is Fault.RESET or (fault is Fault.TORN and length):
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length)
        if fault in _ANSWERS:
            self._refuse(*_ANSWERS[fault])
            return
        if fault is Fault.SLOW:
            time.sleep(SLOW_S)
        self._pass_on(request, body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _request(self) -> Request:
        url = urlsplit(self.path)
        key, query = unquote(url.path).lstrip("/").partition("/")[2], parse_qs(url.query)
        lists = self.command == "GET" and "list-type" in query
        return Request(self.command, query.get("prefix", [""])[0] if lists else key, lists)

    def _pass_on(self, request: Request, body: bytes, fault: Fault | None) -> None:
        connection = HTTPConnection(self.proxy.upstream, timeout=_TIMEOUT_S)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            self._answer(request, response, response.read(), fault)
        finally:
            connection.close()

    def _answer(
        self, request: Request, response: HTTPResponse, body: bytes, fault: Fault | None
    ) -> None:
        if self.command == "PUT" and response.status == 200:
            self.proxy.written.add(request.key)
        if fault is Fault.LOST_ANSWER:
            self._reset()
            return
        if fault is Fault.LAGGING and request.lists:
            body = self._without_written(body)
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in {*_HOP_BY_HOP, "content-length"}:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        length = response.getheader("Content-Length", "0") if is_head else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if fault is Fault.TORN:
            self.wfile.write(body[: len(body) // 2])
            self._reset()
        elif not is_head:
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>planned</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _without_written(self, listing: bytes) -> bytes:
        def shown(entry: re.Match[bytes]) -> bytes:
            return b"" if entry[1].decode() in self.proxy.written else entry[0]

        return re.sub(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", shown, listing, flags=re.S)

    def _reset(self) -> None:
        """Close so that the client sees an error, not an end."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RD)
        self.connection.close()
