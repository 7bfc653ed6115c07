"""Plots drawn by matplotlib, and turned into SVG that a page can show in light and in dark.

Text stays text, in the font of the page. Standalone files keep their colours; on a page each colour is a
CSS variable, and ids are unique.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from minirt.laboratory.palette import ALL, GRID, INK, QUIET
from minirt.laboratory.wording import shown

WIDTH_IN = 5.4
"""Narrow, so that text is still read where a phone shrinks it to its width."""

_LEGEND_LINE_IN = 0.2

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "minirt",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK.light,
    "axes.edgecolor": QUIET.light,
    "axes.labelcolor": INK.light,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID.light,
    "grid.linewidth": 0.7,
    "xtick.color": QUIET.light,
    "ytick.color": QUIET.light,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
    "path.simplify_threshold": 0.3,
}


@contextmanager
def style() -> Iterator[None]:
    """All plots are made within."""
    with mpl.rc_context(_STYLE):
        yield


def panels(
    count: int, height_in: float = 2.2, *, share_x: bool = False
) -> tuple[Figure, list[Any]]:
    """A figure with so many plots, one below the other. It needs no display."""
    figure = Figure(figsize=(WIDTH_IN, height_in * count + 0.5))
    FigureCanvasSVG(figure)
    axes = figure.subplots(count, 1, squeeze=False, sharex=share_x)
    return figure, [row[0] for row in axes]


def in_units(axis: Any, unit: str) -> None:
    """Ticks as people read them: 10 ms, 1 MB."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))


def legend(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """Above the plots, which keep their height; in one column if the names are long."""
    columns = 1 if max(map(len, labels), default=0) > 24 else 2
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LEGEND_LINE_IN * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9)


def to_svg(figure: Figure, title: str) -> str:
    """A standalone file."""
    file = io.StringIO()
    figure.savefig(
        file,
        format="svg",
        transparent=True,
        metadata={"Date": None, "Creator": "minirt", "Title": title},
    )
    head, root, body = _split(file.getvalue())
    return f"{head}{root}\n {_PAPER}{body}"


def _split(svg: str) -> tuple[str, str, str]:
    """What is ahead of the root's tag, that tag, and what is behind it."""
    found = _ROOT.search(svg)
    if found is None:
        raise ValueError("matplotlib has written no SVG")
    return svg[: found.start()], found[0], svg[found.end() :]


_PAPER = '<rect width="100%" height="100%" fill="#ffffff"/>'
"""Behind a plot that stands alone: dark text needs it where a viewer is dark."""

_ROOT = re.compile(r"<svg\b[^>]*?viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_ID = re.compile(r'(\bid=")([^"]+)(")')
_REFERENCE = re.compile(r'(xlink:href="#|url\(#)([^")]+)')
_NUMBER = re.compile(r"(?<=[ \d.])(-?\d+\.\d{2})\d+")


def for_page(svg: str, name: str, title: str) -> str:
    """The same as a part of a page: without header, scaled to its place, coloured by the page."""
    body = "".join(_split(svg)[1:]).replace(_PAPER, "", 1)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<title>.*?</title>", "", body, count=1, flags=re.DOTALL)
    body = _ROOT.sub(
        lambda found: (
            f'<svg viewBox="{found[1]}" role="img" aria-label="{escape(title)}" '
            'xmlns:xlink="http://www.w3.org/1999/xlink">'
        ),
        body,
        count=1,
    )
    body = _ID.sub(rf"\g<1>{name}-\2\3", body)
    body = _REFERENCE.sub(rf"\g<1>{name}-\2", body)
    body = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--font)", body)
    for colour in ALL:
        body = re.sub(re.escape(colour.light), f"var(--{colour.name})", body, flags=re.IGNORECASE)
    return _NUMBER.sub(r"\1", body).strip()
