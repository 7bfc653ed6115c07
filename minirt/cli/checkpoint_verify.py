"""`minirt checkpoints verify`."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, open_storage
from minirt.errors import CorruptCheckpointError, StorageError

if TYPE_CHECKING:
    from minirt.inspect import Checkpoints
    from minirt.protocol.manifest import ManifestKey


def verify_checkpoints(
    storage: Storage,
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Number, name or path of a checkpoint; all by default."
        ),
    ] = None,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Read one checkpoint, or all, and compare every checksum.

    The exit status is 0 if all is well, 1 if anything is missing or damaged, 2 if there is no checkpoint.
    """
    checkpoints = open_storage(storage, storage_option)
    keys = checkpoints.keys() if which is None else [checkpoints.key_of(which)]
    found = [_verified(checkpoints, key) for key in keys]
    if json:
        typer.echo(json_format.dumps(found, indent=2))
    else:
        _print(found)
    if any(each["problems"] for each in found):
        raise typer.Exit(1)


def _verified(checkpoints: Checkpoints, key: ManifestKey) -> dict[str, Any]:
    """The findings about one checkpoint: how many bytes of state were read, and what is wrong."""
    from minirt.cli.progress import progress

    read = 0
    try:
        checkpoint = checkpoints.open(key)
        with progress(f"checkpoint {key.checkpoint_id}", checkpoint.stored_bytes, "bytes") as show:

            def on_bytes(count: int) -> None:
                nonlocal read
                read += count
                show(read)

            problems: list[StorageError] = checkpoint.verify(on_bytes)
    except CorruptCheckpointError as error:
        problems = [error]
    return {
        "checkpoint_id": key.checkpoint_id,
        "generation": key.generation,
        "bytes_read": read,
        "problems": [{"path": error.path, "what": error.message} for error in problems],
    }


def _print(found: list[dict[str, Any]]) -> None:
    from minirt.cli.tables import printable

    for each in found:
        name = f"checkpoint {each['checkpoint_id']} of generation {each['generation']}"
        if not each["problems"]:
            typer.echo(f"{name}: {each['bytes_read']:,} bytes, all checksums are right")
        for problem in each["problems"]:
            typer.echo(printable(f"{name}: {problem['what']}: {problem['path']}"))
