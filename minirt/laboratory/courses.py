"""Plots over time: rates, latencies, checkpoints and queues, and what follows a kill."""

from __future__ import annotations

import statistics
from typing import Any

from matplotlib.figure import Figure

from minirt.laboratory.canvas import in_units, panels
from minirt.laboratory.drawing import (
    LEAST_S,
    PANELS_MAX,
    SINCE_BEGAN,
    each_setting,
    logarithmic,
    name_settings,
)
from minirt.laboratory.measured import Comparison, Run, Series
from minirt.laboratory.palette import QUIET

_STRONG = {"linewidth": 1.6}
_FAINT = {"linewidth": 0.9, "alpha": 0.3}
_DOTTED = {"linewidth": 1.2, "linestyle": (0, (1, 1.5))}

_HEADROOM = 0.2
KILL_ROOM = 0.12
"""The part of a run that the word for a kill takes up in a plot."""


def throughput(comparison: Comparison) -> Figure | None:
    return _course(comparison, "records at sinks", "records/s at the sinks", "per s")


def latency(comparison: Comparison) -> Figure | None:
    what = "markers" if comparison.by_markers else "records"
    title = f"99 % of {what} reached a sink within (dotted: half of them)"
    return _course(comparison, "latency p99", title, "s", dotted="latency p50")


def lag(comparison: Comparison) -> Figure | None:
    return _course(comparison, "source lag", "records that were due and not read", "records")


def visible(comparison: Comparison) -> Figure | None:
    title = "half of what became visible had been made within"
    return _course(comparison, "until visible p50", title, "s")


def _course(
    comparison: Comparison, name: str, title: str, unit: str, dotted: str | None = None
) -> Figure | None:
    """A figure over time, a panel a setting: the first run strong, the others faint.

    Of the first run, a second figure may be dotted. Its checkpoints are bars at the bottom, as long as they
    took; kills are lines across.
    """
    shown_settings = [
        (label, look, runs)
        for _, label, look, runs in each_setting(comparison)
        if any(run.one_series(name) for run in runs)
    ][:PANELS_MAX]
    if not shown_settings:
        return None
    found, axes = panels(len(shown_settings), 1.5, share_x=True)
    for axis, (label, look, runs) in zip(axes, shown_settings, strict=True):
        lines: list[tuple[Run, str, dict[str, Any]]] = [(run, name, _FAINT) for run in runs[1:]]
        if dotted is not None:
            lines.append((runs[0], dotted, _DOTTED))
        for run, of, how in [*lines, (runs[0], name, _STRONG)]:
            series = run.one_series(of)
            if series is not None:
                least = LEAST_S if unit == "s" else 0.0
                values = [max(value, least) for value in series.values]
                axis.plot(series.at_s, values, color=look.colour.light, **how)
        _mark_events(axis, runs[0])
        axis.set_title(label)
        in_units(axis.yaxis, unit)
        if unit == "s":
            axis.set_yscale("log")
    low, high = (pick(axis.get_ylim()[end] for axis in axes) for end, pick in ((0, min), (1, max)))
    if comparison.kills:  # The word for a kill has its place above the lines.
        high = high * (high / low) ** _HEADROOM if unit == "s" else high * (1 + _HEADROOM)
    for axis in axes:
        axis.set_ylim(low if unit == "s" else 0, high)
        if unit == "s":
            logarithmic(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
            in_units(axis.yaxis, unit)
    axes[-1].set_xlabel(SINCE_BEGAN)
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
    room_s, named_at = run.measured_s * KILL_ROOM, float("-inf")
    for kill in sorted(run.kills, key=lambda one: one.at_s):
        axis.axvline(kill.at_s, color=QUIET.light, linestyle=(0, (2, 2)), linewidth=1.2)
        if kill.at_s - named_at < room_s:
            continue  # The one before says what the lines are.
        named_at = kill.at_s
        axis.annotate(
            "kill",
            (kill.at_s, 0.97),
            (3, 0),
            xycoords=across,
            textcoords="offset points",
            fontsize=8,
            va="top",
            color=QUIET.light,
        )


def durations(comparison: Comparison) -> Figure | None:
    """Each checkpoint by when it was triggered."""
    found, [axis] = panels(1, 2.8)
    points = 0
    for _, _, look, runs in each_setting(comparison):
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
    logarithmic(axis.yaxis, axis.set_yscale, axis.set_ylim, axis.get_ylim)
    in_units(axis.yaxis, "s")
    axis.set_title("checkpoint duration")
    axis.set_xlabel(SINCE_BEGAN)
    name_settings(comparison, found, line=False)
    return found


def in_flight(comparison: Comparison) -> Figure | None:
    """Bytes in all queues over time, and what checkpoints captured of them."""
    found, [axis] = panels(1, 2.8)
    lines = 0
    for _, _, look, runs in each_setting(comparison):
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
    axis.set_xlabel(SINCE_BEGAN)
    name_settings(comparison, found, line=True)
    return found


def recovery(comparison: Comparison) -> Figure | None:
    """The rate at the sinks around each kill, as a share of the rate before it."""
    shown_settings = [
        (label, look, runs)
        for _, label, look, runs in each_setting(comparison)
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
