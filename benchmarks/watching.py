"""What it costs a job to be watched: `python -m benchmarks.watching`.

*tracing*: jobs at the same pace with checkpoints, one with `Options(trace=True)` and two
without, which show the noise. They run side by side, so that whatever else the machine does hits all of
them. *page*: a job at that pace, in turn without `minirt ui`, with its server while nobody looks, and with
somebody who looks. What counts are CPU seconds of all processes of a job.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import minirt as rt
from benchmarks.checkpoints import paced_job
from benchmarks.measure import Checkpoints, print_rows
from minirt.laboratory.processes import ProcessTree

WARM_UP_S = 3.0
_NAME = "watched"

TRACED: Mapping[str, bool] = {"off": False, "on": True, "off again": False}


def run_one(trace: bool, seconds: float, interval: str) -> dict[str, float]:
    """A job of this process and its workers: how many cores it has in use, and its checkpoints."""
    seen = Checkpoints()
    with tempfile.TemporaryDirectory() as storage:
        job = paced_job(2, rt.DiscardSink()).start(
            "tracing",
            checkpointing=rt.Checkpointing(storage, interval=interval),
            options=rt.Options(trace=trace),
            observer=seen,
        )
        time.sleep(WARM_UP_S)
        before = len(seen.completed)
        cores, _ = _cores(seconds, None)
        completed = len(seen.completed) - before
        job.cancel()
        job.wait()
    return {"cores": cores, "checkpoints": completed}


def tracing(seconds: float, rounds: int, interval: str) -> list[dict[str, Any]]:
    """A row for each variant: the medians of its runs, and of their ratios to "off" in the same round."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in TRACED}
    for number in range(rounds):
        _say(f"tracing, round {number + 1} of {rounds}")
        for name, measured in _side_by_side(seconds, interval).items():
            runs[name].append(measured)
    return [
        {
            "case": "tracing",
            "variant": name,
            "runs": rounds,
            **{figure: statistics.median(one[figure] for one in own) for figure in own[0]},
            "cores_to_off": ratio([one["cores"] for one in own], [o["cores"] for o in runs["off"]]),
        }
        for name, own in runs.items()
    ]


def _side_by_side(seconds: float, interval: str) -> dict[str, dict[str, float]]:
    """A process for each variant, all at the same time."""
    started = {
        name: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.watching",
                "--one",
                str(trace),
                str(seconds),
                interval,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, trace in TRACED.items()
    }
    found = {}
    for name, process in started.items():
        out, _ = process.communicate()
        found[name] = json.loads(out)
    return found


def ratio(values: Sequence[float], to: Sequence[float]) -> float:
    """The median of the ratios of neighbours: what slows down both of them does not count."""
    return statistics.median(a / b for a, b in zip(values, to, strict=True))


def page(seconds: float, rounds: int, interval: str) -> list[dict[str, Any]]:
    """A row for each way to look, with cores in use by the job, and by the page's server."""
    states: Mapping[str, Callable[[], Any]] = {
        "no page": _nobody,
        "nobody looks": lambda: _served(looks=False),
        "one looks": lambda: _served(looks=True),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in states}
    with tempfile.TemporaryDirectory() as storage:
        job = paced_job(2, rt.DiscardSink()).start(
            _NAME, checkpointing=rt.Checkpointing(storage, interval=interval)
        )
        try:
            time.sleep(2.0)
            for number in range(rounds):
                order = list(states) if number % 2 == 0 else list(reversed(states))
                for name in order:
                    _say(f"page: {name}, round {number + 1} of {rounds}")
                    with states[name]() as server:
                        found[name].append(_cores(seconds, server))
        finally:
            job.cancel()
            job.wait()
    return [_page_row(name, own, found["no page"]) for name, own in found.items()]


def _page_row(
    name: str, own: Sequence[tuple[float, float]], without: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    return {
        "case": "page",
        "variant": name,
        "runs": len(own),
        "job_cores": statistics.median(job for job, _ in own),
        "job_cores_to_no_page": ratio([job for job, _ in own], [job for job, _ in without]),
        "server_cores": statistics.median(server for _, server in own),
    }


def _cores(seconds: float, server: int | None) -> tuple[float, float]:
    """How many cores the job, which is this process and its workers, and the page's server had in use."""
    trees = [ProcessTree(os.getpid())] + ([] if server is None else [ProcessTree(server)])
    began_at, began = time.monotonic(), _cpu_s(trees)
    time.sleep(seconds)
    passed, ended = time.monotonic() - began_at, _cpu_s(trees)
    used = [(after - before) / passed for before, after in zip(began, ended, strict=True)]
    if server is None:
        return used[0], 0.0
    return used[0] - used[1], used[1]  # The server is a child of this process.


def _cpu_s(trees: Sequence[ProcessTree]) -> list[float]:
    for tree in trees:
        tree.look()
    return [tree.cpu_s for tree in trees]


@contextmanager
def _nobody() -> Iterator[None]:
    yield None


@contextmanager
def _served(looks: bool) -> Iterator[int]:
    """`minirt ui` for the job; a thread reads what a page would, if somebody looks."""
    command = [sys.executable, "-m", "minirt", "ui", _NAME, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            if looks:
                threading.Thread(target=_look, args=(url,), daemon=True).start()
            time.sleep(1.0)
            yield server.pid
        finally:
            server.terminate()


def _look(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        cookie = answer.headers["set-cookie"].partition(";")[0]
    events = urllib.request.Request(
        url.partition("?")[0] + "api/events", headers={"Cookie": cookie}
    )
    try:
        with urllib.request.urlopen(events) as stream:
            while stream.readline():
                pass
    except OSError:  # The server has ended.
        return


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="tracing, page; both by default")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long a variant is measured"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each variant runs")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    parser.add_argument("--interval", default="1s", help="from one checkpoint to the next")
    parser.add_argument("--one", nargs=3, metavar="X", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        trace, seconds, interval = arguments.one
        print(json.dumps(run_one(trace == "True", float(seconds), interval)))
        return
    measured = arguments.seconds, arguments.rounds, arguments.interval
    cases: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
        "tracing": lambda: tracing(*measured),
        "page": lambda: page(*measured),
    }
    if unknown := [name for name in arguments.cases if name not in cases]:
        parser.error(f"unknown case {unknown[0]!r}; there are: {', '.join(cases)}")
    rows = [row for name in arguments.cases or cases for row in cases[name]()]
    print_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
