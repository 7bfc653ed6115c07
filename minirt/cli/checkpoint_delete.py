"""`minirt checkpoints delete`."""

from __future__ import annotations

import json as json_format
import sys
from typing import Annotated

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, open_storage
from minirt.errors import ConfigurationError


def delete_checkpoint(
    storage: Storage,
    which: Annotated[str, typer.Argument(metavar="ID", help="Number or name of a checkpoint.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even the newest, from which the job would go on.")
    ] = False,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Delete a checkpoint or savepoint that no other checkpoint builds on.

    A job that runs deletes its old checkpoints itself, and never a savepoint. Output that this checkpoint
    has prepared and that was not committed is lost with it: see `show`. The files of the newest one are
    left to the next clean-up of the job: a job that runs may be building on them.
    """
    from minirt.storage.deletion import delete, plan_deletion

    checkpoints = open_storage(storage, storage_option)
    key = checkpoints.key_of(which)
    planned = plan_deletion(checkpoints.storage, key, force=force)
    what = (
        f"checkpoint {key.checkpoint_id} of generation {key.generation} in {checkpoints.root}: "
        f"{len(planned.files)} files, {planned.bytes:,} bytes"
    )
    if not yes:
        if json or not sys.stdin.isatty():
            raise ConfigurationError(f"--yes is needed where nobody can be asked, to delete {what}")
        typer.confirm(f"Delete {what}?", abort=True)
    delete(checkpoints.storage, planned)
    if json:
        deleted = {"checkpoint_id": key.checkpoint_id, "generation": key.generation}
        typer.echo(
            json_format.dumps(
                {
                    **deleted,
                    "files": list(planned.files),
                    "bytes": planned.bytes,
                    "left": list(planned.left),
                },
                indent=2,
            )
        )
    else:
        typer.echo(f"deleted {what}")
        if planned.left:
            typer.echo(f"{len(planned.left)} files are left to the next clean-up of the job")
