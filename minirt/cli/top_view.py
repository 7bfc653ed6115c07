"""The figures of a job as `minirt top` shows them: a line about the job, and a row for each chain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minirt.cli.checkpoint_table import duration
from minirt.cli.tables import EDGES, GAP, PADDING, in_one_line, printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Figures = Mapping[str, Any]
"""As `JobFigures.to_plain` gives them, or those of one of its operators."""

TIMES = {
    "busy": ("█", "green"),
    "idle": ("·", "bright_black"),
    "soft": ("░", "yellow"),
    "hard": ("X", "red"),
    "drift": ("=", "blue"),
}
"""The activities of a subtask, each with its sign and its colour."""

COLUMNS = (
    *("operator", "subtasks", "busy", "idle", "soft", "hard", "drift", "busiest"),
    *("records in/s", "records out/s", "bytes in/s", "bytes out/s"),
    *("queue in", "queue out", "window in", "watermark lag", "latency p50", "latency p99"),
    "last checkpoint",
    *("start delay", "alignment", "sync", "async"),
)
STAGES = {
    "start delay": "start_delay_s",
    "alignment": "alignment_s",
    "sync": "sync_s",
    "async": "async_s",
}
"""The stages of a checkpoint in a subtask, and their names in the figures."""

_BAR_CELLS = 12
_MISSING_MAX = 5


def _comebacks(figures: Figures) -> str:
    """Of a job whose workers came back alone. One of an older version does not tell."""
    count = figures.get("comebacks", 0)
    return f", comebacks {count}" if count else ""


def job_lines(figures: Figures) -> list[str]:
    """What the job does, how its checkpoints go, and why one failed or the job restarted last."""
    lines = [
        f"job {figures['name']} {figures['status']}, up {_span(figures['at'] - figures['started_at'])}, "
        f"generation {figures['generation']}, restarts {figures['restarts']}{_comebacks(figures)}",
        _checkpoint_line(figures["checkpoints"], figures["at"]),
    ]
    lines += _stages_line(figures["operators"])
    lines += _latency_line(figures)
    for under_way in figures["checkpoints"]["under_way"]:
        lines.append(_under_way_line(under_way, figures["at"]))
    if (failure := figures["checkpoints"]["last_failure"]) is not None:
        lines.append(f"last failed checkpoint: {in_one_line(failure)}")
    if figures["last_failure"] is not None:
        lines.append(f"last failure: {in_one_line(figures['last_failure'])}")
    return [printable(line) for line in lines]


def row(operator: Figures) -> list[object]:
    """The cells of a chain, for `COLUMNS`. Times are in milliseconds a second."""
    rates = operator["per_second"]
    if rates is None:
        flow: list[object] = [None] * 10
    else:
        flow = [
            *(round(rates[name]) for name in _RATES[:5]),
            round(operator["busiest_ms"]),
            *(round(rates[name]) for name in _RATES[5:]),
        ]
    return [
        operator["operator"],
        operator["parallelism"],
        *flow,
        f"{operator['input_queue_use']:.0%}",
        f"{operator['output_queue_use']:.0%}",
        operator["input_window_bytes"],
        _known(operator["watermark_lag_s"]),
        *(_known((operator.get("latency") or {}).get(share)) for share in ("p50_s", "p99_s")),
        _known(operator["checkpoint_s"]),
        *(
            None if operator["checkpoint"] is None else duration(operator["checkpoint"][stage])
            for stage in STAGES.values()
        ),
    ]


def _known(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)


_RATES = (
    *("busy_ms", "idle_ms", "soft_backpressure_ms", "hard_backpressure_ms"),
    "drift_pause_ms",
    *("records_in", "records_out", "bytes_in", "bytes_out"),
)


_DETAILS = ("busiest", "records/s", "queues", "lag", "latency", "checkpoint", "bytes/s", "window")
"""The columns to show as far as there is room, in this order; operator and time always."""
_OPERATOR_CELLS, _SUBTASK_CELLS = 12, 4


def view(figures: Figures, width: int) -> Table:
    """Everything that fits into a terminal of that width: the five times are one bar."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    head = Table.grid()
    for line in job_lines(figures):
        head.add_row(line)
    operators = figures["operators"]
    details = [_details(operator) for operator in operators]
    wanted = [
        name
        for name in _DETAILS
        if name != "latency" or figures.get("latency_interval_s") is not None
    ]
    shown, left = _with_room(wanted, details, width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=PADDING)
    # Names alone give way: rich would cut numbers as well, in proportion to the widths of all.
    table.add_column(
        "operator", max_width=_OPERATOR_CELLS + left, overflow="ellipsis", no_wrap=True
    )
    table.add_column("", justify="right", min_width=_SUBTASK_CELLS, no_wrap=True)
    table.add_column("time", min_width=_BAR_CELLS, no_wrap=True)
    for name in shown:
        table.add_column(name, justify="right", min_width=_cells(name, details), no_wrap=True)
    for operator, cells in zip(operators, details, strict=True):
        uid, subtasks, *times = row(operator)[:7]
        known = [cells[name] for name in shown]
        table.add_row(printable(str(uid)), f"x{subtasks}", _bar(times), *known)
    head.add_row(table)
    head.add_row(_legend())
    if missing := [name for name in wanted if name not in shown]:
        head.add_row(f"no room for {', '.join(missing)}: `minirt top --once` prints all")
    return head


