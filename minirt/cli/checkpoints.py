"""`minirt checkpoints`: what a job has stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.storage.checkpoints import CheckpointStorage

checkpoints = typer.Typer(
    help="Look at stored checkpoints.", no_args_is_help=True, rich_markup_mode=None
)


@checkpoints.callback()
def _checkpoints() -> None:
    """Look at stored checkpoints."""


@checkpoints.command("list")
def list_(
    storage: Annotated[
        str, typer.Argument(metavar="STORAGE", help="Path or URL that the job stores them at.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the checkpoints of a job, oldest first, those that failed or were deleted included.

    A job can be restored from those that are "kept"; an "orphan" was left behind by a restart.
    """
    from minirt.config import Limits
    from minirt.storage.checkpoints import CheckpointStorage
    from minirt.storage.store import ObjectStore

    entries = stored_checkpoints(
        CheckpointStorage(ObjectStore(storage), Limits().inline_snapshot_bytes)
    )
    if json:
        from json import dumps

        typer.echo(dumps(entries, indent=2))
        return
    from minirt.cli.checkpoint_table import checkpoint_table
    from minirt.cli.console import console

    shown = {"mode": lambda e: e["mode"], "begun": _begun, "stored": lambda e: e["stored"]}
    console().print(checkpoint_table(entries, shown))


def stored_checkpoints(storage: CheckpointStorage) -> list[dict[str, Any]]:
    """The history, completed from the manifests, each entry with `stored`: kept, orphan, deleted or no.

    Raises ConfigurationError if no job has ever stored anything there, CorruptCheckpointError for a
    damaged history or manifest.
    """
    from minirt.protocol.checkpoints import history_entry
    from minirt.protocol.manifest import ManifestKey, restore_candidates

    keys, claims, entries = storage.manifest_keys(), storage.claims(), storage.history()
    if not (keys or claims or entries):
        raise ConfigurationError(f"{storage.store.root} holds no checkpoints")
    known = {ManifestKey(entry["checkpoint_id"], entry["generation"]) for entry in entries}
    # A coordinator may die between the manifest and the history.
    entries += [history_entry(storage.read_manifest(key)) for key in keys if key not in known]
    entries.sort(key=lambda entry: (entry["checkpoint_id"], entry["generation"]))
    kept = set(restore_candidates(keys, claims))

    def stored(entry: Mapping[str, Any]) -> str:
        key = ManifestKey(entry["checkpoint_id"], entry["generation"])
        if key in keys:
            return "kept" if key in kept else "orphan"
        return "deleted" if entry["status"] == "completed" else "no"

    return [{**entry, "stored": stored(entry)} for entry in entries]


def _begun(entry: Mapping[str, Any]) -> str:
    return f"{dt.datetime.fromtimestamp(entry['triggered_at']):%Y-%m-%d %H:%M:%S}"
