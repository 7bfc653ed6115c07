"""The figures of a job as `minirt top` shows them: a line about the job, and a row for each chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minirt.cli.checkpoint_table import duration
from minirt.cli.tables import in_one_line, printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Figures = Mapping[str, Any]
"""As `JobFigures.to_plain` gives them, or those of one of its operators."""

TIMES = {"busy": "green", "idle": "bright_black", "soft": "yellow", "hard": "red"}
"""What a subtask's time goes to, with its colour."""

COLUMNS = (
    *("operator", "subtasks", "busy", "idle", "soft", "hard", "busiest"),
    *("records in/s", "records out/s", "bytes in/s", "bytes out/s"),
    *("queue in", "queue out", "watermark lag", "last checkpoint"),
)
_BAR_CELLS = 12


def job_lines(figures: Figures) -> list[str]:
    """What the job does, how its checkpoints went, and why it restarted last."""
    lines = [
        f"job {figures['name']} {figures['status']}, up {_span(figures['at'] - figures['started_at'])}, "
        f"generation {figures['generation']}, restarts {figures['restarts']}",
        _checkpoint_line(figures["checkpoints"], figures["at"]),
    ]
    if figures["last_failure"] is not None:
        lines.append(f"last failure: {in_one_line(figures['last_failure'])}")
    return [printable(line) for line in lines]


def row(operator: Figures) -> list[object]:
    """The cells of a chain, for `COLUMNS`. Times are in milliseconds a second."""
    rates = operator["per_second"]
    if rates is None:
        flow: list[object] = [None] * 9
    else:
        flow = [
            *(round(rates[name]) for name in _RATES[:4]),
            round(operator["busiest_ms"]),
            *(round(rates[name]) for name in _RATES[4:]),
        ]
    return [
        operator["operator"],
        operator["parallelism"],
        *flow,
        f"{operator['input_queue_use']:.0%}",
        f"{operator['output_queue_use']:.0%}",
        *(
            None if operator[name] is None else duration(operator[name])
            for name in ("watermark_lag_s", "checkpoint_s")
        ),
    ]


_RATES = (
    *("busy_ms", "idle_ms", "soft_backpressure_ms", "hard_backpressure_ms"),
    *("records_in", "records_out", "bytes_in", "bytes_out"),
)


def view(figures: Figures) -> Table:
    """Everything, for a terminal: the four times are one bar."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    head = Table.grid()
    for line in job_lines(figures):
        head.add_row(line)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=_legend())
    table.add_column("operator", min_width=8, overflow="ellipsis", no_wrap=True)
    table.add_column("", justify="right")
    table.add_column("time", min_width=_BAR_CELLS, no_wrap=True)
    for name in ("busiest", "records/s", "bytes/s", "queues", "lag", "checkpoint"):
        table.add_column(name, justify="right", no_wrap=True)
    for operator in figures["operators"]:
        uid, subtasks, *times = row(operator)[:6]
        rates = operator["per_second"]
        table.add_row(
            printable(str(uid)),
            f"x{subtasks}",
            _bar(times),
            "-" if rates is None else f"{operator['busiest_ms'] / 1000:.0%}",
            _through(rates, "records_in", "records_out"),
            _through(rates, "bytes_in", "bytes_out"),
            f"{operator['input_queue_use']:.0%} > {operator['output_queue_use']:.0%}",
            *("-" if cell is None else str(cell) for cell in row(operator)[-2:]),
        )
    head.add_row(table)
    return head


def _through(rates: Figures | None, taken_in: str, put_out: str) -> str:
    return "-" if rates is None else f"{_short(rates[taken_in])} > {_short(rates[put_out])}"


def _short(number: float) -> str:
    """Three digits and a factor: "12.3k"."""
    for factor in ("", "k", "M", "G"):
        if number < 999.5 or factor == "G":
            break
        number /= 1000
    return f"{number:.3g}{factor}" if number < 999.5 else f"{number:.0f}{factor}"


def _bar(times: list[Any]) -> Text:
    from rich.text import Text

    bar = Text()
    if None in times:
        return bar
    filled, passed = 0, 0
    for milliseconds, colour in zip(times, TIMES.values(), strict=True):
        passed += milliseconds
        end = min(_BAR_CELLS, round(passed * _BAR_CELLS / 1000))
        bar.append("█" * (end - filled), style=colour)
        filled = max(filled, end)
    return bar


def _legend() -> Text:
    from rich.text import Text

    words = {"soft": "soft backpressure", "hard": "hard backpressure"}
    legend = Text()
    for name, colour in TIMES.items():
        legend.append("█ ", style=colour).append(f"{words.get(name, name)}   ")
    return legend.append("q ends")


def _checkpoint_line(checkpoints: Figures, now: float) -> str:
    counts = f"checkpoints {checkpoints['completed']}, failed {checkpoints['failed']}"
    newest = checkpoints["newest"]
    if newest is None:
        return counts
    ended_at = newest["triggered_at"] + newest["duration_s"]
    return (
        f"{counts}, newest {newest['checkpoint_id']} ({newest['mode']}): "
        f"{duration(newest['duration_s'])}, {newest['bytes']:,} bytes, "
        f"{newest['in_flight_bytes']:,} of them in flight, {_span(now - ended_at)} ago"
    )


def _span(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:" + time.strftime("%M:%S", time.gmtime(whole))
