"""The plots of a comparison. Each is one function, and one entry in `PLOTS`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from minirt.laboratory import courses
from minirt.laboratory.canvas import for_page, in_units, legend, panels, style, to_svg
from minirt.laboratory.drawing import (
    LEAST_S,
    PANELS_MAX,
    each_setting,
    logarithmic,
    name_settings,
    value_at,
)
from minirt.laboratory.measured import Comparison, PartMeasured, Run
from minirt.laboratory.palette import OF_PART
from minirt.laboratory.statistics import figure, summary, values

SUBTASKS_MAX = 12
"""Of the parts of a checkpoint, so many subtasks are shown at most: those that took the longest."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot on a page: what it shows, and how to draw it. `draw` gives None if there is nothing."""

    name: str
    title: str
    caption: str
    draw: Callable[[Comparison], Figure | None]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot that was drawn: as a file of its own, and as a part of a page."""

    name: str
    title: str
    caption: str
    file: str
    page: str


def draw_all(comparison: Comparison) -> tuple[Drawn, ...]:
    """All plots that have something to show."""
    return tuple(_drawn(comparison))


def _drawn(comparison: Comparison) -> Iterator[Drawn]:
    with style():
        for plot in PLOTS:
            found = plot.draw(comparison)
            if found is not None:
                svg = to_svg(found, f"{comparison.title}: {plot.title}")
                page = for_page(svg, plot.name, plot.title)
                yield Drawn(plot.name, plot.title, plot.caption, svg, page)


def _runs(comparison: Comparison) -> Figure | None:
    """Every run as a dot: four figures, a panel each."""
    names = [
        name
        for name in ("duration_s", "sink_rate", "latency_p99_s", "caught_up_s", "cpu")
        if any(summary(comparison, place, name) for place in range(len(comparison.settings)))
    ]
    shown_settings = list(each_setting(comparison))
    if not names or not shown_settings:
        return None
    found, axes = panels(len(names), 0.65 + 0.24 * len(shown_settings))
    for name, axis in zip(names, axes, strict=True):
        one = figure(name)
        axis.set_title(one.title)
        for row, (setting, _, look, _) in enumerate(shown_settings):
            known = [value for value in values(comparison, setting, one) if value is not None]
            if not known:
                continue
            colour = look.colour.light
            axis.plot(known, [row] * len(known), look.marker, color=colour, alpha=0.6, markersize=5)
            middle = statistics.median(known)
            axis.plot([middle, middle], [row - 0.32, row + 0.32], color=colour, linewidth=2.5)
        axis.set_yticks(range(len(shown_settings)), [label for _, label, _, _ in shown_settings])
        axis.set_ylim(len(shown_settings) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        if one.unit == "s":
            logarithmic(axis.xaxis, axis.set_xscale, axis.set_xlim, axis.get_xlim)
        else:
            axis.set_xlim(0, axis.get_xlim()[1] * 1.04)
            axis.locator_params(axis="x", nbins=5)
        in_units(axis.xaxis, one.unit)
    return found


def _duration_and_backpressure(comparison: Comparison) -> Figure | None:
    """Every checkpoint by how backpressured the job was when it was triggered."""
    found, [axis] = panels(1, 3.0)
    points = 0
    for _, _, look, runs in each_setting(comparison):
        pressed = [
            (100 * value_at(run.one_series("backpressure"), one.at_s), one.duration_s)
            for run in runs
            for one in run.completed
        ]
        points += len(pressed)
        axis.plot(
            [share for share, _ in pressed],
            [max(seconds, LEAST_S) for _, seconds in pressed],
            look.marker,
            color=look.colour.light,
            alpha=0.55,
            markersize=4.5,
        )
    if not points:
        return None
    axis.set_xlim(-3, 103)
    axis.set_xlabel("backpressure of the most backpressured subtask, %")
    axis.set_title("checkpoint duration")
    logarithmic(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.yaxis, "s")
    name_settings(comparison, found, line=False)
    return found


def _parts(comparison: Comparison) -> Figure | None:
    """What a checkpoint's time went to in each subtask, stacked."""
    shown_settings = [
        (label, subtasks)
        for _, label, _, runs in each_setting(comparison)
        if (subtasks := _part_medians(runs))
    ][:PANELS_MAX]
    if not shown_settings:
        return None
    rows = max(len(subtasks) for _, subtasks in shown_settings)
    found, axes = panels(len(shown_settings), 0.75 + 0.2 * rows)
    for axis, (label, subtasks) in zip(axes, shown_settings, strict=True):
        left = [0.0] * len(subtasks)
        for part, colour in OF_PART.items():
            widths = [medians[part] for medians in subtasks.values()]
            axis.barh(range(len(subtasks)), widths, left=left, color=colour.light, height=0.72)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axis.set_title(label)
        axis.set_yticks(range(len(subtasks)), [_short(name) for name in subtasks], fontsize=8)
        axis.set_ylim(len(subtasks) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        axis.locator_params(axis="x", nbins=5)
        in_units(axis.xaxis, "s")
    handles = [Patch(color=colour.light) for colour in OF_PART.values()]
    names = ["start delay", "alignment", "synchronous", "asynchronous"]
    legend(found, handles, names)
    return found


def _part_medians(runs: tuple[Run, ...]) -> Mapping[str, Mapping[str, float]]:
    """The medians of each subtask's parts over all checkpoints, of the subtasks that took the longest."""
    parts: dict[str, list[PartMeasured]] = {}
    for run in runs:
        for one in run.completed:
            for part in one.parts:
                parts.setdefault(part.operator, []).append(part)
    medians = {
        name: {part: statistics.median(getattr(one, part) for one in own) for part in OF_PART}
        for name, own in parts.items()
    }
    slowest = sorted(medians, key=lambda name: -sum(medians[name].values()))[:SUBTASKS_MAX]
    return {name: medians[name] for name in medians if name in slowest}


def _cost_and_benefit(comparison: Comparison) -> Figure | None:
    """Each setting: how long its checkpoints take, and how much each stores."""
    found, [axis] = panels(1, 3.0)
    points = 0
    for setting, _, look, runs in each_setting(comparison):
        duration = summary(comparison, setting, "duration_s")
        stored = [
            float(one.bytes) for run in runs for one in run.completed if one.bytes is not None
        ]
        if duration is None or not stored:
            continue
        points += 1
        axis.errorbar(
            duration.median,
            max(statistics.median(stored), 1.0),
            xerr=[[duration.median - duration.least], [duration.most - duration.median]],
            fmt=look.marker,
            color=look.colour.light,
            markersize=7,
        )
    if not points:
        return None
    logarithmic(axis.xaxis, axis.set_xscale, axis.set_xlim, axis.get_xlim)
    logarithmic(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.xaxis, "s")
    in_units(axis.yaxis, "bytes")
    axis.set_xlabel("a checkpoint takes")
    axis.set_title("a checkpoint stores")
    name_settings(comparison, found, line=False)
    return found


def _short(name: str, most: int = 26) -> str:
    """Chains begin alike, or end alike: the middle of a subtask's name gives way."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


PLOTS: tuple[Plot, ...] = (
    Plot("runs", "Every run", "A dot is a run, a bar the median of a setting.", _runs),
    Plot(
        "backpressure",
        "Duration against backpressure",
        "A dot is a checkpoint, on a scale of logarithms.",
        _duration_and_backpressure,
    ),
    Plot(
        "parts",
        "The parts of a checkpoint",
        "Medians over all checkpoints of each subtask. Each setting has a scale of its own.",
        _parts,
    ),
    Plot(
        "durations",
        "Checkpoints over time",
        "A dot is a checkpoint, at the time when it was triggered.",
        courses.durations,
    ),
    Plot(
        "throughput",
        "Throughput over time",
        "Strong: the first run; faint: the others. Bars at the bottom: checkpoints of the first run, "
        "as long as they took.",
        courses.throughput,
    ),
    Plot(
        "latency",
        "Latency over time",
        "As above, on a scale of logarithms. Straight where nothing reached a sink, as after a kill.",
        courses.latency,
    ),
    Plot(
        "visible",
        "From creation to visible",
        "How old records were when their output was committed, by when it was.",
        courses.visible,
    ),
    Plot(
        "lag", "Source lag", "Records that were due and that the source had not read.", courses.lag
    ),
    Plot(
        "in-flight",
        "Bytes in flight",
        "The first run of each setting. After a kill, what was restored and still waits is captured again.",
        courses.in_flight,
    ),
    Plot(
        "recovery",
        "Recovery",
        "A line is a kill. What is above 100 % is catching up.",
        courses.recovery,
    ),
    Plot(
        "cost",
        "Cost against benefit",
        "Left is quick, low is small. The line spans the runs.",
        _cost_and_benefit,
    ),
)
