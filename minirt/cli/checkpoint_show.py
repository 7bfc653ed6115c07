"""`minirt checkpoints show`."""

from __future__ import annotations

import json as json_format
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, Which, open_storage


def show(
    storage: Storage,
    which: Which = "latest",
    storage_option: StorageOption = None,
    json: Json = False,
    handles: Annotated[
        bool, typer.Option("--handles", help="Also print each handle of a sink.")
    ] = False,
) -> None:
    """Show what a checkpoint holds, and how it went in each subtask.

    State is not read for it, so large checkpoints are shown as quickly as small ones.
    """
    from minirt.inspect.describe import describe

    checkpoints = open_storage(storage, storage_option)
    checkpoint = checkpoints.find(which)
    described = describe(checkpoint, output_is_committed=checkpoints.has_committed(checkpoint))
    if json:
        typer.echo(json_format.dumps(described, indent=2))
        return
    _print_head(described)
    _print_subtasks(described["subtasks"])
    _print_operators(described["operators"])
    _print_in_flight(described["in_flight"])
    _print_handles(
        described["sink_handles"], committed=described["output_is_committed"], whole=handles
    )


def _print_head(described: Mapping[str, Any]) -> None:
    from minirt.cli.checkpoint_table import duration
    from minirt.cli.tables import printable
    from minirt.cli.times import local_time

    counts = "" if described["counts"] else ", an orphan: a restart left it behind"
    in_flight = sum(channel["bytes"] for channel in described["in_flight"])
    lines = [
        f"checkpoint {described['checkpoint_id']} of job {described['job']}{counts}",
        f"  path        {described['path']}",
        f"  generation  {described['generation']}",
        f"  mode        {described['mode']}",
        f"  kind        {described['kind']}",
        f"  begun       {local_time(described['triggered_at'])}",
        f"  duration    {duration(described['duration_s'])}",
        f"  stored      {described['bytes']:,} bytes, {in_flight:,} of them in flight",
    ]
    lines += [f"  builds on   {parent}" for parent in described["parents"]]
    typer.echo("\n".join(map(printable, lines)))


def _print_subtasks(subtasks: list[dict[str, Any]]) -> None:
    from minirt.cli.checkpoint_table import duration
    from minirt.cli.tables import print_table

    times = ("start_delay_s", "alignment_s", "sync_s", "async_s", "acknowledged_after_s")
    sizes = ("state_bytes", "in_flight_bytes", "processed_bytes")
    columns = [
        *("operators", "subtask", "start delay", "alignment", "sync", "async", "acknowledged"),
        *("state bytes", "in-flight bytes", "processed bytes", "overtook"),
    ]
    vertices_of = Counter(name for name, _ in {(each["name"], each["vertex"]) for each in subtasks})
    rows = [
        [
            each["name"] if vertices_of[each["name"]] == 1 else f"{each['name']} ({each['uid']})",
            each["subtask"],
            *(duration(each[name]) for name in times),
            *(each[name] for name in sizes),
            "yes" if each["unaligned"] else "no",
        ]
        for each in subtasks
    ]
    print_table("how it went in each subtask", columns, rows)


def _print_operators(operators: list[dict[str, Any]]) -> None:
    from minirt.cli.tables import print_table

    columns = ("uid", "chain", "parallelism", "holds", "name", "entries", "bytes")
    print_table("operators", columns, _operator_rows(operators))


def _operator_rows(operators: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """A row for each thing that an operator holds; one for an operator that holds nothing."""
    for each in operators:
        operator = [each["uid"], each["vertex"], each["parallelism"]]
        for held in each["holds"]:
            yield [*operator, held["kind"], held["name"] or None, held["entries"], held["bytes"]]
        if each["unknown_bytes"]:
            yield [*operator, "unknown", None, None, each["unknown_bytes"]]
        elif not each["holds"]:
            yield [*operator, None, None, None, None]


def _print_in_flight(channels: list[dict[str, Any]]) -> None:
    from minirt.cli.tables import print_table

    columns = ("link", "partitioning", "sender", "receiver", "side", "records", "bytes")
    print_table("in flight", columns, [[each[name] for name in columns] for each in channels])


def _print_handles(held: list[dict[str, Any]], *, committed: bool, whole: bool) -> None:
    from minirt.cli.tables import print_table

    rows = [[each["uid"], each["subtask"], each["checkpoint_id"], each["handles"]] for each in held]
    columns = ("uid", "subtask", "prepared for")
    title = "output of sinks that it has committed"
    if not committed:
        title = "output of sinks, to be committed once the checkpoint is complete"
    if not whole:
        counts = [[*row[:-1], len(row[-1])] for row in rows]
        print_table(title, (*columns, "handles"), counts)
        return
    each_handle = [
        [*row[:-1], json_format.dumps(handle, ensure_ascii=False)]
        for row in rows
        for handle in row[-1]
    ]
    print_table(title, (*columns, "handle"), each_handle)
