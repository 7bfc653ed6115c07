"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Storage = Annotated[
    str,
    typer.Argument(metavar="STORAGE", help="Path or URL that the job stores its checkpoints at."),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="[ID]", help="Number, name or path of a checkpoint.", show_default="the latest"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
