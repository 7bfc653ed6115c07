"""Tables for people on a terminal, plain aligned lines in a pipe.

On a terminal nothing is cut: numbers stay whole, names are broken only where they are long, and columns
that find no room go into a further table below, which begins with columns that tell its rows apart. To lay
that out takes a millisecond or two a row, so long tables are plain lines there, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

_TEXT_CELLS = 24
"""Longer texts may be broken into pieces of at least this width."""
FITTED_ROWS_MAX = 300
GAP, EDGES = 2, 2
"""Cells between two columns, and beside the first and the last one, with this padding."""
PADDING = (0, 1, 0, 0)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    stderr: bool = False,
) -> None:
    """Print the rows under their title; nothing if there are none. Numbers are aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return
    numeric = [
        all(_is_number(row[place]) for row in cells if row[place] != "-")
        for place in range(len(columns))
    ]
    on_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    if on_terminal and len(cells) <= FITTED_ROWS_MAX:
        _print_rich(title, columns, cells, numeric, stderr=stderr)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    typer.echo(f"\n{title}", err=stderr)
    for line in (columns, *cells):
        aligned = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        typer.echo("  " + "  ".join(aligned).rstrip(), err=stderr)


def printable(text: str) -> str:
    """The text without what could steer a terminal: names in a checkpoint are not to be trusted."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def in_one_line(error: str) -> str:
    """The first line of an error, or the last one of a traceback."""
    lines = error.strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def _print_rich(
    title: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    *,
    stderr: bool,
) -> None:
    from minirt.cli.console import console

    out = console(stderr=stderr)
    for table in fitting(title, columns, cells, numeric, out.width):
        out.print(table)


def fitting(
    title: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    width: int,
) -> Iterator[Table]:
    """As many tables as it takes for all columns to fit into the width."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    narrowest, widest = [], []
    for place, name in enumerate(columns):
        of_column = [row[place] for row in cells]
        narrowest.append(_narrowest(name, of_column, width, number=numeric[place]))
        widest.append(max(len(name), *map(len, of_column)))
    for part in _parts(narrowest, _telling_apart(cells), width):
        widths = _widths(part, narrowest, widest, width)
        table = Table(
            box=SIMPLE_HEAD, pad_edge=False, padding=PADDING, title=title, title_justify="left"
        )
        for place, column in zip(part, widths, strict=True):
            side: Literal["left", "right"] = "right" if numeric[place] else "left"
            table.add_column(columns[place], justify=side, width=column, overflow="fold")
        for row in cells:
            table.add_row(*(row[place] for place in part))
        yield table
        title = ""


def _widths(
    part: Sequence[int], narrowest: Sequence[int], widest: Sequence[int], width: int
) -> list[int]:
    """The columns share the room beyond their narrowest widths in turn."""
    left = max(0, width - EDGES - GAP * (len(part) - 1) - sum(narrowest[place] for place in part))
    widths = []
    for place in part:
        more = min(left, widest[place] - narrowest[place])
        widths.append(narrowest[place] + more)
        left -= more
    return widths


def _narrowest(name: str, cells: Sequence[str], width: int, *, number: bool) -> int:
    """Heads are broken between words, numbers never, names if two do not fit side by side."""
    head = max(map(len, name.split()), default=1)
    longest = max(map(len, cells), default=0)
    if number:
        return max(head, longest)
    room = (width - EDGES - GAP) // 2
    words = (len(word) for cell in cells for word in cell.split())
    unbroken = max((word for word in words if word <= room), default=0)
    return max(head, unbroken, min(longest, _TEXT_CELLS))


def _parts(narrowest: Sequence[int], key: Sequence[int], width: int) -> list[list[int]]:
    """The places of the columns of each table; further ones begin with the key, if it leaves them room."""

    def room(part: Sequence[int]) -> int:
        return width - EDGES - GAP * (len(part) - 1) - sum(narrowest[place] for place in part)

    others = [cells for place, cells in enumerate(narrowest) if place not in key]
    if others and room(key) < GAP + max(others):
        key = [0]
    parts, begun = [[0]], 1
    for place in range(1, len(narrowest)):
        if place in parts[-1]:
            continue
        if len(parts[-1]) > begun and room(parts[-1]) < GAP + narrowest[place]:
            parts.append([*key])
            begun = len(key)
        if place not in parts[-1]:
            parts[-1].append(place)
    return parts


def _telling_apart(cells: Sequence[Sequence[str]]) -> list[int]:
    """The places of the first columns in which no two rows are alike; the first one if there are none."""

    def distinct(places: Sequence[int]) -> bool:
        return len({tuple(row[place] for place in places) for row in cells}) == len(cells)

    key: list[int] = []
    while not distinct(key):
        if len(key) == len(cells[0]):
            return [0]
        key.append(len(key))
    for place in key[1:-1]:
        fewer = [other for other in key if other != place]
        if distinct(fewer):
            key = fewer
    return key or [0]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if type(value) is int else printable(str(value))


def _is_number(text: str) -> bool:
    digits = text.replace(",", "").removesuffix("%").partition(" ")[0].replace(".", "")
    return text[:1].isdigit() and digits.isdigit()
