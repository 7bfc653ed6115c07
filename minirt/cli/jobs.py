"""`minirt jobs`, `cancel`, `savepoint`, `stop`, `rescale`: running jobs, here or on other hosts."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from minirt.errors import ConfigurationError, MinirtError

_STATUS_S_MAX = 5.0

_JOB_HELP = "Its name, or how its id begins, see `minirt jobs`; or its URL, minirt://..."
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=_JOB_HELP)]
JobOrOnlyOne = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help=_JOB_HELP, show_default="the only one that runs"),
]
ModeOption = Annotated[
    str | None, typer.Option(help="Checkpoint mode of the savepoint; that of the job by default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def jobs(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]...",
            help="Jobs of other hosts, by minirt://HOST:PORT#FINGERPRINT.",
            show_default="your jobs on this machine",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List your jobs that run on this machine, oldest first, or those at URLs."""
    rows = _rows_at(urls) if urls else _rows_here()
    if json:
        typer.echo(json_format.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("no jobs are running")
        return
    from minirt.cli.tables import print_table
    from minirt.cli.times import local_time

    names = ["id", "name", "status", "restarts", "process", "since"]
    if reached := any(row["control"] for row in rows):
        names.append("reached by")
    cells = [
        [
            *(row[name] for name in ("id", "name", "status", "restarts")),
            *(str(row["pid"]), local_time(row["started_at"])),
            *([row["control"] or "-"] if reached else []),
        ]
        for row in rows
    ]
    print_table("jobs", names, cells)


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
    from minirt.operations.running import find_job

    running = find_job(job)
    answer = running.ask({"request": "savepoint", "path": running.path(path), "mode": mode})
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
    from minirt.operations.running import find_job

    running = find_job(job)
    path = None if savepoint is None else running.path(savepoint)
    answer = running.ask({"request": "stop", "path": path, "mode": mode, "drain": drain})
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


def _rows_here() -> list[dict[str, Any]]:
    from minirt.operations.exchange import JobHasEndedError
    from minirt.operations.registry import Registry
    from minirt.operations.running import LocalJob

    registry, rows = Registry.of_user(), []
    for entry in registry.entries():
        try:
            answer = LocalJob(entry, registry).ask({"request": "status"}, _STATUS_S_MAX)
        except JobHasEndedError:
            continue
        except (OSError, MinirtError):
            answer = {"status": "no answer", "restarts": None, "metrics": None}
        rows.append({**entry.told, **answer})
    return rows


def _rows_at(urls: list[str]) -> list[dict[str, Any]]:
    from minirt.operations.access import SCHEME, is_url
    from minirt.operations.running import find_job

    for url in urls:
        if not is_url(url):
            raise ConfigurationError(f"{url!r} is no URL of a job: it begins with {SCHEME}")
    return [find_job(url).ask({"request": "status"}, _STATUS_S_MAX) for url in urls]


def _ask(job: str, request: dict[str, Any]) -> dict[str, Any]:
    from minirt.operations.running import find_job

    return find_job(job).ask(request)


def _say(answer: dict[str, Any], words: str, *, json: bool) -> None:
    typer.echo(json_format.dumps(answer, indent=2) if json else words)
