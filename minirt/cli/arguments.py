"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from minirt.inspect import Checkpoints

Storage = Annotated[
    str,
    typer.Argument(metavar="STORAGE", help="Path or URL that the job stores its checkpoints at."),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An option of fsspec for the storage, such as endpoint_url; can be given repeatedly.",
    ),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="[ID]", help="Number, name or path of a checkpoint.", show_default="the latest"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def open_storage(
    storage: str, options: Sequence[str] | None, *, allow_pickle: bool = False
) -> Checkpoints:
    """The checkpoints at STORAGE. Raises ConfigurationError for wrong options, and if there is nothing."""
    from minirt.inspect import open_checkpoints
    from minirt.settings.build import read_storage_options

    given = read_storage_options(options or ())
    opened = open_checkpoints(storage, storage_options=given, allow_pickle=allow_pickle)
    opened.check_not_empty()
    return opened
