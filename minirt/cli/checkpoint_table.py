"""Checkpoints as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_SUBTASK_FIGURES = {
    "alignment": "alignment_s",
    "start delay": "start_delay_s",
    "sync": "sync_s",
    "async": "async_s",
}


def checkpoint_table(
    entries: Iterable[Mapping[str, Any]],
    extra: Mapping[str, Callable[[Mapping[str, Any]], str]] | None = None,
) -> Table:
    """One row for each entry of a checkpoint history; of figures of subtasks, the largest.

    `extra` names further columns, with what they show of an entry.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    extra = extra or {}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "generation"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for name in ("duration", *_SUBTASK_FIGURES, "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in extra:
        table.add_column(name)
    for entry in entries:
        table.add_row(*_cells(entry), *[show(entry) for show in extra.values()])
    return table


def duration(seconds: float) -> str:
    """A duration as people write it: "850 ms", "1.25 s"."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def _cells(entry: Mapping[str, Any]) -> list[str]:
    subtasks = entry.get("subtasks", ())
    largest = [
        duration(max(subtask[key] for subtask in subtasks)) if subtasks else "-"
        for key in _SUBTASK_FIGURES.values()
    ]
    kind = entry.get("kind")
    status = kind if kind in ("final", "savepoint") else entry["status"]
    if "reason" in entry:
        status = f"{status}: {entry['reason']}"
    size = f"{entry['bytes']:,}" if "bytes" in entry else "-"
    return [
        str(entry["checkpoint_id"]),
        str(entry["generation"]),
        status,
        duration(entry["duration_s"]),
        *largest,
        size,
    ]
