"""`minirt host`: this machine works for a job of another one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from minirt.clusters import CREDENTIALS_VARIABLE, parse_address
from minirt.errors import ConfigurationError
from minirt.units import positive, seconds

if TYPE_CHECKING:
    from minirt.runtime.control.host_hello import Credentials

_HAS_SERVED = "_MINIRT_HOST_HAS_SERVED"
"""The environment variable by which an agent knows that it has worked for a program before."""
_SUCCESSOR_S = 60.0
"""How long an agent without --wait looks for the program that takes the job over."""


def host(
    coordinator: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Where the job's program listens; of several addresses, each is tried in turn.",
        ),
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
    installed here as well, and its checkpoint storage must be reachable. The agent looks for the job's next
    program, for --wait or else a minute, when the job is rescaled; with several addresses, for a job with a
    standby, also if its program is gone or silent before the job is over. The exit status is 0 once the
    job's program is gone, 2 if it refuses this host or there are no credentials, and 1 if nobody who knows
    them listens there.
    """
    from minirt.runtime.worker.agent import NoCoordinatorError, run_agent

    positive("--slots", slots)
    where = [parse_address(one.strip(), "--coordinator") for one in coordinator.split(",")]
    if any(port == 0 for _, port in where):
        raise ConfigurationError(
            "--coordinator: port 0 is nobody's; the job's program says its port"
        )
    wait_s = None if wait is None else seconds(wait, "--wait")
    if credentials is None and CREDENTIALS_VARIABLE not in os.environ:
        raise ConfigurationError(
            f"an agent needs the credentials of its job: give --credentials or {CREDENTIALS_VARIABLE}"
        )
    has_served = os.environ.pop(_HAS_SERVED, None) is not None
    if has_served and wait_s is None:
        wait_s = _SUCCESSOR_S
    try:
        goes_on = run_agent(
            *(where, lambda: _credentials(credentials), slots, address, wait_s, _say)
        )
    except NoCoordinatorError as error:
        if not has_served:
            raise
        _say(f"nobody has taken the job over: {error}")
        return
    if goes_on:
        _look_for_another()


def _look_for_another() -> NoReturn:
    """The next program may run another version of the job: this process has loaded that of the last one."""
    _say("looks for the program that goes on with the job")
    os.environ[_HAS_SERVED] = "1"
    os.execv(sys.executable, sys.orig_argv)


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
