"""One colour for each checkpoint mode, everywhere, in light and in dark, also for the colour-blind.

After M. Okabe and K. Ito, "Color Universal Design" (2008), darkened for white paper so that each has a
contrast of at least 3 to 1. Plots are drawn in the light colours; a page replaces each by a CSS variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minirt.laboratory.matrix import Setting


@dataclass(frozen=True, slots=True)
class Colour:
    """The name of its CSS variable, and its value in light and in dark."""

    name: str
    light: str
    dark: str


INK = Colour("ink", "#1c2127", "#e8eaed")
QUIET = Colour("quiet", "#5b6470", "#a3abb6")
GRID = Colour("grid", "#d9dde2", "#3a4149")

OF_MODE = {
    "aligned": Colour("aligned", "#0068a8", "#5eb1ef"),
    "unaligned": Colour("unaligned", "#c84f00", "#ff9a52"),
    "aligned_with_timeout": Colour("with-timeout", "#007a5a", "#3ecf9f"),
    "chandy_lamport": Colour("chandy-lamport", "#6b5b00", "#d6c34a"),
    "epoch": Colour("epoch", "#c0392b", "#ff8f80"),
    "at_least_once": Colour("at-least-once", "#a34b86", "#e596c8"),
}
OF_OTHERS = (
    Colour("other-1", "#7a5c00", "#e3c04b"),
    Colour("other-2", "#4a4fb3", "#a6abff"),
    Colour("other-3", "#5b6470", "#a3abb6"),
)
"""For modes of other packages, in the order in which they come."""

OF_PART = {
    "start_delay_s": Colour("start-delay", "#4477aa", "#7fb2e5"),
    "alignment_s": Colour("alignment", "#b8860b", "#f0c75e"),
    "sync_s": Colour("sync", "#aa3377", "#e889bd"),
    "async_s": Colour("async", "#228833", "#6ccb7b"),
}
"""For the parts of a checkpoint."""

ALL = (INK, QUIET, GRID, *OF_MODE.values(), *OF_OTHERS, *OF_PART.values())

LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True, slots=True)
class Style:
    """How a setting is drawn: the colour of its mode; settings of one mode differ by line and marker."""

    colour: Colour
    line: str
    marker: str


def styles(settings: Sequence[Setting]) -> tuple[Style, ...]:
    others = list(dict.fromkeys(one.mode for one in settings if one.mode not in OF_MODE))
    seen: dict[str, int] = {}
    found = []
    for one in settings:
        place = seen.get(one.mode, 0)
        seen[one.mode] = place + 1
        colour = OF_MODE.get(one.mode)
        if colour is None:
            colour = OF_OTHERS[others.index(one.mode) % len(OF_OTHERS)]
        found.append(Style(colour, LINES[place % len(LINES)], MARKERS[place % len(MARKERS)]))
    return tuple(found)
