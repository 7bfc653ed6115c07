"""How far long work is: a bar on a terminal, a plain line every few seconds in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minirt.cli.console import console
from minirt.cli.live_line import LiveLine


@contextmanager
def progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how much of `total` is done, whenever it is called with that number.

    It leaves nothing behind on a terminal.
    """
    if not sys.stderr.isatty():
        line = LiveLine(sys.stderr)
        yield lambda done: line.update(f"{what}: {done:,} of {total:,} {unit}")
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
