"""`minirt checkpoints diff`."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, open_storage


def diff_checkpoints(
    storage: Storage,
    one: Annotated[str, typer.Argument(metavar="ID", help="Number, name or path of a checkpoint.")],
    other: Annotated[
        str,
        typer.Argument(metavar="[OTHER]", help="The same of another.", show_default="the latest"),
    ] = "latest",
    keys: Annotated[
        bool, typer.Option("--keys", help="Read both and count the keys that differ.")
    ] = False,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Show how two checkpoints differ: operators, sizes of state, and with --keys the keys.

    Either may be the path of a savepoint, or of a checkpoint in another storage. --keys keeps a digest
    of each key in memory. The exit status is 0, whether they differ or not.
    """
    from minirt.inspect.diff import diff

    checkpoints = open_storage(storage, storage_option)
    found = diff(checkpoints.find(one), checkpoints.find(other), keys=keys)
    if json:
        typer.echo(json_format.dumps(found, indent=2))
        return
    _print(found)


def _print(found: Mapping[str, Any]) -> None:
    from minirt.cli.tables import print_table

    figures = ("job", "checkpoint_id", "generation", "mode", "kind", "bytes")
    rows = [[name.replace("_", " "), *found[name]] for name in figures]
    rows.append(["duration", *(f"{seconds:.3f} s" for seconds in found["duration_s"])])
    rows.append(["in-flight records", *found["in_flight_records"]])
    rows.append(["in-flight bytes", *found["in_flight_bytes"]])
    print_table("checkpoints", ("", "one", "other"), rows)
    print_table(
        "operators with another parallelism; - if there is no such operator",
        ("uid", "one", "other"),
        [[uid, *both] for uid, both in found["operators"].items() if both[0] != both[1]],
    )
    columns = ["uid", "holds", "name", "entries", "in other", "bytes", "in other"]
    changes = [name for name in ("added", "removed", "changed") if name in _first(found["holds"])]
    print_table(
        "what operators hold",
        columns + changes,
        [
            [each["uid"], each["kind"], each["name"] or None, *each["entries"], *each["bytes"]]
            + [each[name] for name in changes]
            for each in found["holds"]
        ],
    )


def _first(rows: list[dict[str, Any]]) -> Mapping[str, Any]:
    return rows[0] if rows else {}
