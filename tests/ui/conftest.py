"""Jobs to look at, and the command that shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import minirt as rt
from minirt.runtime.program.job import Job
from tests.watch import measured


@pytest.fixture
def job(registry: Path, tmp_path: Path) -> Iterator[Job]:
    """One with text that must be escaped, which has taken checkpoints."""
    env = rt.Environment("orders <b>&", parallelism=2)
    numbers = env.source(rt.SequenceSource.endless(), uid="numbers", parallelism=1)
    doubled = numbers.rebalance().map(lambda n: 2 * n, uid="same", name="<script>alert(1)</script>")
    doubled.sink(rt.DiscardSink(), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "stored", interval="300ms", mode="unaligned"),
        restart=rt.Restart.fixed_delay(None, "100ms"),
    )
    yield from measured(job, subtasks=3, checkpoints=3)


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Runs `minirt ui` with these arguments on a free port; gives the URL that it prints."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        command = [sys.executable, "-m", "minirt", "ui", "--port", "0", *arguments]
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ},
        )
        started.append(server)
        assert server.stdout is not None
        return server.stdout.readline().strip()

    yield start
    for server in started:
        server.terminate()
        server.wait(60)
        assert server.stdout is not None
        server.stdout.close()


@contextmanager
def done_job(folder: Path) -> Iterator[Path]:
    """The storage of a job that has ended."""
    env = rt.Environment("done")
    numbers = env.source(rt.SequenceSource(2000), uid="numbers", name="numbers")
    sums = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b, uid="sums", name="sums")
    sums.sink(rt.DiscardSink(), uid="out", name="out")
    checkpointing = rt.Checkpointing(folder / "done", interval="50ms")
    env.execute(checkpointing=checkpointing, runner="inline")
    yield folder / "done"
