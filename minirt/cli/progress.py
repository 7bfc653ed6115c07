"""Shows the progress of long work: a bar on a terminal, a plain line every few seconds in a pipe."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from minirt.cli.console import console
from minirt.cli.live_line import LiveLine


@contextmanager
def progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows on standard error how much of `total` is done, whenever it is called with that number.

    Says how much time is left, at the pace until now. It leaves nothing behind on a terminal.
    """
    began = monotonic()

    def left(done: int) -> str:
        if not 0 < done < total:
            return ""
        return f", {time_left((monotonic() - began) * (total - done) / done)} left"

    if not sys.stderr.isatty():
        line = LiveLine(sys.stderr)
        yield lambda done: line.update(f"{what}: {done:,} of {total:,} {unit}{left(done)}")
        return
    from rich.progress import BarColumn, Progress, TextColumn

    count = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit + "{task.fields[left]}")
    columns = (TextColumn("{task.description}"), BarColumn(), count)
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, left="")
        yield lambda done: bar.update(task, completed=done, left=left(done))


def time_left(seconds: float) -> str:
    """A duration as people say it: "5 s", "2 min", "1 h 10 min"."""
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
