"""`minirt host`: this machine works for a job of another one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.clusters import CREDENTIALS_VARIABLE, parse_address
from minirt.errors import ConfigurationError
from minirt.units import positive, seconds

if TYPE_CHECKING:
    from minirt.runtime.control.host_hello import Credentials


def host(
    coordinator: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the job's program listens.")
    ],
    slots: Annotated[
        int, typer.Option(help="How many subtasks of each operator this host can run.")
    ],
    credentials: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"The file that the job has written; else the variable {CREDENTIALS_VARIABLE}.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="The address of this host that workers of others can reach; "
            "by default that from which it reaches the coordinator."
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Start before the job, and wait so long for its credentials and its program.",
        ),
    ] = None,
) -> None:
    """Run workers of a job whose program runs on another host, until it ends.

    The job must have been given cluster=HostCluster(listen="HOST:PORT"). Modules of the job must be
    installed here as well, and its checkpoint storage must be reachable. The exit status is 0 once the
    job's program is gone, 2 if it refuses this host or there are no credentials, and 1 if nobody who
    knows them listens there.
    """
    from minirt.runtime.worker.agent import run_agent

    positive("--slots", slots)
    where = parse_address(coordinator, "--coordinator")
    if where[1] == 0:
        raise ConfigurationError(
            "--coordinator: port 0 is nobody's; the job's program says its port"
        )
    wait_s = None if wait is None else seconds(wait, "--wait")
    if credentials is None and CREDENTIALS_VARIABLE not in os.environ:
        raise ConfigurationError(
            f"an agent needs the credentials of its job: give --credentials or {CREDENTIALS_VARIABLE}"
        )
    run_agent(where, lambda: _credentials(credentials), slots, address, wait_s, _say)


def _credentials(path: str | None) -> Credentials:
    """Raises FileNotFoundError, or ConfigurationError if there is a file that is of no use."""
    from minirt.runtime.control.host_hello import Credentials

    if path is None:
        return Credentials.from_text(os.environ[CREDENTIALS_VARIABLE])
    try:
        with open(path, errors="replace") as file:
            return Credentials.from_text(file.read())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"--credentials: cannot read {path}: {error.strerror}") from error


def _say(line: str) -> None:
    print(f"minirt host: {line}", file=sys.stderr, flush=True)
