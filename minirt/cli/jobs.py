"""`minirt jobs`, `cancel`, `savepoint`, `stop`, `rescale`: jobs that run on this machine."""

from __future__ import annotations

import json as json_format
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.errors import ConfigurationError, MinirtError

if TYPE_CHECKING:
    from minirt.operations.registry import Entry, Registry

_STATUS_S_MAX = 5.0

_JOB_HELP = "Its name, or how its id begins; see `minirt jobs`."
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=_JOB_HELP)]
JobOrOnlyOne = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help=_JOB_HELP, show_default="the only one that runs"),
]
ModeOption = Annotated[
    str | None, typer.Option(help="Checkpoint mode of the savepoint; that of the job by default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def jobs(json: JsonOption = False) -> None:
    """List your jobs that run on this machine, oldest first."""
    from minirt.operations.registry import Registry

    registry = Registry.of_user()
    rows = [row for entry in registry.entries() if (row := _row(registry, entry)) is not None]
    if json:
        typer.echo(json_format.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("no jobs are running")
        return
    from minirt.cli.tables import print_table
    from minirt.cli.times import local_time

    names = ("id", "name", "status", "restarts", "pid")
    print_table(
        "jobs",
        ("id", "name", "status", "restarts", "process", "since"),
        [
            [*(row[name] for name in names[:-1]), str(row["pid"]), local_time(row["started_at"])]
            for row in rows
        ],
    )


def cancel(job: JobArgument, json: JsonOption = False) -> None:
    """End a job now, without a last checkpoint."""
    answer = _ask(job, {"request": "cancel"})
    _say(answer, f"job {job} {answer['status']}", json=json)


def savepoint(
    job: JobArgument,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder or URL with nothing in it.")
    ],
    mode: ModeOption = None,
    json: JsonOption = False,
) -> None:
    """Take a savepoint of a job, which goes on."""
    answer = _ask(job, {"request": "savepoint", "path": _absolute(path), "mode": mode})
    _say(answer, f"savepoint: {answer['path']}", json=json)


def stop(
    job: JobArgument,
    savepoint: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where to; the job's own storage by default."),
    ] = None,
    mode: ModeOption = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="As if the input had ended: event time ends, too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """End a job with a savepoint, from which it can go on."""
    path = None if savepoint is None else _absolute(savepoint)
    answer = _ask(job, {"request": "stop", "path": path, "mode": mode, "drain": drain})
    _say(answer, f"job {job} has ended\nsavepoint: {answer['path']}", json=json)


def rescale(
    job: JobArgument,
    parallelism: Annotated[int, typer.Argument(metavar="N", help="The new parallelism.")],
    json: JsonOption = False,
) -> None:
    """Stop a job with a savepoint, and go on from there at another parallelism.

    The `minirt run` that runs the job loads its file anew and goes on. Operators that state their own
    parallelism keep it. Jobs that other programs started cannot be rescaled so.
    """
    answer = _ask(job, {"request": "rescale", "parallelism": parallelism})
    words = f"job {job} goes on at parallelism {parallelism}, from {answer['savepoint']}"
    _say(answer, words, json=json)


def _row(registry: Registry, entry: Entry) -> dict[str, Any] | None:
    """None if the job has ended."""
    from minirt.operations.control import ask

    try:
        path = registry.socket_path(entry)
        answer = ask(path, entry.token, {"request": "status"}, _STATUS_S_MAX)
    except (ConnectionRefusedError, FileNotFoundError):
        registry.remove(entry)
        return None
    except (OSError, MinirtError):
        answer = {"status": "no answer", "restarts": None, "metrics": None}
    return {
        "id": entry.id,
        "name": entry.name,
        "pid": entry.pid,
        "started_at": entry.started_at,
        **answer,
    }


def find_job(job: str) -> Entry:
    """The job of that name or id. Raises ConfigurationError if none or several fit."""
    from minirt.operations.registry import Registry

    return _find(job, Registry.of_user().entries())


def only_job() -> Entry:
    """The only job that runs. Raises ConfigurationError if there are none or several."""
    from minirt.operations.registry import Registry

    entries = Registry.of_user().entries()
    if len(entries) == 1:
        return entries[0]
    if not entries:
        raise ConfigurationError("no jobs are running")
    raise ConfigurationError(f"several jobs are running; name one: {_shown(entries)}")


def ask_job(entry: Entry, request: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
    """The answer of a job. Raises ConfigurationError if it has ended, MinirtError as the job did."""
    from minirt.operations.control import ask
    from minirt.operations.registry import Registry

    registry = Registry.of_user()
    try:
        return ask(registry.socket_path(entry), entry.token, request, timeout)
    except (ConnectionRefusedError, FileNotFoundError):
        registry.remove(entry)
        raise ConfigurationError(f"job {entry.name!r} ({entry.id}) has just ended") from None


def _ask(job: str, request: dict[str, Any]) -> dict[str, Any]:
    return ask_job(find_job(job), request)


def _find(job: str, entries: list[Entry]) -> Entry:
    found = [entry for entry in entries if entry.name == job]
    found = found or [entry for entry in entries if job and entry.id.startswith(job)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(
            f"several jobs are called {job!r}; give the id of one: {_shown(found)}"
        )
    running = f"running are {_shown(entries)}" if entries else "no jobs are running"
    raise ConfigurationError(f"there is no job {job!r}; {running}")


def _shown(entries: list[Entry]) -> str:
    return ", ".join(f"{entry.name} ({entry.id})" for entry in entries)


def _absolute(path: str) -> str:
    """The job may have another working directory."""
    return path if "://" in path else os.path.abspath(path)


def _say(answer: dict[str, Any], words: str, *, json: bool) -> None:
    typer.echo(json_format.dumps(answer, indent=2) if json else words)
