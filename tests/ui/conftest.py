"""Jobs to look at, and the command that shows them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import minirt as rt
from minirt.runtime.program.job import Job
from tests.jobs import paced_numbers
from tests.watch import measured


@pytest.fixture
def job(registry: Path, tmp_path: Path) -> Iterator[Job]:
    """One with text that must be escaped, which has taken checkpoints."""
    yield from _started(tmp_path / "stored")


@pytest.fixture(scope="module")
def lasting_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """The same for all tests of a module that only look at it, with latency markers; the registry knows no
    other one."""
    short = tempfile.mkdtemp(prefix="jobs-")  # Paths of sockets must be short.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", short)
        options = rt.Options(latency_interval="50ms")
        yield from _started(tmp_path_factory.mktemp("lasting") / "stored", options)
    shutil.rmtree(short)


def _started(storage: Path, options: rt.Options | None = None) -> Iterator[Job]:
    env = rt.Environment("orders <b>&", parallelism=2)
    numbers = paced_numbers(env, parallelism=1)
    doubled = numbers.rebalance().map(_doubled, uid="same", name="<script>alert(1)</script>")
    doubled.sink(rt.DiscardSink(), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(storage, interval="300ms", mode="unaligned"),
        restart=rt.Restart.fixed_delay(None, "100ms"),
        options=options,
    )
    yield from measured(job, subtasks=3, checkpoints=3)


def _doubled(number: int) -> int:
    if number in (3, 4):
        logging.getLogger("shop").warning("no price <b> for item %d", number)
    return 2 * number


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
