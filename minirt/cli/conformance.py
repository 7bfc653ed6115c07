"""`minirt conformance`: random jobs, faults and rescales against a checkpoint mode."""

from __future__ import annotations

import json as json_format
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from minirt.cli.live_line import LiveLine
    from minirt.protocol.barriers import CheckpointMode
    from minirt.testing.conformance.cases import Case, Run

RUNS = 2000


def conformance(
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE|sink", help="package.module:Mode, or a registered name; or the word sink."
        ),
    ],
    sink: Annotated[
        str | None,
        typer.Argument(
            metavar="[SINK]",
            help="After the word sink: package.module:factory.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help=f"How many; {RUNS} by default.", show_default=False)
    ] = None,
    start: Annotated[
        int | None, typer.Option(min=0, help="The first seed; 0 by default.", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; 1 by default.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Only this run, with its steps.")] = None,
    replay: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Only this case, with its steps.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Put a checkpoint mode to the test, or a sink.

    Simulates random jobs with crashes and rescales. Every completed checkpoint must be a consistent cut,
    and the output what the mode claims: exactly once, or at least once with repetitions only after a
    restart. The first case that fails is made smaller and shown.

    For a sink, `conformance sink package.module:factory`, the factory gives a SinkTrial. Random lives of
    its output are played, with crashes before and after every call, lost answers and replaced coordinators.

    The exit status is 0 if all is well, 1 if not, 2 if there is no such mode or sink.
    """
    from minirt.cli.conformance_sink import check
    from minirt.cli.console import console
    from minirt.testing.conformance.cases import Case, draw_case
    from minirt.testing.conformance.loading import load_mode

    if seed is not None and replay is not None:
        raise ConfigurationError("--seed and --replay each name the one case to run; give one")
    only = "--replay" if replay is not None else "--seed" if seed is not None else None
    for option, value in (("--runs", runs), ("--start", start), ("--jobs", jobs)):
        if only and value is not None:
            raise ConfigurationError(f"{option} has no effect with {only}, which runs one case")
    # As `python -m` does: a mode may lie in the current folder.
    sys.path.insert(0, os.getcwd())
    first = start or 0
    of_sink = _of_sink(mode, sink, jobs, first, runs, seed)
    if sink is not None and of_sink is not None:
        if not check(sink, of_sink, replay, json=json):
            raise typer.Exit(1)
        return
    if replay is not None:
        passed = _replay(Case.from_token(replay), load_mode(mode), json=json)
    elif seed is not None:
        passed = _replay(draw_case(seed), load_mode(mode), json=json)
    else:
        seeds = range(first, first + (runs or RUNS))
        out = console(stderr=json)
        passed = _campaign(out, mode, load_mode(mode), seeds, jobs or 1, json=json)
    if not passed:
        raise typer.Exit(1)


def _of_sink(
    mode: str, sink: str | None, jobs: int | None, first: int, runs: int | None, seed: int | None
) -> range | None:
    """The seeds to put a sink to the test with; None for a mode."""
    from minirt.cli.conformance_sink import SINK_RUNS

    if (mode == "sink") != (sink is not None):
        raise ConfigurationError(
            "name a mode, or the word sink and a factory: minirt conformance sink package.module:factory"
        )
    if sink is None:
        return None
    if jobs is not None:
        raise ConfigurationError("--jobs has no effect on a sink, whose place is one for all")
    return range(first, first + (runs or SINK_RUNS)) if seed is None else range(seed, seed + 1)


def _replay(case: Case, mode: CheckpointMode, *, json: bool) -> bool:
    from minirt.testing.conformance.cases import in_words, run_case
    from minirt.testing.conformance.report import case_to_plain, problems
    from minirt.testing.quiet import quiet

    with quiet():
        run = run_case(case, mode)
    if json:
        typer.echo(json_format.dumps(case_to_plain(run), indent=2))
    else:
        typer.echo("\n".join([*in_words(case), *run.result.trace, *problems(run)]))
    return not run.wrong


def _campaign(
    out: Console, name: str, mode: CheckpointMode, seeds: range, jobs: int, *, json: bool
) -> bool:
    from minirt.cli.live_line import LiveLine
    from minirt.cli.progress import progress
    from minirt.testing.conformance.campaign import Tally, campaign
    from minirt.testing.conformance.report import counterexample, summary, to_plain

    tally, smallest = Tally(), None
    with progress(f"mode {mode.name}", len(seeds), "runs") as show:
        for tally in campaign(partial(_run_seed, name), seeds, jobs=jobs):
            show(tally.runs)
            if tally.failures:
                break
    if tally.failures:
        line = LiveLine(out.file)
        try:
            smallest = _smallest(tally.failures[0], mode, line)
        finally:
            line.close()
    if json:
        typer.echo(json_format.dumps(to_plain(tally, smallest), indent=2))
        return smallest is None
    promise = "exactly once" if mode.exactly_once else "at least once"
    typer.echo(f"mode {mode.name}, which claims {promise}")
    typer.echo("\n".join(summary(tally, exactly_once=mode.exactly_once)))
    if smallest is None:
        typer.echo("passed")
        return True
    typer.echo("failed; the smallest case that was found to fail:")
    typer.echo("\n".join(counterexample(smallest)))
    typer.echo(f"replay it:\n  minirt conformance {name} --replay {smallest.case.token}")
    return False


def _smallest(failed: Run, mode: CheckpointMode, line: LiveLine) -> Run:
    from minirt.testing.conformance.cases import run_case
    from minirt.testing.conformance.shrink import shrink

    def show(runs: int, smallest: Case) -> None:
        line.update(f"{runs:,} runs to make the case of seed {failed.case.seed} smaller")

    return shrink(failed, partial(run_case, mode=mode), on_run=show)


def _run_seed(name: str, seed: int) -> Run:
    """Names the mode instead of taking it, so that other processes can make one."""
    from minirt.testing.conformance.cases import draw_case, run_case
    from minirt.testing.conformance.loading import load_mode

    return run_case(draw_case(seed), load_mode(name))
