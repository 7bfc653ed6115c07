"""`minirt simulate`: a job in the simulator, to see what its checkpoints do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minirt.cli.pictures import HtmlOption, PerfettoOption, SvgOption
from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.pictures.timeline import Timeline
    from minirt.testing.result import SimulationResult

CHECKPOINTS = 5
MODE = "aligned"


def simulate(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB.PY[:ENV]",
            help="The Python file, and which Environment in it if there are several.",
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="What draws schedule, queues and pace.")] = 0,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="Checkpoint mode; can be given repeatedly.", show_default=MODE),
    ] = None,
    checkpoints: Annotated[
        int, typer.Option(min=1, help="It ends once so many are complete.")
    ] = CHECKPOINTS,
    parallelism: Annotated[
        int | None, typer.Option(help="In place of the one that the environment states.")
    ] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="Let workers, storage and coordinator fail.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print every step.")] = False,
    picture: Annotated[
        bool, typer.Option("--picture", help="Show what a checkpoint did, in words or in files.")
    ] = False,
    checkpoint: Annotated[
        int | None,
        typer.Option(min=1, metavar="ID", help="Which one; the one that took longest by default."),
    ] = None,
    html: HtmlOption = None,
    svg: SvgOption = None,
    perfetto: PerfettoOption = None,
) -> None:
    """Run a job in one thread, on simulated time, with a schedule that the seed draws.

    Sources are read; what sinks would write is kept in memory and thrown away. The same seed takes the same
    steps. Each mode begins with the same schedule, so pictures of several modes can be compared. The exit
    status is 1 if the simulation found a problem.
    """
    from minirt.cli.pictures import check_one_svg, write_pictures

    modes = mode or [MODE]
    for option, given in (
        ("--checkpoint", checkpoint),
        ("--html", html),
        ("--svg", svg),
        ("--perfetto", perfetto),
    ):
        if given is not None and not picture:
            raise ConfigurationError(f"{option} has no effect without --picture")
    check_one_svg(svg, len(modes))
    drawn: list[list[Timeline]] = []
    problems: list[str] = []
    for one in dict.fromkeys(modes):
        result, timelines = _simulated(job, one, seed, checkpoints, parallelism, faults=faults)
        if steps:
            typer.echo("\n".join(result.trace))
        typer.echo(
            f"mode {one}, seed {seed}: {result.checkpoints_completed} checkpoints completed, "
            f"{result.checkpoints_failed} failed, {result.restarts} restarts, {result.steps} steps"
        )
        problems += result.problems
        drawn.append(timelines)
    for problem in problems:
        typer.echo(f"problem: {problem}")
    if picture:
        write_pictures(_chosen(drawn, checkpoint), html, svg, perfetto)
    if problems:
        raise typer.Exit(1)


def _simulated(
    job: str, mode: str, seed: int, checkpoints: int, parallelism: int | None, *, faults: bool
) -> tuple[SimulationResult, list[Timeline]]:
    """The file is loaded anew, so that each mode finds it as it was."""
    from minirt.cli.job_file import load_environment
    from minirt.config import Checkpointing
    from minirt.pictures.timeline import timeline
    from minirt.testing import Faults
    from minirt.testing import simulate as run
    from minirt.testing.rehearsal import without_output

    graph = without_output(load_environment(job, parallelism).graph())
    result = run(
        graph,
        seed=seed,
        checkpointing=Checkpointing("simulated://", interval="20ms", mode=mode),
        faults=Faults() if faults else Faults.none(),
        trace=True,
        checkpoints_max=checkpoints,
    )
    return result, [timeline(trace) for trace in result.traces]


def _chosen(drawn: list[list[Timeline]], wanted: int | None) -> list[Timeline]:
    """The checkpoint of that number in each mode. Raises ConfigurationError if one has none."""
    ids = [{one.checkpoint_id for one in each} for each in drawn]
    common = set.intersection(*ids) if ids else set()
    if wanted is None and common:
        lengths = {one.checkpoint_id: 0.0 for each in drawn for one in each}
        for each in drawn:
            for one in each:
                lengths[one.checkpoint_id] = max(lengths[one.checkpoint_id], one.completed)
        wanted = max(common, key=lambda id: lengths[id])
    if wanted not in common:
        there = ", ".join(map(str, sorted(common))) or "none"
        asked = "there is no checkpoint" if wanted is None else f"there is no checkpoint {wanted}"
        raise ConfigurationError(
            f"{asked} that was completed and committed in every mode; there are: {there}"
        )
    return [one for each in drawn for one in each if one.checkpoint_id == wanted]
