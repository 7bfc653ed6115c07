"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.inspect import Checkpoints
    from minirt.operations.running import RunningJob

Storage = Annotated[
    str,
    typer.Argument(
        metavar="STORAGE",
        help="Path or URL that the job stores its checkpoints at; or the URL of the job, minirt://...",
    ),
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
    """The checkpoints at STORAGE, or those of the running job at a URL.

    Raises ConfigurationError for wrong options, and if there is nothing.
    """
    from minirt.inspect import open_checkpoints
    from minirt.operations.access import is_url
    from minirt.operations.running import find_job
    from minirt.settings.build import read_storage_options

    if is_url(storage):
        storage = storage_of(find_job(storage))
    given = read_storage_options(options or ())
    opened = open_checkpoints(storage, storage_options=given, allow_pickle=allow_pickle)
    opened.check_not_empty()
    return opened


def storage_of(job: RunningJob) -> str:
    """Where a job stores its checkpoints. Raises ConfigurationError if it stores none."""
    storage = job.ask({"request": "storage"})["storage"]
    if storage is None:
        raise ConfigurationError(
            f"job {job.name} stores no checkpoints, so there is nothing to see"
        )
    return str(storage)
