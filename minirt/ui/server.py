"""The routes of the live page, and the server that runs them until it is told to end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from minirt.errors import ConfigurationError, MinirtError
from minirt.ui.guard import COOKIE_S, Access, Guard
from minirt.ui.reading import ACTIONS, Plain
from minirt.ui.watch import TooManyViewersError, Watch

PAGE = Path(__file__).parent / "page"
BODY_BYTES_MAX = 16 * 1024
ACTIONS_MAX = 4
"""How many actions may be in work at a time."""
_ENDING_S = 1

_ARGUMENTS: dict[str, dict[str, type]] = {
    "savepoint": {"path": str, "mode": str},
    "stop": {"path": str, "mode": str, "drain": bool},
    "cancel": {},
    "rescale": {"parallelism": int},
}
"""What each of `ACTIONS` takes, all of it optional."""

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(watch: Watch, access: Access) -> Starlette:
    """The application; whoever knows the token of `access` may use it."""
    routes = _Routes(watch, access)
    return Starlette(
        routes=[
            Route("/", routes.page),
            Route("/api/snapshot", routes.inside(routes.snapshot)),
            Route("/api/events", routes.inside(routes.events)),
            Route("/api/checkpoint", routes.inside(routes.checkpoint)),
            Route("/api/checkpoints", routes.inside(routes.checkpoints)),
            Route("/api/{action}", routes.inside(routes.act), methods=["POST"]),
            Mount("/page", StaticFiles(directory=PAGE)),
        ],
        middleware=[Middleware(Guard, access=access)],
    )


class _Routes:
    def __init__(self, watch: Watch, access: Access) -> None:
        self._watch = watch
        self._access = access
        self._acting = 0

    def inside(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint for those who have the cookie; errors become answers."""

        async def guarded(request: Request) -> Response:
            if not self._access.knows_token(request.cookies.get(self._access.cookie)):
                return _error(403, "open the URL that `minirt ui` printed: it holds the token")
            try:
                return await endpoint(request)
            except ConfigurationError as error:
                return _error(400, str(error))
            except TooManyViewersError as error:
                return _error(503, str(error))
            except (MinirtError, OSError) as error:
                return _error(502, str(error))

        return guarded

    async def page(self, request: Request) -> Response:
        """The page itself. A token in the URL becomes a cookie; the page takes it out of the URL."""
        given = request.query_params.get("token")
        kept = request.cookies.get(self._access.cookie)
        if not (self._access.knows_token(given) or self._access.knows_token(kept)):
            return PlainTextResponse(
                "Open the URL that `minirt ui` printed: it holds the token of this page.\n", 403
            )
        response = FileResponse(PAGE / "index.html", headers={"cache-control": "no-store"})
        if self._access.knows_token(given):
            response.set_cookie(
                self._access.cookie,
                self._access.token,
                max_age=COOKIE_S,
                httponly=True,
                samesite="strict",
            )
        return response

    async def snapshot(self, request: Request) -> Response:
        text = await asyncio.to_thread(self._watch.read)
        return Response(text, media_type="application/json")

    async def events(self, request: Request) -> Response:
        snapshots = self._watch.snapshots()
        first = await anext(snapshots)

        async def told() -> AsyncIterator[str]:
            try:
                yield f"data: {first}\n\n"
                async for text in snapshots:
                    yield f"data: {text}\n\n"
            finally:
                await snapshots.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(told(), media_type="text/event-stream")

    async def checkpoint(self, request: Request) -> Response:
        key = _number(request, "id"), _number(request, "generation")
        return JSONResponse(await asyncio.to_thread(self._watch.checkpoint, *key))

    async def checkpoints(self, request: Request) -> Response:
        return JSONResponse(self._watch.strip(_number(request, "end")))

    async def act(self, request: Request) -> Response:
        action = request.path_params["action"]
        if action not in ACTIONS:
            return _error(404, f"a job cannot {action}")
        if request.headers.get("content-type") != "application/json":
            return _error(415, "the request is not JSON")
        if self._acting >= ACTIONS_MAX:
            return _error(429, f"{ACTIONS_MAX} requests are in work already")
        arguments = _arguments(action, await _body(request))
        self._acting += 1
        try:
            answer = await asyncio.to_thread(self._watch.subject.act, action, arguments)
        finally:
            self._acting -= 1
        return JSONResponse(answer)


async def _body(request: Request) -> Any:
    """Raises ConfigurationError for what is too long or no JSON."""
    received = b""
    async for piece in request.stream():
        received += piece
        if len(received) > BODY_BYTES_MAX:
            raise ConfigurationError(f"a request has at most {BODY_BYTES_MAX} bytes")
    try:
        return json.loads(received or b"{}")
    except (ValueError, RecursionError):
        raise ConfigurationError("the request is not JSON") from None


def _arguments(action: str, given: Any) -> Plain:
    """What was given for an action, empty texts left out. Raises ConfigurationError for anything else."""
    known = _ARGUMENTS[action]
    if not isinstance(given, dict):
        raise ConfigurationError("the request is no object")
    arguments: Plain = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(f"{action} takes no {name}")
        if type(value) is not known[name]:
            raise ConfigurationError(f"{name} is {known[name].__name__}, not {value!r}")
        if value != "":
            arguments[name] = value
    return arguments


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not (text.isdecimal() and text.isascii() and len(text) < 18):
        raise ConfigurationError(f"{name} is a number, not {text!r}")
    return int(text)


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ConfigurationError if it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        why = f"cannot listen on {host} port {port}: {error.strerror}"
        raise ConfigurationError(f"{why}; give another --port, or 0 for any free one") from error
    return listener


def serve(app: Starlette, listener: socket.socket) -> None:
    """Serve until SIGINT, which raises KeyboardInterrupt, or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_ENDING_S,
    )
    uvicorn.Server(config).run(sockets=[listener])
