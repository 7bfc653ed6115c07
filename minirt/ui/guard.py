"""Who may ask the page's server: browsers that were given the token, from the page itself.

A page of another site can make a browser send requests to 127.0.0.1. It has neither the token nor the
cookie, which browsers do not send along for other sites. A name of its own that suddenly leads here, as
in DNS rebinding, fails at `Host`, a form or script of its own at `Origin`.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE_S = 30 * 24 * 3600
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Access:
    """`host` is the address that the server listens on, `token` what its URL holds."""

    host: str
    port: int
    token: str

    @property
    def cookie(self) -> str:
        """Cookies do not know ports: each server of a machine has one of its own name."""
        return f"minirt_ui_{self.port}"

    def knows_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def is_own_host(self, header: str) -> bool:
        """Whether a `Host` header means this server. A number cannot be made to lead elsewhere."""
        name, port = split_host(header)
        if port != self.port:
            return False
        if name in (self.host, "localhost") or is_loopback(name):
            return True
        everywhere = self.host in ("0.0.0.0", "::")
        return everywhere and (is_address(name) or name == socket.gethostname().lower())

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Why a request is refused, with its status; the cookie is asked for elsewhere."""
        headers = request.headers
        host = headers.get("host", "").lower()
        if not self.is_own_host(host):
            return 421, "this server goes by another name; open the URL that `minirt ui` printed"
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return 403, "requests of other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            navigates = headers.get("sec-fetch-mode") == "navigate" and request.method in READS
            if not navigates:
                return 403, "requests of other pages are refused"
        if request.method not in READS and origin is None:
            return 403, "a request that changes something needs its Origin"
        return None


def split_host(header: str) -> tuple[str, int | None]:
    """Name and port of a `Host` header; port 80 if there is none, None if it is no number."""
    name, colon, port = header.rpartition(":")
    if not colon or header.endswith("]"):
        name, port = header, "80"
    return name.strip("[]"), int(port) if port.isdecimal() and port.isascii() else None


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    return is_address(name) and ipaddress.ip_address(name).is_loopback


class Guard:
    """Refuses what `Access` refuses, before any route, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                if "cache-control" not in Headers(raw=message["headers"]):
                    headers["cache-control"] = "no-store"
            await send(message)

        refused = self._access.refusal(Request(scope))
        app = self._app
        if refused is not None:
            app = PlainTextResponse(refused[1] + "\n", refused[0])
        await app(scope, receive, send_guarded)
