"""What plots of a comparison share: how settings are drawn and named, and axes of logarithms."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from minirt.laboratory.canvas import legend
from minirt.laboratory.measured import Comparison, Run, Series
from minirt.laboratory.palette import Style, styles

PANELS_MAX = 8
"""Plots with a panel for each setting show so many settings at most."""
LEAST_S = 1e-4
"""On axes of logarithms, shorter times are drawn as this."""
_FEW_TIMES = 60
"""An axis that spans less would have one or two ticks at powers of ten."""
SINCE_BEGAN = "seconds since measuring began"


def each_setting(comparison: Comparison) -> Iterator[tuple[int, str, Style, tuple[Run, ...]]]:
    """Each setting that has runs, with its name and how it is drawn."""
    looks = styles(comparison.settings)
    for setting, label in enumerate(comparison.labels):
        runs = comparison.of_setting(setting)
        if runs:
            yield setting, label, looks[setting], runs


def name_settings(comparison: Comparison, found: Figure, *, line: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=look.colour.light,
            linestyle=look.line if line else "none",
            marker="" if line else look.marker,
        )
        for _, _, look, _ in each_setting(comparison)
    ]
    legend(found, handles, [label for _, label, _, _ in each_setting(comparison)])


def logarithmic(axis: Any, set_scale: Any, set_limits: Any, get_limits: Any) -> None:
    """An axis of logarithms that spans at least ten times; ticks are at powers of ten, with less of them
    also between."""
    set_scale("log")
    low, high = get_limits()
    low, high = max(low, LEAST_S / 2), max(high, LEAST_S)
    if high / low < 12:
        middle = (low * high) ** 0.5
        low, high = min(low, middle / 4), max(high, middle * 4)
    set_limits(low, high)
    between = (1.0, 2.0, 5.0) if high / low < _FEW_TIMES else (1.0,)
    axis.set_major_locator(LogLocator(10, between, numticks=7))
    axis.set_minor_formatter(NullFormatter())


def value_at(series: Series | None, at: float) -> float:
    if series is None or not series.at_s:
        return 0.0
    return series.values[max(0, bisect_right(series.at_s, at) - 1)]
