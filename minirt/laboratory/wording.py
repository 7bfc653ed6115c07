"""Figures as people read them: 11 ms, 1.9 s, 1.1 MB, 12,300/s."""

from __future__ import annotations

from minirt.laboratory.statistics import Summary

_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def shown(value: float, unit: str) -> str:
    """A figure with its unit, in two or three digits."""
    if unit == "s":
        size, name = next(
            ((size, name) for size, name in _SECONDS if abs(value) >= size), (1e-3, "ms")
        )
        return f"{digits(value / size)} {name}"
    if unit == "bytes":
        size, name = next(((size, name) for size, name in _BYTES if value >= size), (1.0, "B"))
        return f"{digits(value / size)} {name}"
    if unit == "per s":
        return f"{digits(value)}/s"
    if unit == "share":
        return f"{value * 100:.0f} %"
    if unit == "cores":
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def digits(value: float) -> str:
    """Two digits below ten, three below a thousand, all above."""
    if value == 0:
        return "0"
    if abs(value) < 10:
        return f"{value:.2g}"
    return f"{value:,.0f}"


def with_spread(found: Summary, unit: str) -> str:
    """The median, and the least and the most of the runs if they are not all the same."""
    median, least, most = (shown(value, unit) for value in (found.median, found.least, found.most))
    return median if least == most else f"{median} ({least} to {most})"


def times(larger: float, smaller: float) -> str:
    """How many times as much."""
    return f"{digits(larger / smaller)} times"


def runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
