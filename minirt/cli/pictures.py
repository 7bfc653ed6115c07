"""What `minirt checkpoints picture` and `minirt simulate --picture` share: a picture into files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.pictures.timeline import Timeline

HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="A page with lanes, queues and moving barriers."),
]
SvgOption = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="A drawing for documents.")
]
PerfettoOption = Annotated[
    Path | None,
    typer.Option(
        "--perfetto", metavar="FILE", help="A trace for ui.perfetto.dev or chrome://tracing."
    ),
]


def check_one_svg(svg: Path | None, pictures: int) -> None:
    """Raise ConfigurationError if several pictures are to go into one drawing."""
    if svg is not None and pictures > 1:
        raise ConfigurationError("--svg holds one picture; give one --mode, or use --html")


def write_pictures(
    timelines: Sequence[Timeline], html: Path | None, svg: Path | None, perfetto: Path | None
) -> None:
    """Write the files that are wanted, and say in words what is in them."""
    from minirt.cli.tables import printable
    from minirt.pictures.page import page
    from minirt.pictures.perfetto import chrome_trace
    from minirt.pictures.svg import standalone
    from minirt.pictures.words import heading

    files: list[tuple[Path, str]] = []
    if html is not None:
        files.append((html, page(timelines)))
    if svg is not None:
        files.append((svg, standalone(timelines[0])))
    if perfetto is not None:
        files.append((perfetto, json.dumps(chrome_trace(timelines))))
    for path, content in files:
        path.write_text(content, encoding="utf-8")
    for timeline in timelines:
        typer.echo(printable(heading(timeline)))
        for line in in_words(timeline):
            typer.echo(printable(f"  {line}"))
    for path, _ in files:
        typer.echo(printable(f"written: {path}"))


def in_words(timeline: Timeline) -> list[str]:
    """The verdict, and the critical path."""
    from minirt.pictures.critical_path import critical_path
    from minirt.pictures.words import path_in_words, verdict

    path = critical_path(timeline)
    return [verdict(timeline, path), *(f"- {line}" for line in path_in_words(timeline, path))]
