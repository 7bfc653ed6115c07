"""`minirt kafka`: what there is to know of jobs that read Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.arguments import Json, StorageOption, open_storage
from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt_connectors.kafka.lag import PartitionLag

kafka = typer.Typer(
    help="Look at jobs that read Kafka.", no_args_is_help=True, rich_markup_mode=None
)

_COLUMNS = ("topic", "partition", "end")


@kafka.callback()
def _kafka() -> None:
    """Look at jobs that read Kafka."""


@kafka.command()
def lag(
    bootstrap: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The brokers, as host:port,host:port.")
    ],
    storage: Annotated[
        str | None,
        typer.Argument(
            metavar="[STORAGE]",
            help="Path or URL that the job stores its checkpoints at.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The consumer group that a source writes for."),
    ] = None,
    uid: Annotated[
        str | None, typer.Option(metavar="UID", help="Only this source; all by default.")
    ] = None,
    client_options: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Options of librdkafka, a line name=value each."),
    ] = None,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Show how far each partition is ahead of the newest checkpoint, of a consumer group, or of both.

    A lag is the number of offsets from there to the end that readers with read_committed see.
    """
    if storage is None and group is None:
        raise ConfigurationError("give the storage of a job, --group, or both")
    if storage is None and (uid is not None or storage_option):
        named = "--uid" if uid is not None else "--storage-option"
        raise ConfigurationError(f"{named} has no effect without the storage of a job")
    from minirt_connectors.kafka.lag import kafka_lag, read_options

    options = read_options(client_options)
    checkpoints = None if storage is None else open_storage(storage, storage_option)
    found = kafka_lag(bootstrap, checkpoints, group=group, uid=uid, options=options)
    shown = (storage is not None, group is not None)
    if json:
        from json import dumps

        typer.echo(dumps([_plain(one, *shown) for one in found], indent=2))
        return
    _print(found, *shown)


def _plain(lag: PartitionLag, checkpoint: bool, group: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {name: getattr(lag, name) for name in _COLUMNS}
    if checkpoint:
        plain |= {"uid": lag.uid, "checkpoint": lag.checkpoint, "lag": lag.checkpoint_lag}
    if group:
        plain |= {"group": lag.group, "group_lag": lag.group_lag}
    return plain


def _print(found: list[PartitionLag], checkpoint: bool, group: bool) -> None:
    from minirt.cli.tables import print_table

    rows = [_plain(lag, checkpoint, group) for lag in found]
    first = ("uid",) if checkpoint else ()
    names = (*first, *(name for name in rows[0] if name != "uid"))
    titles = [name.replace("_", " ") for name in names]
    print_table("lag", titles, [[row[name] for name in names] for row in rows])
    for title, lags in (
        ("behind the newest checkpoint", [one.checkpoint_lag for one in found if checkpoint]),
        ("behind the group", [one.group_lag for one in found if group]),
    ):
        if lags:
            unknown = lags.count(None)
            more = f", and {unknown} without an offset" if unknown else ""
            typer.echo(f"{title}: {sum(lag or 0 for lag in lags):,}{more}")
