"""`minirt standby`: takes a job over when the program that runs it is gone."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from minirt.cli.arguments import StorageOption
from minirt.errors import ConfigurationError
from minirt.units import seconds


def standby(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help='Runs the job, with restore="latest".'),
    ],
    storage: Annotated[
        str, typer.Option(metavar="URL", help="Where the job stores its checkpoints.")
    ],
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="For how long the job may give no sign of life.",
            show_default="limits.lease_timeout_s of the job",
        ),
    ] = None,
    at_once: Annotated[
        bool,
        typer.Option("--at-once", help="Begin the job now if nothing says that it runs."),
    ] = False,
    storage_option: StorageOption = None,
) -> None:
    """Wait beside a running job, and start it anew when the program that runs it is gone.

    Write COMMAND behind `--`. It must run the same job with the same storage and restore="latest". It is
    started when the job has given no sign of life for the timeout, or when its program is known to be
    dead. Of several standbys one gets the job, and the others watch on. Signals are passed on to COMMAND.

    The exit status is 0 if the job has ended in an orderly way: finished, stopped or cancelled. It is 1 if
    the job has failed for good, and that of COMMAND if it has not even begun the job.
    """
    from minirt.config import Limits
    from minirt.operations.standby import Standby
    from minirt.settings.build import read_storage_options
    from minirt.storage.checkpoints import CheckpointStorage
    from minirt.storage.store import ObjectStore

    timeout_s = None if timeout is None else seconds(timeout, "--timeout")
    if timeout_s == 0:
        raise ConfigurationError("--timeout must be positive")
    if shutil.which(command[0]) is None:
        raise ConfigurationError(f"there is no command {command[0]!r}")
    limits, options = Limits(), read_storage_options(storage_option or ())
    store = ObjectStore(storage, options)
    if store.is_of_one_process:
        raise ConfigurationError(f"{store.root} is in the memory of one process")
    waiting = Standby(
        CheckpointStorage(store, limits.inline_snapshot_bytes),
        command,
        limits.lease_timeout_s,
        timeout_s,
        at_once,
        _say,
    )
    if status := waiting.run():
        raise typer.Exit(status)


def _say(line: str) -> None:
    print(f"minirt standby: {line}", file=sys.stderr, flush=True)
