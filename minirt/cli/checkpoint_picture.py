"""`minirt checkpoints picture`."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict

import typer

from minirt.cli.arguments import Json, Storage, StorageOption, Which, open_storage
from minirt.cli.pictures import HtmlOption, PerfettoOption, SvgOption
from minirt.errors import ConfigurationError
from minirt.wording import given


def picture(
    storage: Storage,
    which: Which = "latest",
    html: HtmlOption = None,
    svg: SvgOption = None,
    perfetto: PerfettoOption = None,
    storage_option: StorageOption = None,
    json: Json = False,
) -> None:
    """Draw what a checkpoint did: barriers, queues, blocked channels, and what it waited for.

    The job must have run with `--set options.trace=true`. Without a file, the critical path is printed.
    """
    from minirt.cli.pictures import write_pictures
    from minirt.pictures.critical_path import critical_path
    from minirt.pictures.timeline import timeline

    checkpoints = open_storage(storage, storage_option)
    checkpoint = checkpoints.find(which)
    trace = checkpoint.trace()
    if trace is None:
        raise ConfigurationError(
            f"checkpoint {checkpoint.id} has no trace: run the job with "
            f"{given('options.trace', True)}"
        )
    drawn = timeline(trace)
    if json:
        for option, file in (("--html", html), ("--svg", svg), ("--perfetto", perfetto)):
            if file is not None:
                raise ConfigurationError(
                    f"{option} has no effect with --json, which prints the path"
                )
        path = [asdict(step) for step in critical_path(drawn)]
        names = [lane.name for lane in drawn.lanes]
        plain = {"checkpoint_id": drawn.checkpoint_id, "duration_s": drawn.completed}
        typer.echo(json_format.dumps({**plain, "lanes": names, "path": path}, indent=2))
        return
    write_pictures([drawn], html, svg, perfetto)
