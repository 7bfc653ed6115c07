"""Tables for people on a terminal, plain aligned lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print the rows under their title; nothing if there are none. Numbers are aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return
    numeric = [
        all(_is_number(row[place]) for row in cells if row[place] != "-")
        for place in range(len(columns))
    ]
    if sys.stdout.isatty():
        _print_rich(title, columns, cells, numeric)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    typer.echo(f"\n{title}")
    for line in (columns, *cells):
        aligned = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        typer.echo("  " + "  ".join(aligned).rstrip())


def printable(text: str) -> str:
    """The text without what could steer a terminal: names in a checkpoint are not to be trusted."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def in_one_line(error: str) -> str:
    """What an error says first, and, of a traceback, last."""
    lines = error.strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1]}"


def _print_rich(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from minirt.cli.console import console

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console().print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if type(value) is int else printable(str(value))


def _is_number(text: str) -> bool:
    return text[:1].isdigit() and text.replace(",", "").partition(" ")[0].replace(".", "").isdigit()
