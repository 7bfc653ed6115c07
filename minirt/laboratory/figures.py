"""The plots of a comparison. Each is one function, and one entry in `PLOTS`."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from minirt.laboratory.canvas import for_page, in_units, legend, panels, style, to_svg
from minirt.laboratory.measured import Comparison, PartMeasured, Run, Series
from minirt.laboratory.palette import OF_PART, QUIET, Style, styles
from minirt.laboratory.statistics import figure, summary, values

PANELS_MAX = 8
"""Plots with a panel for each setting show so many settings at most."""
SUBTASKS_MAX = 12
"""Of the parts of a checkpoint, so many subtasks are shown at most: those that took the longest."""
LEAST_S = 1e-4
"""On axes of logarithms, shorter times are drawn as this."""

_SECONDS = "seconds since measuring began"


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


def _settings(comparison: Comparison) -> Iterator[tuple[int, str, Style, tuple[Run, ...]]]:
    """Each setting that has runs, with its name and how it is drawn."""
    looks = styles(comparison.settings)
    for setting, label in enumerate(comparison.labels):
        runs = comparison.of_setting(setting)
        if runs:
            yield setting, label, looks[setting], runs


def _name_settings(comparison: Comparison, found: Figure, *, line: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=look.colour.light,
            linestyle=look.line if line else "none",
            marker="" if line else look.marker,
        )
        for _, _, look, _ in _settings(comparison)
    ]
    legend(found, handles, [label for _, label, _, _ in _settings(comparison)])


def _runs(comparison: Comparison) -> Figure | None:
    """Every run as a dot: four figures, a panel each."""
    names = [
        name
        for name in ("duration_s", "sink_rate", "latency_p99_s", "caught_up_s", "cpu")
        if any(summary(comparison, place, name) for place in range(len(comparison.settings)))
    ]
    shown_settings = list(_settings(comparison))
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
            _log(axis.xaxis, axis.set_xscale, axis.set_xlim, axis.get_xlim)
        else:
            axis.set_xlim(0, axis.get_xlim()[1] * 1.04)
            axis.locator_params(axis="x", nbins=5)
        in_units(axis.xaxis, one.unit)
    return found


def _duration_and_backpressure(comparison: Comparison) -> Figure | None:
    """Every checkpoint by how backpressured the job was when it was triggered."""
    found, [axis] = panels(1, 3.0)
    points = 0
    for _, _, look, runs in _settings(comparison):
        pressed = [
            (100 * _value_at(run.one_series("backpressure"), one.at_s), one.duration_s)
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
    _log(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.yaxis, "s")
    _name_settings(comparison, found, line=False)
    return found


def _parts(comparison: Comparison) -> Figure | None:
    """What a checkpoint's time went to in each subtask, stacked."""
    shown_settings = [
        (label, subtasks)
        for _, label, _, runs in _settings(comparison)
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


def _throughput(comparison: Comparison) -> Figure | None:
    return _course(comparison, "records at sinks", "records/s at the sinks", "per s")


def _latency(comparison: Comparison) -> Figure | None:
    return _course(comparison, "latency p99", "99 % of records reached a sink within", "s")


def _lag(comparison: Comparison) -> Figure | None:
    return _course(comparison, "source lag", "records that were due and not read", "records")


def _course(comparison: Comparison, name: str, title: str, unit: str) -> Figure | None:
    """A figure over time, a panel a setting: the first run strong, the others faint.

    Checkpoints of the first run are bars at the bottom, as long as they took; kills are lines across.
    """
    shown_settings = [
        (label, look, runs)
        for _, label, look, runs in _settings(comparison)
        if any(run.one_series(name) for run in runs)
    ][:PANELS_MAX]
    if not shown_settings:
        return None
    found, axes = panels(len(shown_settings), 1.5, share_x=True)
    for axis, (label, look, runs) in zip(axes, shown_settings, strict=True):
        for place, run in enumerate(runs):
            series = run.one_series(name)
            if series is not None:
                axis.plot(
                    series.at_s,
                    [max(value, LEAST_S) for value in series.values]
                    if unit == "s"
                    else series.values,
                    color=look.colour.light,
                    alpha=1.0 if place == 0 else 0.3,
                    linewidth=1.6 if place == 0 else 0.9,
                )
        _mark_events(axis, runs[0])
        axis.set_title(label)
        in_units(axis.yaxis, unit)
        if unit == "s":
            axis.set_yscale("log")
    low, high = (pick(axis.get_ylim()[end] for axis in axes) for end, pick in ((0, min), (1, max)))
    for axis in axes:
        axis.set_ylim(low if unit == "s" else 0, high)
        if unit == "s":
            _log(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
            in_units(axis.yaxis, unit)
    axes[-1].set_xlabel(_SECONDS)
    found.suptitle(title, fontsize=10, x=0.01, ha="left")
    return found


def _mark_events(axis: Any, run: Run) -> None:
    """Checkpoints at the bottom of a plot over time, kills across it."""
    across = axis.get_xaxis_transform()
    for one in run.completed:
        axis.plot(
            [one.at_s, one.at_s + one.duration_s],
            [0.03, 0.03],
            color=QUIET.light,
            linewidth=4,
            solid_capstyle="butt",
            transform=across,
            clip_on=True,
        )
    for kill in run.kills:
        axis.axvline(kill.at_s, color=QUIET.light, linestyle=(0, (2, 2)), linewidth=1.2)
        axis.text(
            kill.at_s, 0.97, "  kill", transform=across, fontsize=8, va="top", color=QUIET.light
        )


def _durations_over_time(comparison: Comparison) -> Figure | None:
    """Each checkpoint by when it was triggered."""
    found, [axis] = panels(1, 2.8)
    points = 0
    for _, _, look, runs in _settings(comparison):
        whole = [(one.at_s, one.duration_s) for run in runs for one in run.completed]
        points += len(whole)
        axis.plot(
            [at for at, _ in whole],
            [max(seconds, LEAST_S) for _, seconds in whole],
            look.marker,
            color=look.colour.light,
            alpha=0.6,
            markersize=4,
        )
    if not points:
        return None
    _log(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.yaxis, "s")
    axis.set_title("checkpoint duration")
    axis.set_xlabel(_SECONDS)
    _name_settings(comparison, found, line=False)
    return found


def _in_flight(comparison: Comparison) -> Figure | None:
    """Bytes in all queues over time, and what checkpoints captured of them."""
    found, [axis] = panels(1, 2.8)
    lines = 0
    for _, _, look, runs in _settings(comparison):
        series = runs[0].one_series("queued bytes")
        if series is None:
            continue
        lines += 1
        colour = look.colour.light
        axis.plot(series.at_s, series.values, look.line, color=colour, linewidth=1.4)
        captured = [(one.at_s, one.in_flight_bytes) for one in runs[0].completed]
        held = [(at, size) for at, size in captured if size]
        axis.plot(
            [at for at, _ in held],
            [size for _, size in held],
            look.marker,
            color=colour,
            markersize=4,
        )
    if not lines:
        return None
    axis.set_ylim(bottom=0)
    in_units(axis.yaxis, "bytes")
    axis.set_title("in all queues (lines), captured by a checkpoint (dots)")
    axis.set_xlabel(_SECONDS)
    _name_settings(comparison, found, line=True)
    return found


def _recovery(comparison: Comparison) -> Figure | None:
    """The rate at the sinks around each kill, as a share of the rate before it."""
    shown_settings = [
        (label, look, runs)
        for _, label, look, runs in _settings(comparison)
        if any(run.kills for run in runs)
    ][:PANELS_MAX]
    if not shown_settings:
        return None
    found, axes = panels(len(shown_settings), 1.5, share_x=True)
    for axis, (label, look, runs) in zip(axes, shown_settings, strict=True):
        for run in runs:
            series = run.one_series("records at sinks")
            for kill in run.kills if series is not None else ():
                at, shares = _around(series, kill.at_s)
                axis.plot(at, shares, look.line, color=look.colour.light, alpha=0.7, linewidth=1.2)
                if kill.caught_up_s is not None:
                    axis.plot(
                        [kill.caught_up_s],
                        [100],
                        look.marker,
                        color=look.colour.light,
                        markersize=5,
                    )
        axis.axvline(0, color=QUIET.light, linestyle=(0, (2, 2)), linewidth=1.2)
        axis.set_title(label)
        axis.set_ylim(0, 220)
    axes[-1].set_xlabel("seconds since the kill (dot: at the rate before again)")
    found.suptitle("records at the sinks, % of the rate before", fontsize=10, x=0.01, ha="left")
    return found


def _around(series: Series | None, kill_at: float) -> tuple[list[float], list[float]]:
    """From 3 s before a kill until 8 s after it."""
    if series is None:
        return [], []
    pairs = list(zip(series.at_s, series.values, strict=True))
    before = [value for at, value in pairs if kill_at - 5 <= at < kill_at - 0.25]
    rate = statistics.mean(before) if before else 0.0
    if not rate:
        return [], []
    window = [(at - kill_at, 100 * value / rate) for at, value in pairs if -3 <= at - kill_at <= 8]
    return [at for at, _ in window], [min(share, 300.0) for _, share in window]


def _cost_and_benefit(comparison: Comparison) -> Figure | None:
    """Each setting: how long its checkpoints take, and how much each stores."""
    found, [axis] = panels(1, 3.0)
    points = 0
    for setting, _, look, runs in _settings(comparison):
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
    _log(axis.xaxis, axis.set_xscale, axis.set_xlim, axis.get_xlim)
    _log(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.xaxis, "s")
    in_units(axis.yaxis, "bytes")
    axis.set_xlabel("a checkpoint takes")
    axis.set_title("a checkpoint stores")
    _name_settings(comparison, found, line=False)
    return found


def _log(axis: Any, set_scale: Any, set_limits: Any, get_limits: Any) -> None:
    """An axis of logarithms that spans at least ten times, with ticks at powers of ten only."""
    from matplotlib.ticker import LogLocator, NullFormatter

    set_scale("log")
    low, high = get_limits()
    low, high = max(low, LEAST_S / 2), max(high, LEAST_S)
    if high / low < 12:
        middle = (low * high) ** 0.5
        low, high = min(low, middle / 4), max(high, middle * 4)
    set_limits(low, high)
    axis.set_major_locator(LogLocator(10, numticks=7))
    axis.set_minor_formatter(NullFormatter())


def _value_at(series: Series | None, at: float) -> float:
    if series is None or not series.at_s:
        return 0.0
    return series.values[max(0, bisect_right(series.at_s, at) - 1)]


def _short(name: str, most: int = 26) -> str:
    """The end of a subtask's name tells it apart."""
    return name if len(name) <= most else f"...{name[-most + 3 :]}"


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
        _durations_over_time,
    ),
    Plot(
        "throughput",
        "Throughput over time",
        "Strong: the first run; faint: the others. Bars at the bottom: checkpoints of the first run, "
        "as long as they took.",
        _throughput,
    ),
    Plot("latency", "Latency over time", "As above, on a scale of logarithms.", _latency),
    Plot("lag", "Source lag", "Records that were due and that the source had not read.", _lag),
    Plot("in-flight", "Bytes in flight", "The first run of each setting.", _in_flight),
    Plot(
        "recovery", "Recovery", "A line is a kill. What is above 100 % is catching up.", _recovery
    ),
    Plot(
        "cost",
        "Cost against benefit",
        "Left is quick, low is small. The line spans the runs.",
        _cost_and_benefit,
    ),
)
