"""`minirt top`: the figures of a running job, once, in a pipe, as JSON and live."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import minirt as rt
from minirt.cli.top_view import COLUMNS, job_lines, row, view
from minirt.operations.registry import Registry
from minirt.runtime.program.job import Job
from tests.jobs import paced_numbers
from tests.monitoring.samples import running_job
from tests.watch import measured

if TYPE_CHECKING:
    from tests.cli.conftest import Call

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("registry")]


@pytest.fixture
def job(registry: Path, tmp_path: Path) -> Iterator[Job]:
    """One that has done some work."""
    env = rt.Environment("endless")
    numbers = paced_numbers(env).rebalance()
    numbers.map(lambda n: n, uid="same").sink(rt.DiscardSink())
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "stored", interval="100ms"),
        options=rt.Options(metrics_port=0),
    )
    yield from measured(job, subtasks=2, checkpoints=1)


def test_one_plain_table(call: Call, job: Job) -> None:
    called = call("top", "--once")
    assert (called.status, called.err) == (0, "")
    _, head, checkpoints, *more = called.out.splitlines()
    _, latency, columns, *rows = [line for line in more if " is being taken for " not in line]
    assert latency.startswith("latency is not measured")
    assert head.startswith("job endless running, up 0:00:")
    assert ", newest " in checkpoints
    assert columns.split("  ")[1] == "operator"
    assert [line.split()[0] for line in rows] == ["numbers", "same"]


def test_json_has_what_the_job_says(call: Call, job: Job) -> None:
    figures = json.loads(call("top", "endless", "--json").out)
    assert figures["status"] == "running"
    assert figures["checkpoints"]["completed"] > 0
    for operator in figures["operators"]:
        times = [n for name, n in operator["per_second"].items() if name.endswith("_ms")]
        assert sum(times) == pytest.approx(1000)
    assert figures["operators"][1]["subtasks"][0]["totals"]["records_in"] > 0


def test_jobs_says_where_metrics_are(call: Call, job: Job) -> None:
    [row] = json.loads(call("jobs", "--json").out)
    assert row["metrics"] == job.metrics_url
    assert job.metrics_url is not None


def test_without_a_job_it_is_one_message(call: Call, registry: Path) -> None:
    for command in (["top"], ["top", "--once"], ["top", "x", "--json"]):
        called = call(*command)
        assert (called.status, called.out, called.err.count("\n")) == (2, "", 1)
        assert "no jobs are running" in called.err


def test_a_job_that_ends_ends_the_tables_in_a_pipe(job: Job) -> None:
    command = [sys.executable, "-m", "minirt", "top"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        heads = 0
        for line in watching.stdout:
            heads += line.startswith("job endless")
            if heads == 2:
                job.cancel()
                job.wait(60)
                break
        watching.stdout.read()
        assert watching.wait(60) == 0


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_on_a_terminal_it_is_live_until_a_key_is_pressed(job: Job, key: bytes) -> None:
    master, slave = pty.openpty()
    watching = subprocess.Popen(
        [sys.executable, "-c", TERMINAL], stdin=slave, stdout=slave, stderr=slave,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while b"numbers" not in seen or seen.count(b"up 0:0") < 2:
        assert select.select([master], [], [], 60)[0], seen
        seen += os.read(master, 65536)
    os.write(master, key)
    while watching.poll() is None:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # Nobody holds the other end any more.
                break
    assert watching.wait(60) == 0
    os.close(master)
    assert b"\x1b[?1049l" in seen  # The screen is as it was before.
    assert b"Traceback" not in seen


TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv = ["minirt", "top"]
from minirt.cli import main
main()
"""
"""Ctrl-C reaches only who has the terminal as its own."""


def test_the_view_of_a_terminal_shows_every_chain_and_where_its_time_goes() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system="standard")
    console.print(view(running_job().figures().to_plain(), 140))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "newest 2 (unaligned): 250 ms, 3,000 bytes, 1,200 of them in flight" in text
    numbers = next(line for line in text.splitlines() if "numbers" in line and "█" in line)
    assert [numbers.count(f"\x1b[{colour}m") for colour in (32, 33)] == [1, 1]
    assert len([sign for sign in numbers if sign in "█·░X"]) == 12
    slow = next(line for line in text.splitlines() if "slow" in line and "·" in line)
    assert "75% > 150%" in slow
    assert "2.50 s" in slow


def test_latencies_are_in_the_view_where_they_are_measured_and_else_how_to_have_them() -> None:
    from rich.console import Console

    def seen(interval_s: float | None) -> str:
        figures = running_job().figures().to_plain() | {"latency_interval_s": interval_s}
        screen = io.StringIO()
        Console(file=screen, width=140).print(view(figures, 140))
        return screen.getvalue()

    measured, not_measured = seen(1.0), seen(None)
    [slow] = [line for line in measured.splitlines() if line.startswith(" slow")]
    assert "496 ms / 3.97 s" in slow
    assert "half of the markers / 99 %" in measured
    assert "options.latency_interval" in not_measured
    assert "496 ms" not in not_measured


def test_before_the_first_marker_it_says_so() -> None:
    figures = running_job().figures().to_plain() | {"latency_interval_s": 1.0}
    figures["operators"] = [{**one, "latency": None} for one in figures["operators"]]
    assert "latency: no marker of a source has come anywhere yet" in job_lines(figures)


@pytest.mark.parametrize("width", [50, 60, 70, 80, 90, 100, 120, 160])
def test_long_names_give_way_and_no_number_is_cut(width: int) -> None:
    from rich.console import Console

    figures = running_job().figures().to_plain() | {"latency_interval_s": 1.0}
    for number, operator in enumerate(figures["operators"]):
        operator["operator"] = f"orders-from-the-shop-database-{number}"
    console = Console(file=io.StringIO(), width=width)
    console.print(view(figures, width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    [head] = [line for line in lines if line.startswith(" operator ")]
    rows = [line for line in lines if line.startswith(" orders-from")]
    assert len(rows) == len(figures["operators"])
    assert "…" not in head
    for line in rows:
        rest = line.partition(" x")[2]
        assert rest, "how many subtasks there are"
        assert "…" not in rest
        assert len([sign for sign in rest if sign in "█·░X"]) in (0, 12)
    assert max(map(len, lines)) <= width


def test_a_job_that_has_just_started_has_no_rates_yet() -> None:
    figures = running_job().figures().to_plain()
    figures["operators"][0] |= {"per_second": None, "busiest_ms": None}
    assert row(figures["operators"][0])[2:11] == [None] * 9
    assert len(row(figures["operators"][0])) == len(COLUMNS)
    view(figures, 80)


def test_names_cannot_steer_the_terminal() -> None:
    figures = running_job().figures().to_plain() | {
        "name": "\x1b[2J",
        "last_failure": "\x1b]0;x\x07\nmore",
    }
    assert not any("\x1b" in line for line in job_lines(figures))


def test_who_has_no_token_reads_no_figures(job: Job) -> None:
    from minirt.operations.control import ask

    registry = Registry.of_user()
    [entry] = registry.entries()
    with pytest.raises(rt.MinirtError, match="gave no answer"):
        ask(registry.socket_path(entry), "0" * 64, {"request": "figures"}, 30)
    answer = ask(registry.socket_path(entry), entry.token, {"request": "figures"}, 30)
    assert answer["name"] == "endless"
