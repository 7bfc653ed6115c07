"""`minirt run`: a job from its file, with options from outside, to its end."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Annotated

import typer

RestoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="latest|none|ID|PATH",
        help='What to start from: the newest checkpoint, one by id or path; "none" starts over.',
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option; can be given repeatedly."),
]
UrlOption = Annotated[str | None, typer.Option(metavar="URL", help="Where checkpoints are stored.")]
ParallelismOption = Annotated[
    int | None, typer.Option(help="Subtasks of each operator that states no number itself.")
]

IgnoreInFlightOption = Annotated[
    int | None,
    typer.Option(
        metavar="ID",
        help="Restore this checkpoint without its in-flight records: they are lost.",
    ),
]
GiveUpOutputOption = Annotated[
    str | None,
    typer.Option(
        metavar="UID@ID",
        help="Restore this checkpoint without the output that it holds of this sink: it is lost.",
    ),
]


def run(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB.PY[:ENV]",
            help="The Python file, and which Environment in it if there are several.",
        ),
    ],
    restore: RestoreOption = None,
    storage: UrlOption = None,
    mode: Annotated[str | None, typer.Option(help="Checkpoint mode, such as unaligned.")] = None,
    parallelism: ParallelismOption = None,
    name: Annotated[str | None, typer.Option(help="What to call the job.")] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A TOML file with options.")
    ] = None,
    set_: SetOption = None,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state", help="Drop restored state that no operator claims."
        ),
    ] = False,
    allow_restore_fallback: Annotated[
        bool,
        typer.Option("--allow-restore-fallback", help="Pass over damaged checkpoints."),
    ] = False,
    ignore_in_flight_data_of: IgnoreInFlightOption = None,
    give_up_output_of: GiveUpOutputOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; all else on standard error.")
    ] = False,
) -> None:
    """Run a job until it ends.

    The file defines an Environment; what it does below `if __name__ == "__main__":` is left out. Options
    come from its code, --config, environment variables MINIRT_..., and --set, where later ones count.
    Ctrl-C and SIGTERM cancel the job, or stop it with a savepoint: see options.on_signal. A second one ends
    it at once. What the job prints goes to standard output, all else to standard error.

    The exit status is 0 if the job finished or was stopped, 1 if it failed, 2 for a wrong call, and 130
    if it was cancelled, or 128 and the number of the signal that cancelled it.
    """
    from minirt.cli.run_job import execute, exit_status, to_plain
    from minirt.runtime.program.signals import SignalWatch
    from minirt.settings.build import read_settings

    flags: dict[str, object] = {
        "checkpointing.storage": storage,
        "checkpointing.mode": mode,
        "parallelism": parallelism,
        "name": name,
        "restore": restore,
        "allow_non_restored_state": allow_non_restored_state,
        "allow_restore_fallback": allow_restore_fallback,
        "ignore_in_flight_data_of": ignore_in_flight_data_of,
        "give_up_output_of": give_up_output_of,
    }
    given = read_settings(config, None, set_ or [], flags)
    prints = _prints_on_standard_error() if json else nullcontext()
    with SignalWatch() as watch, prints:
        result = execute(job, given, watch)
    if json:
        typer.echo(json_format.dumps(to_plain(result), indent=2))
    if status := exit_status(result, watch):
        raise typer.Exit(status)


@contextmanager
def _prints_on_standard_error() -> Iterator[None]:
    """Send what the job prints, also in its workers, to standard error, so that it does not mix with our
    JSON."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
