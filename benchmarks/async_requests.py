"""How many requests `map_async` keeps under way, and what checkpoints cost meanwhile.

    python -m benchmarks.async_requests [--seconds 10] [--wait 50ms] [--capacity 1000] [--no-http]

Two jobs, one subtask each, checkpoints every second: a function that only waits, and one that asks an HTTP
server on this machine, beside the same client without minirt. Needs httpx for the latter. Aligned barriers
wait for the records ahead of them to be sent: those are few, but for `debloat="off"`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import minirt as rt
from minirt.units import seconds


class Waiting(rt.AsyncFunction):
    """Answers after a while."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    async def __call__(self, record: int) -> int:
        await asyncio.sleep(self._wait_s)
        return record


class Asking(rt.AsyncFunction):
    """Asks a server with a pool of connections."""

    def __init__(self, url: str, connections: int) -> None:
        self._url = url
        self._connections = connections

    async def open(self) -> None:
        self._client = client(self._connections)

    async def close(self) -> None:
        await self._client.aclose()

    async def __call__(self, record: int) -> int:
        answer = await self._client.get(f"{self._url}/{record}")
        answer.raise_for_status()
        return len(answer.content)


def client(connections: int) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(limits=limits, timeout=None)


class Counting(rt.JobObserver):
    """Hears of checkpoints, and how long the job ran once its processes had started."""

    def __init__(self) -> None:
        self.durations_s: list[float] = []
        self._first: dict[rt.JobStatus, float] = {}

    @property
    def running_s(self) -> float:
        return self._first[rt.JobStatus.FINISHED] - self._first[rt.JobStatus.RUNNING]

    def on_status(self, status: rt.JobStatus, generation: int) -> None:
        self._first.setdefault(status, time.monotonic())

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        if report.status is rt.CheckpointStatus.COMPLETED and report.duration_s is not None:
            self.durations_s.append(report.duration_s)


def run_job(
    function: rt.AsyncFunction,
    records: int,
    capacity: int,
    mode: str,
    ordered: bool,
    debloat: str | None = None,
) -> tuple[float, list[float]]:
    """Records a second, and the seconds that checkpoints took; `debloat` is that of the queues ahead."""
    env = rt.Environment("requests", parallelism=1)
    numbers = env.source(rt.SequenceSource(records), uid="numbers")
    asked = numbers.rebalance().map_async(
        function, capacity=capacity, timeout="60s", ordered=ordered, uid="asked"
    )
    asked.sink(rt.DiscardSink(), uid="out")
    observer = Counting()
    with tempfile.TemporaryDirectory() as folder:
        checkpointing = rt.Checkpointing(Path(folder), interval="1s", mode=mode)
        queues = {} if debloat is None else {"asked": rt.Queues(debloat=debloat)}
        options = rt.Options(queues=queues)
        env.execute(checkpointing=checkpointing, observer=observer, options=options)
    return records / observer.running_s, observer.durations_s


async def ask_alone(url: str, requests: int, at_a_time: int, connections: int) -> float:
    """Requests a second of the client by itself, so many under way."""
    function, numbers = Asking(url, connections), iter(range(requests))

    async def ask() -> None:
        for number in numbers:
            await function(number)

    await function.open()
    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(at_a_time)))
    took_s = time.perf_counter() - began
    await function.close()
    return requests / took_s


@asynccontextmanager
async def _serving(host: str) -> AsyncIterator[int]:
    server = await asyncio.start_server(_answer, host, 0, backlog=1024)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve() -> None:
    async with _serving("127.0.0.1") as port:
        print(port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def server() -> Iterator[str]:
    """A server of its own process, which ends with this one; gives its address."""
    command = [sys.executable, "-m", "benchmarks.async_requests", "--serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def _say(what: str, rate: float, durations_s: list[float]) -> None:
    shown = ""
    if durations_s:
        middle, most = statistics.median(durations_s) * 1000, max(durations_s) * 1000
        shown = f"   {len(durations_s)} checkpoints: median {middle:.0f} ms, longest {most:.0f} ms"
    print(f"{what:52} {rate:9,.0f} records/s{shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long each job runs")
    parser.add_argument("--wait", default="50ms", help="how long the function waits")
    parser.add_argument("--capacity", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--no-http", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(_serve())
        return
    wait_s = seconds(args.wait, "wait")
    records = int(args.seconds * min(args.capacity / wait_s, 20_000))
    for mode, debloat in (("unaligned", None), ("aligned", None), ("aligned", "off")):
        for ordered in (True, False):
            order = "in order" if ordered else "as they come"
            how = mode if debloat is None else f"{mode}, debloat {debloat}"
            function = Waiting(wait_s)
            rate, durations_s = run_job(function, records, args.capacity, mode, ordered, debloat)
            _say(f"waits {args.wait}, {order}, {how}", rate, durations_s)
    if not args.no_http:
        _compare_http(args.seconds, args.connections)


def _compare_http(seconds: float, connections: int) -> None:
    with server() as url:
        rate = asyncio.run(ask_alone(url, 1000, connections, connections))
        requests = int(rate * seconds)
        alone = asyncio.run(ask_alone(url, requests, connections, connections))
        _say("HTTP, the client alone", alone, [])
        function = Asking(url, connections)
        inside, durations_s = run_job(function, requests, connections, "unaligned", True)
        _say("HTTP, map_async in order, unaligned", inside, durations_s)
        print(f"{inside / alone:.0%} of the client alone")


if __name__ == "__main__":
    main()
