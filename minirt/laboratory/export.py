"""The figures of a comparison as CSV: a line a run, a checkpoint, a part, an operator, a kill, a sample."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from minirt.laboratory.measured import (
    CheckpointMeasured,
    Comparison,
    KillMeasured,
    OperatorMeasured,
    PartMeasured,
    Run,
)
from minirt.laboratory.statistics import FIGURES

_OF_RUN = ("setting", "label", "repeat")


def write_csv(comparison: Comparison, folder: Path) -> None:
    """One file for each kind of line, in a folder that is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns, lines in _files(comparison):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*_OF_RUN, *columns])
            writer.writerows(lines)


def _files(comparison: Comparison) -> Iterator[tuple[str, Sequence[str], Iterable[list[Any]]]]:
    runs = [
        ([run.setting, comparison.labels[run.setting], run.repeat], run) for run in comparison.runs
    ]
    figures = [figure.name for figure in FIGURES]
    yield (
        "runs",
        ("ended", "measured_s", "verification", *figures),
        (
            [*of, run.ended, run.measured_s, run.verification.verdict, *_figures(run)]
            for of, run in runs
        ),
    )
    own = _names(CheckpointMeasured, "parts")
    yield (
        "checkpoints",
        own,
        ([*of, *_cells(one, own)] for of, run in runs for one in run.checkpoints),
    )
    of_part = _names(PartMeasured)
    yield (
        "parts",
        ("checkpoint_id", *of_part),
        (
            [*of, one.checkpoint_id, *_cells(part, of_part)]
            for of, run in runs
            for one in run.checkpoints
            for part in one.parts
        ),
    )
    operators = _names(OperatorMeasured)
    yield (
        "operators",
        operators,
        ([*of, *_cells(one, operators)] for of, run in runs for one in run.operators),
    )
    kills = _names(KillMeasured, "subtasks")
    yield (
        "kills",
        (*kills, "subtasks"),
        (
            [*of, *_cells(one, kills), "; ".join(one.subtasks)]
            for of, run in runs
            for one in run.kills
        ),
    )
    yield (
        "series",
        ("name", "unit", "at_s", "value"),
        (
            [*of, series.name, series.unit, at, value]
            for of, run in runs
            for series in run.series
            for at, value in zip(series.at_s, series.values, strict=True)
        ),
    )


def _figures(run: Run) -> list[Any]:
    return [figure.of_run(run) for figure in FIGURES]


def _names(kind: type, *without: str) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name not in without)


def _cells(one: object, names: Sequence[str]) -> list[Any]:
    return [getattr(one, name) for name in names]
