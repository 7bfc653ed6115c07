"""`minirt checkpoints`: what a job has stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, open_storage
from minirt.cli.checkpoint_delete import delete_checkpoint
from minirt.cli.checkpoint_diff import diff_checkpoints
from minirt.cli.checkpoint_export import export_checkpoint
from minirt.cli.checkpoint_picture import picture
from minirt.cli.checkpoint_show import show
from minirt.cli.checkpoint_verify import verify_checkpoints
from minirt.cli.times import local_time

if TYPE_CHECKING:
    from minirt.protocol.reports import CheckpointReport

checkpoints = typer.Typer(
    help="Look at stored checkpoints.", no_args_is_help=True, rich_markup_mode=None
)


@checkpoints.callback()
def _checkpoints() -> None:
    """Look at stored checkpoints."""


@checkpoints.command("list")
def list_(storage: Storage, storage_option: StorageOption = None, json: Json = False) -> None:
    """List the checkpoints of a job, oldest first, those that failed or were deleted included.

    A job can be restored from those that are "kept"; an "orphan" was left behind by a restart.
    """

    reports = open_storage(storage, storage_option).history()
    if json:
        from json import dumps

        typer.echo(dumps([report.to_plain() for report in reports], indent=2))
        return
    from minirt.cli.checkpoint_table import print_checkpoints

    shown = {"mode": lambda r: r.mode, "begun": _begun, "stored": lambda r: r.stored}
    print_checkpoints("checkpoints", reports, shown)


def _begun(report: CheckpointReport) -> str:
    return local_time(report.triggered_at)


checkpoints.command("show")(show)
checkpoints.command("picture")(picture)
checkpoints.command("diff")(diff_checkpoints)
checkpoints.command("verify")(verify_checkpoints)
checkpoints.command("export")(export_checkpoint)
checkpoints.command("delete")(delete_checkpoint)
