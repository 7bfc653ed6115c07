"""`minirt history`: what happened to a job, as its storage remembers it."""

from __future__ import annotations

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, open_storage


def history(storage: Storage, storage_option: StorageOption = None, json: Json = False) -> None:
    """Show when a job ran, why it was restarted, how it ended, and its last figures.

    All this is remembered where the checkpoints are, also after the job has died. A job that was killed
    has no end. `minirt checkpoints list` shows the checkpoints.
    """
    events = open_storage(storage, storage_option).events()
    if json:
        from json import dumps

        typer.echo(dumps(events, indent=2))
        return
    from minirt.cli.tables import in_one_line, print_table
    from minirt.cli.times import local_time
    from minirt.monitoring.events import TOTALS

    if not events:
        typer.echo("nothing has happened yet")
        return
    print_table(
        f"what happened to {events[-1]['job']}",
        ("time", "event", "generation", "restarts", "cause"),
        [
            [
                *(local_time(event["at"]), event["event"], event["generation"], event["restarts"]),
                in_one_line(event.get("cause") or ""),
            ]
            for event in events
        ],
    )
    ended = [event for event in events if event.get("operators")]
    if ended:
        last = ended[-1]
        print_table(
            f"figures of generation {last['generation']}, which ended {last['event']}",
            ("operator", "chain", "subtasks", *(name.replace("_", " ") for name in TOTALS)),
            [
                [
                    *(operator[name] for name in ("operator", "name", "parallelism")),
                    *(_rounded(operator[name]) for name in TOTALS),
                ]
                for operator in last["operators"]
            ],
        )


def _rounded(number: float) -> object:
    return number if isinstance(number, int) else f"{number:.1f}"
