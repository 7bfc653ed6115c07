"""Writes the pictures of event-time.md, from what the snippets of that page give out.

Run it after changing the page:  python docs/make_window_pictures.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from blocks import update_files

from minirt.pictures.svg import asset

PAGE = Path(__file__).parent / "event-time.md"
IMAGES = Path(__file__).parent / "images"
USERS = ("ann", "bob")

SECOND_PX = 9.0
LABEL_PX, HEAD_PX, LANE_PX, BAR_PX, AXIS_PX = 60, 40, 96, 24, 30
END_S = 70
STYLE = """
svg circle, svg path.banner { fill: var(--async); }
svg circle.late { fill: none; stroke: var(--blocked); stroke-width: 2.5; }
svg rect.window { fill: var(--base); stroke: var(--async); }
svg rect.again { fill: var(--base); stroke: var(--blocked); stroke-width: 2; }
svg path.banner { fill: var(--sync); }
svg line.pair { stroke: var(--sync); stroke-width: 1.5; opacity: .6; }
svg text.mid { text-anchor: middle; }
"""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """A result of a window of a user: `again` if there was one before, `replaced` if there is one later."""

    user: str
    start_s: float
    end_s: float
    count: int
    again: bool
    replaced: bool


def pictures() -> dict[str, str]:
    """The pictures, by the names of their files."""
    known: dict[str, Any] = {}
    with redirect_stdout(StringIO()):
        exec("\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)), known)
    clicks = known["CLICKS"]
    late = [(row["user"], row["at"] / 1000) for row in known["late"].rows]
    banners = [*_banners(known["BANNERS"]), *_pairs(known["joined"], known["BANNERS"])]
    windows = {
        "windows": ("Windows of 20 seconds", "in_windows"),
        "late": ("Windows that stay open for 30 seconds more", "with_late"),
        "sessions": ("Sessions with a gap of 10 seconds", "sessions"),
    }
    drawn = {
        name: _drawn(title, clicks, late, _bars(known[results]))
        for name, (title, results) in windows.items()
    }
    title = "Banners at most 15 seconds before a click"
    return {**drawn, "join": _drawn(title, clicks, late, (), banners)}


def _bars(rows: Sequence[Row]) -> Iterator[Bar]:
    windows = [(row["user"], row["window_start"]) for row in rows]
    for place, (row, window) in enumerate(zip(rows, windows, strict=True)):
        start, end = (row[name].timestamp() for name in ("window_start", "window_end"))
        again, replaced = window in windows[:place], window in windows[place + 1 :]
        yield Bar(row["user"], start, end, row["clicks"], again, replaced)


def _banners(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        x, y = _x(row["at"] / 1000), _lane(row["user"]) + 16
        yield f'<path class="banner" d="M{x:g} {y - 8:g}l8 8l-8 8l-8 -8z"/>'
        yield f'<text x="{x + 12:g}" y="{y + 4:g}">{escape(row["banner"])}</text>'


def _pairs(rows: Iterable[Row], banners: Sequence[Row]) -> Iterator[str]:
    at = {(row["user"], row["banner"]): row["at"] / 1000 for row in banners}
    for row in rows:
        top, shown = _lane(row["user"]), at[row["user"], row["banner"]]
        ends = (
            f'x1="{_x(shown):g}" y1="{top + 24:g}" x2="{_x(row["at"] / 1000):g}" y2="{top + 56:g}"'
        )
        yield f'<line class="pair" {ends}/>'


def _drawn(
    title: str,
    clicks: Sequence[Row],
    late: Sequence[tuple[str, float]],
    bars: Iterable[Bar],
    more: Iterable[str] = (),
) -> str:
    """An SVG file: a lane for each user, event time to the right."""
    width, height = _x(END_S) + 20, HEAD_PX + LANE_PX * len(USERS) + AXIS_PX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" class="alone" '
            f'aria-label="{escape(title)}">',
            f"<style>{asset('picture.css')}{STYLE}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            f'<text class="title" x="12" y="24">{escape(title)}</text>',
            *_axis(height),
            *(f'<text x="12" y="{_lane(user) + 61:g}">{user}</text>' for user in USERS),
            *(line for bar in bars for line in _bar(bar)),
            *more,
            *(line for click in clicks for line in _click(click, late)),
            "</svg>",
            "",
        ]
    )


def _axis(height: float) -> Iterator[str]:
    for seconds in range(0, END_S + 1, 10):
        x = _x(seconds)
        yield f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{HEAD_PX}" y2="{height - AXIS_PX:g}"/>'
        yield f'<text class="tick mid" x="{x:g}" y="{height - 10:g}">{seconds} s</text>'


def _bar(bar: Bar) -> Iterator[str]:
    """A result that was given out once more lies in the right half of the one that it replaces."""
    length, inset = bar.end_s - bar.start_s, 4 if bar.again else 1
    begin = bar.start_s + (length / 2 if bar.again else 0)
    x, y = _x(begin) + inset, _lane(bar.user) + 4 + inset
    width, height = SECOND_PX * (bar.end_s - begin) - 2 * inset, BAR_PX - 2 * inset
    kind, count = ("again", f"then {bar.count}") if bar.again else ("window", f"{bar.count}")
    yield (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
    )
    at = bar.start_s + length * (0.75 if bar.again else 0.5 if not bar.replaced else 0.25)
    yield f'<text class="mid" x="{_x(at):g}" y="{_lane(bar.user) + 20:g}">{count}</text>'


def _click(click: Row, late: Sequence[tuple[str, float]]) -> Iterator[str]:
    seconds = click["at"] / 1000
    x, y = _x(seconds), _lane(click["user"]) + 57
    kind = ' class="late"' if (click["user"], seconds) in late else ""
    yield f'<circle{kind} cx="{x:g}" cy="{y:g}" r="6"/>'
    yield f'<text class="tick mid" x="{x:g}" y="{y + 20:g}">{seconds:g}</text>'


def _x(seconds: float) -> float:
    return LABEL_PX + SECOND_PX * seconds


def _lane(user: str) -> int:
    return HEAD_PX + LANE_PX * USERS.index(user)


def main() -> int:
    """Write them, or with `--check` on the command line only look; the exit status."""
    return update_files(
        {IMAGES / f"event-time-{name}.svg": drawn for name, drawn in pictures().items()}
    )


if __name__ == "__main__":
    sys.exit(main())
