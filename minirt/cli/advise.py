"""`minirt advise`: what to change about a job's checkpoints, from its own figures."""

from __future__ import annotations

import json as json_format
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.cli.arguments import Json, StorageOption, open_storage, storage_of

if TYPE_CHECKING:
    from minirt.advice.figures import Figures


def advise(
    what: Annotated[
        str,
        typer.Argument(
            metavar="STORAGE|JOB",
            help="Where a job stores its checkpoints, or a running job, also by URL; see `minirt jobs`.",
        ),
    ],
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Say what holds a job back, what its checkpoints wait for, and which option would change that.

    Each advice names the figures that it stands on. A healthy job gets none. docs/advice.md has the rules.
    """
    from minirt.advice.figures import figures
    from minirt.advice.rules import advise as rules

    checkpoints = open_storage(_storage_of(what), storage_option)
    known = figures(checkpoints.load(), checkpoints.history())
    found = rules(known)
    if json:
        typer.echo(json_format.dumps([asdict(each) for each in found], indent=2))
        return
    from minirt.cli.tables import printable

    for number, each in enumerate(found, 1):
        lines = [f"{number}. {each.title}", *(f"   seen: {line}" for line in each.evidence)]
        lines += [f"   set:  {each.option}"] if each.option else []
        typer.echo("\n".join(map(printable, [*lines, f"   why:  {each.effect}"])))
    if not found:
        typer.echo("nothing to advise")
    typer.echo(_known(known))


def _known(known: Figures) -> str:
    """What the advice, or the silence, stands on."""
    from minirt.pictures.words import duration

    took = f", {duration(known.duration_s)} each (median)" if known.completed else ""
    words = f"known: {len(known.completed)} of {len(known.checkpoints)} checkpoints completed{took}"
    if not known.load:
        return f"{words}; nothing of the load: the job ran for too short a time"
    figures = "one figure" if len(known.load) == 1 else f"{len(known.load)} figures"
    return f"{words}; {figures} of the load"


def _storage_of(what: str) -> str:
    """A folder or URL is one; all else is a job."""
    if "://" in what or os.path.exists(what) or os.sep in what:
        return what
    from minirt.operations.running import find_job

    return storage_of(find_job(what))
