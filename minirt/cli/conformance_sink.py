"""`minirt conformance sink`: random lives of output, with crashes, against a sink."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING

import typer

from minirt.cli.progress import progress

if TYPE_CHECKING:
    from minirt.testing.sinks.trial import SinkTrial
    from minirt.testing.sinks.world import Outcome

SINK_RUNS = 500


def check(name: str, seeds: range, replay: str | None, *, json: bool) -> bool:
    """Play the lives of the seeds, or the one to replay; whether all went well."""
    from minirt.testing.conformance.loading import load_trial
    from minirt.testing.quiet import quiet
    from minirt.testing.sinks.lives import Life, draw_life
    from minirt.testing.sinks.shrink import shrink
    from minirt.testing.sinks.world import play

    trial = load_trial(name)
    try:
        with quiet():
            if replay is not None:
                return _show_one(play(Life.from_token(replay), trial), json=json)
            if len(seeds) == 1:
                return _show_one(play(draw_life(seeds[0]), trial), json=json)
            runs, faults, failed = _campaign(name, seeds, trial)
            smallest = None if failed is None else shrink(failed, trial)
    finally:
        trial.end()
    if json:
        figures = {"passed": smallest is None, "runs": runs, "faults": faults}
        found = None if smallest is None else _to_plain(smallest)
        typer.echo(json_format.dumps({**figures, "counterexample": found}, indent=2))
        return smallest is None
    typer.echo(f"sink {name}: {runs:,} lives, {faults:,} faults")
    if smallest is None:
        typer.echo("passed")
        return True
    typer.echo("failed; the smallest life that was found to fail:")
    _show(smallest)
    typer.echo(f"replay it:\n  minirt conformance sink {name} --replay {smallest.life.token}")
    return False


def _campaign(name: str, seeds: range, trial: SinkTrial) -> tuple[int, int, Outcome | None]:
    """How many lives were played, how many faults struck, and the first life that went wrong."""
    from minirt.testing.sinks.lives import draw_life
    from minirt.testing.sinks.world import play

    faults = 0
    with progress(f"sink {name}", len(seeds), "lives") as show:
        for runs, seed in enumerate(seeds, 1):
            outcome = play(draw_life(seed), trial)
            faults += outcome.faults
            if outcome.wrong:
                return runs, faults, outcome
            show(runs)
    return len(seeds), faults, None


def _show_one(outcome: Outcome, *, json: bool) -> bool:
    if json:
        typer.echo(json_format.dumps(_to_plain(outcome), indent=2))
    else:
        _show(outcome)
    return not outcome.wrong


def _show(outcome: Outcome) -> None:
    typer.echo("\n".join(f"  {line}" for line in outcome.trace))
    typer.echo("what is wrong:" if outcome.wrong else "nothing is wrong")
    for text in outcome.wrong:
        typer.echo(f"  {text}")


def _to_plain(outcome: Outcome) -> dict[str, object]:
    return {
        "passed": not outcome.wrong,
        "token": outcome.life.token,
        "steps": outcome.trace,
        "wrong": outcome.wrong,
    }
