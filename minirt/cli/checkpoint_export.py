"""`minirt checkpoints export`."""

from __future__ import annotations

import json as json_format
import sys
from enum import StrEnum
from typing import Annotated

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, Which, open_storage
from minirt.errors import ConfigurationError
from minirt.standard_streams import is_read


class What(StrEnum):
    """What can be exported."""

    state = "state"
    timers = "timers"
    splits = "splits"
    in_flight = "in-flight"


def export_checkpoint(
    storage: Storage,
    which: Which = "latest",
    to: Annotated[
        str, typer.Option(metavar="FILE", help="A new .parquet or .jsonl; - prints JSON Lines.")
    ] = "-",
    what: Annotated[What, typer.Option(help="What to write.")] = What.state,
    uid: Annotated[
        str | None, typer.Option(help="Only of this operator; in flight, to this one.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Only this state, or the timers of this time domain.")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Load pickles, which may run any code.")
    ] = False,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Write state, timers, splits or in-flight records of a checkpoint as Parquet or JSON Lines.

    Each row says where it is from. Values that have no common type are written to Parquet as JSON text;
    bytes are base64 in JSON; a pickle is only counted, unless --allow-pickle.
    """
    from minirt.cli.live_line import LiveLine
    from minirt.inspect.export import export, format_of, write_jsonl

    if json and to == "-":
        raise ConfigurationError("--json has no effect with --to -, which prints JSON Lines")
    if to != "-":
        format_of(to)
    checkpoint = open_storage(storage, storage_option, allow_pickle=allow_pickle).find(which)
    table = checkpoint.table(what.value, uid=uid, name=name)
    if to == "-":
        write_jsonl(table, sys.stdout.buffer, _end_if_unread)
        return
    line = LiveLine(sys.stderr)
    try:
        written = export(table, to, lambda count: line.update(f"{count:,} rows"))
    finally:
        line.close()
    if json:
        typer.echo(json_format.dumps({"file": to, "rows": written}, indent=2))
    else:
        typer.echo(f"wrote {written:,} rows to {to}")


def _end_if_unread(written: int) -> None:
    """The reader of the pipe has seen enough: the rest need not be read from storage."""
    if not is_read(sys.stdout):
        raise typer.Exit
