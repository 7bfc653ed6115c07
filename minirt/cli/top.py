"""`minirt top`: what a running job does, live."""

from __future__ import annotations

import json as json_format
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.jobs import JobOrOnlyOne, JsonOption
from minirt.errors import MinirtError
from minirt.standard_streams import is_read

if TYPE_CHECKING:
    from minirt.operations.running import RunningJob

_REFRESH_S = 1.0
_ANSWER_S_MAX = 5.0


def top(
    job: JobOrOnlyOne = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what a running job does: where time goes, what flows, how checkpoints go.

    It is refreshed every second, until the job ends or you press q. In a pipe, tables follow each other.
    Times are milliseconds of each second: busy, idle, and backpressure of two kinds, soft (no room for
    output, barriers can still pass) and hard (stuck within one record). --json prints one object.
    """
    from minirt.operations.running import find_job, only_job

    running = only_job() if job is None else find_job(job)
    figures = _ask(running)
    if json:
        typer.echo(json_format.dumps(figures, indent=2))
    elif once or not sys.stdout.isatty():
        _print_tables(running, figures, once=once)
    else:
        _show(running, figures)


def _ask(running: RunningJob) -> dict[str, Any]:
    return running.ask({"request": "figures"}, _ANSWER_S_MAX)


def _ask_on(running: RunningJob) -> dict[str, Any] | None:
    """The next figures; None if the job has ended."""
    try:
        return _ask(running)
    except MinirtError:
        return None


def _print_tables(running: RunningJob, first: dict[str, Any], *, once: bool) -> None:
    from minirt.cli.tables import print_table
    from minirt.cli.top_view import COLUMNS, job_lines, row

    figures: dict[str, Any] | None = first
    while figures is not None:
        lines = "\n".join(job_lines(figures))
        print_table(lines, COLUMNS, [row(operator) for operator in figures["operators"]])
        if not figures["operators"]:
            typer.echo(lines)
        sys.stdout.flush()
        if once or not is_read(sys.stdout):
            return
        time.sleep(_REFRESH_S)
        figures = _ask_on(running)


def _show(running: RunningJob, first: dict[str, Any]) -> None:
    """Show the job until it ends or the user has seen enough."""
    from rich.live import Live

    from minirt.cli.console import console
    from minirt.cli.top_view import view

    figures: dict[str, Any] | None = first
    try:
        out = console()
        with _keys() as pressed, Live(console=out, screen=True, auto_refresh=False) as live:
            while figures is not None:
                live.update(view(figures, console().width), refresh=True)
                if pressed(_REFRESH_S) == "q":
                    return
                figures = _ask_on(running)
    except KeyboardInterrupt:
        return
    typer.echo(f"job {running.name} has ended")


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits for so many seconds, or until a key is pressed; gives that key, or nothing."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        if select.select([descriptor], [], [], seconds)[0]:
            return os.read(descriptor, 1).decode(errors="replace")
        return ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""
