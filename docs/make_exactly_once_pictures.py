"""Writes the pictures of exactly-once.md.

Run it after a change here or of the colours:  python docs/make_exactly_once_pictures.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from blocks import update_files

from minirt.pictures.svg import asset

IMAGES = Path(__file__).parent / "images"
WIDTH, JOINED_PX = 360, 108
RECORD_PX, STEP_PX = 12, 16
STYLE = """
svg rect.box, svg rect.file { fill: var(--card); stroke: var(--queue); }
svg rect.file { stroke-dasharray: 4 3; }
svg rect.done { fill: var(--card); stroke: var(--done); stroke-width: 2; }
svg rect.before { fill: var(--async); }
svg rect.after { fill: var(--waiting); }
svg rect.held { fill: var(--capture); }
svg line.cut { stroke: var(--path); stroke-width: 3; }
svg line.flow { stroke: var(--queue); }
svg line.time { stroke: var(--ink); }
svg line.crash { stroke: var(--blocked); stroke-width: 2; stroke-dasharray: 3 3; }
svg text.mid { text-anchor: middle; }
svg text.strong { font-weight: 600; }
svg text.red { fill: var(--blocked); font-weight: 600; }
"""


def main() -> int:
    pictures = {
        "cut": drawn("What belongs to one checkpoint", 262, cut()),
        "commit": drawn("Output of a checkpoint, and crashes", 372, commit()),
        "barriers": drawn("Two ways to treat a barrier", 290, barriers()),
    }
    return update_files(
        {IMAGES / f"exactly-once-{name}.svg": picture for name, picture in pictures.items()}
    )


def cut() -> Iterator[str]:
    """Two sources, a sum and a sink; what lies ahead of the barriers is in the checkpoint."""
    yield from lane(66, "source A", "offset 5", before=3, after=4)
    yield from lane(150, "source B", "offset 3", before=2, after=3)
    yield from box(218, JOINED_PX - 24, 64, "sum", "8 records")
    yield line("flow", 282, JOINED_PX, 290, JOINED_PX)
    yield from box(290, JOINED_PX - 24, 64, "sink", "8 pending", "file")
    yield rectangle("before", 12, 192, RECORD_PX, RECORD_PX)
    yield text(32, 202, "ahead of the barriers: its effect is in the checkpoint", "small")
    yield rectangle("after", 12, 214, RECORD_PX, RECORD_PX)
    yield text(32, 224, "behind them: is read again after a crash", "small")
    yield line("cut", 18, 234, 18, 252)
    yield text(32, 247, "a barrier", "small")


def lane(y: int, name: str, offset: str, *, before: int, after: int) -> Iterator[str]:
    """A source and the records that it has sent, the newest first."""
    begin, end, barrier = 76, 218, 150
    yield from box(12, y - 24, begin - 12, name, offset)
    yield line("flow", begin, y, end, JOINED_PX)

    def height(x: float) -> float:
        return y + (JOINED_PX - y) * (x - begin) / (end - begin)

    for place in range(-after, before):
        kind = "after" if place < 0 else "before"
        x = barrier + STEP_PX * place + (6 if place >= 0 else -2)
        top = height(x + RECORD_PX / 2) - RECORD_PX / 2
        yield rectangle(kind, x, top, RECORD_PX, RECORD_PX)
    yield line("cut", barrier, height(barrier) - 16, barrier, height(barrier) + 16)


def commit() -> Iterator[str]:
    """The four steps of a commit, and what a restart does if the job dies between any two."""
    steps = (
        ("written", "to a pending file", "file"),
        ("stored", "with all snapshots", "file"),
        ("complete", "the manifest exists", "done"),
        ("visible", "the file has its name", "done"),
    )
    crashes = (
        ("crash 1", "the file is removed,", "its input is read again"),
        ("crash 2", "the same: without", "a manifest nothing counts"),
        ("crash 3", "the restart makes", "the file visible"),
    )
    yield line("time", 78, 40, 78, 360)
    for place, (name, what, kind) in enumerate(steps):
        yield from box(12, 44 + 88 * place, 132, name, what, kind)
    for place, (name, *means) in enumerate(crashes):
        y = 112 + 88 * place
        yield line("crash", 12, y, 160, y)
        yield text(168, y - 12, name, "red")
        for row, words in enumerate(means):
            yield text(168, y + 5 + 16 * row, words)


def barriers() -> Iterator[str]:
    """A subtask with two input queues: in one of them the barrier has come to the front."""
    for top, name, words in (
        (44, "aligned", "the upper queue waits for the other barrier"),
        (170, "unaligned", "barriers overtake, what they pass is stored"),
    ):
        yield text(12, top + 12, name, "strong")
        overtakes = name == "unaligned"
        for queue, ahead in enumerate((0, 4)):
            y = top + 36 + 32 * queue
            yield line("flow", 12, y, 268, y)
            for place in range(9):
                kind = "after" if place >= ahead else "held" if overtakes else "before"
                behind = overtakes or place >= ahead
                x = 248 - STEP_PX * place - (8 if behind else 0)
                yield rectangle(kind, x, y - RECORD_PX / 2, RECORD_PX, RECORD_PX)
            barrier = 260 if overtakes or not ahead else 254 - STEP_PX * ahead + 4
            yield line("cut", barrier, y - 12, barrier, y + 12)
        yield from box(268, top + 28, 84, "subtask", "")
        yield text(12, top + 102, words)


def drawn(title: str, height: int, parts: Iterator[str]) -> str:
    """An SVG file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" class="alone" aria-label="{escape(title)}">',
            f"<style>{asset('picture.css')}{STYLE}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            text(12, 24, title, "title"),
            *parts,
            "</svg>",
            "",
        ]
    )


def box(x: float, y: float, width: float, name: str, what: str, kind: str = "box") -> Iterator[str]:
    yield rectangle(kind, x, y, width, 48, 6)
    yield text(x + width / 2, y + (20 if what else 29), name, "mid strong")
    yield text(x + width / 2, y + 37, what, "mid small")


def rectangle(kind: str, x: float, y: float, width: float, height: float, radius: float = 2) -> str:
    place = f'x="{x:g}" y="{y:.4g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect class="{kind}" {place}/>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:.4g}" x2="{x2:g}" y2="{y2:.4g}"/>'


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


if __name__ == "__main__":
    sys.exit(main())
