"""Requests to a real server: workers are killed meanwhile, and no answer is lost or doubled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from tests.campaigns import soaked

pytest.importorskip("httpx")

COUNT = 300

pytestmark = pytest.mark.processes


class Server(ThreadingHTTPServer):
    """Answers with the square of a number, and counts how often it was asked for each."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[int] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        number = int(self.path.removeprefix("/"))
        with self.server.lock:
            self.server.asked[number] += 1
            refused = number % 50 == 7 and self.server.asked[number] == 1
        time.sleep(0.002 * (number % 5))
        body = str(number * number).encode()
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


class Squares(rt.AsyncFunction):
    """Asks the server; the worker dies once, in the middle of it."""

    def __init__(self, url: str, marker: Path) -> None:
        self._url = url
        self._marker = marker

    async def open(self) -> None:
        import httpx

        self._client = httpx.AsyncClient(limits=httpx.Limits(max_connections=16))

    async def close(self) -> None:
        await self._client.aclose()

    async def __call__(self, record: int) -> int:
        answer = await self._client.get(f"{self._url}/{record}")
        answer.raise_for_status()
        if record == COUNT // 2 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(answer.text)


@pytest.mark.parametrize("ordered", [True, *soaked(False)])
def test_a_worker_that_is_killed_loses_and_doubles_nothing(
    server: Server, tmp_path: Path, ordered: bool
) -> None:
    import httpx

    env, sink = rt.Environment("http", parallelism=2), rt.CollectSink()
    numbers = env.source(rt.SequenceSource(COUNT, splits=2), uid="numbers").rebalance()
    retry = rt.Retry.exponential_delay(5, "5ms", on=httpx.HTTPStatusError)
    function = Squares(server.url, tmp_path / "killed")
    numbers.map_async(
        function, capacity=16, timeout="1min", ordered=ordered, retry=retry, uid="asked"
    ).sink(sink, uid="out")
    result: Any = env.execute(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="20ms"),
        restart=rt.Restart.fixed_delay(3, 0.01),
    )
    assert (tmp_path / "killed").exists()
    assert result.restarts == 1
    assert Counter(sink.rows) == Counter(number * number for number in range(COUNT))
    assert server.asked.keys() == set(range(COUNT))
    assert all(server.asked[number] > 1 for number in range(7, COUNT, 50)), "503 is asked again"