def _details(operator: Figures) -> dict[str, str]:
    rates = operator["per_second"]
    cells = dict(zip(COLUMNS, row(operator), strict=True))
    return {
        "busiest": "-" if rates is None else f"{operator['busiest_ms'] / 1000:.0%}",
        "records/s": _through(rates, "records_in", "records_out"),
        "bytes/s": _through(rates, "bytes_in", "bytes_out"),
        "queues": f"{operator['input_queue_use']:.0%} > {operator['output_queue_use']:.0%}",
        "window": _short(operator["input_window_bytes"]),
        "lag": str(cells["watermark lag"] or "-"),
        "latency": _both(cells["latency p50"], cells["latency p99"]),
        "checkpoint": str(cells["last checkpoint"] or "-"),
    }


def _with_room(
    wanted: list[str], details: list[dict[str, str]], width: int
) -> tuple[list[str], int]:
    """Of the wanted details those that fit beside operator, subtasks and time; how many cells are left."""
    left, shown = width - (EDGES + _OPERATOR_CELLS + GAP + _SUBTASK_CELLS + GAP + _BAR_CELLS), []
    for name in wanted:
        cells = GAP + _cells(name, details)
        if cells > left:
            break
        left -= cells
        shown.append(name)
    return shown, max(0, left)


def _cells(name: str, details: list[dict[str, str]]) -> int:
    """How wide the column of a detail is."""
    return max([len(name), *(len(one[name]) for one in details)])


def _both(median: object, most: object) -> str:
    return "-" if median is None else f"{median} / {most}"


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
    for milliseconds, (sign, colour) in zip(times, TIMES.values(), strict=True):
        passed += milliseconds
        end = min(_BAR_CELLS, round(passed * _BAR_CELLS / 1000))
        bar.append(sign * (end - filled), style=colour)
        filled = max(filled, end)
    return bar


def _legend() -> Text:
    from rich.text import Text

    words = {
        "soft": "soft backpressure",
        "hard": "hard backpressure",
        "drift": "ahead of other sources",
    }
    legend = Text()
    for name, (sign, colour) in TIMES.items():
        legend.append(f"{sign} ", style=colour).append(f"{words.get(name, name)}   ")
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


def _stages_line(operators: list[Figures]) -> list[str]:
    """Each stage of the newest checkpoint, and the operator with the subtask that took the longest."""
    known = [operator for operator in operators if operator["checkpoint"] is not None]
    if not known:
        return []
    slowest = {
        stage: max(known, key=lambda operator: float(operator["checkpoint"][key]))
        for stage, key in STAGES.items()
    }
    parts = [
        f"{stage} {duration(operator['checkpoint'][STAGES[stage]])} in {operator['operator']}"
        for stage, operator in slowest.items()
    ]
    return [f"its longest: {', '.join(parts)}"]


def _latency_line(figures: Figures) -> list[str]:
    """What the columns of latencies are; how to have them, if nothing is measured."""
    if figures.get("latency_interval_s") is None:
        return ["latency is not measured; options.latency_interval, such as 1s, has it measured"]
    if all(operator.get("latency") is None for operator in figures["operators"]):
        return ["latency: no marker of a source has come anywhere yet"]
    return ["latency: from a source until here, of the last seconds: half of the markers / 99 %"]


def _under_way_line(checkpoint: Figures, now: float) -> str:
    missing = checkpoint["missing"]
    named = ", ".join(missing[:_MISSING_MAX])
    more = f" and {len(missing) - _MISSING_MAX} more" if len(missing) > _MISSING_MAX else ""
    waits = f"missing {named}{more}" if missing else "its manifest is being stored"
    return (
        f"checkpoint {checkpoint['checkpoint_id']} ({checkpoint['mode']}, {checkpoint['kind']}) is being "
        f"taken for {_span(now - checkpoint['triggered_at'])}, stored by {checkpoint['stored']} of "
        f"{checkpoint['stored'] + len(missing)} subtasks: {waits}"
    )


def _span(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:" + time.strftime("%M:%S", time.gmtime(whole))
