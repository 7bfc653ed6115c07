"""`minirt host`: this machine works for a job of another one."""

from __future__ import annotations

import os
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
    wait: Annotated[str, typer.Option(help="How long to wait for the job to come up.")] = "60s",
) -> None:
    """Run workers of a job whose program runs on another host, until it ends.

    The job must have been given cluster=HostCluster(listen="HOST:PORT"). Modules of the job must be
    installed here as well, and its checkpoint storage must be reachable. The exit status is 0 once the
    job's program is gone, 2 if it refuses this host, and 1 if there is no such job.
    """
    from minirt.runtime.worker.agent import run_agent

    positive("--slots", slots)
    where = parse_address(coordinator, "--coordinator")
    if credentials is None and CREDENTIALS_VARIABLE not in os.environ:
        raise ConfigurationError(
            f"an agent needs the credentials of its job: give --credentials or {CREDENTIALS_VARIABLE}"
        )
    run_agent(where, lambda: _credentials(credentials), slots, address, seconds(wait, "--wait"))


def _credentials(path: str | None) -> Credentials:
    """Raises OSError if the file cannot be read."""
    from minirt.runtime.control.host_hello import Credentials

    if path is None:
        return Credentials.from_text(os.environ[CREDENTIALS_VARIABLE])
    with open(path) as file:
        return Credentials.from_text(file.read())
