"""Checkpoints as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minirt.protocol.reports import CheckpointReport


_SUBTASK_FIGURES = {
    "alignment": "alignment_s",
    "start delay": "start_delay_s",
    "sync": "sync_s",
    "async": "async_s",
}


def print_checkpoints(
    title: str,
    reports: Iterable[CheckpointReport],
    extra: Mapping[str, Callable[[CheckpointReport], str]] | None = None,
    *,
    stderr: bool = False,
) -> None:
    """One row for each checkpoint; of figures of subtasks, the largest.

    `extra` names further columns, with what they show of a checkpoint.
    """
    from minirt.cli.tables import print_table

    extra = extra or {}
    columns = ("id", "generation", "status", "duration", *_SUBTASK_FIGURES, "bytes", *extra)
    rows = [[*_cells(report), *(show(report) for show in extra.values())] for report in reports]
    print_table(title, columns, rows, stderr=stderr)


def duration(seconds: float) -> str:
    """A duration as people write it: "850 ms", "1.25 s"."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def _cells(report: CheckpointReport) -> list[str]:
    from minirt.cli.tables import in_one_line

    largest = [
        duration(max(getattr(part, name) for part in report.subtasks)) if report.subtasks else "-"
        for name in _SUBTASK_FIGURES.values()
    ]
    status = report.status.value if report.kind == "checkpoint" else report.kind
    if report.failure is not None:
        status = f"{status}: {in_one_line(str(report.failure))}"
    if report.put_off_s:
        status = f"{status}; next put off by {duration(report.put_off_s)}"
    return [
        str(report.checkpoint_id),
        str(report.generation),
        status,
        duration(report.duration_s),
        *largest,
        "-" if report.bytes is None else f"{report.bytes:,}",
    ]
