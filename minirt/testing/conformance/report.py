"""What the kit has found, for people and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minirt.testing.conformance.campaign import Tally
from minirt.testing.conformance.cases import Run, in_words

_LAST_STEPS = 40
_PROBLEMS = 3


def summary(tally: Tally, *, exactly_once: bool) -> Iterator[str]:
    """What was tried and what came of it, in a few lines."""
    yield (
        f"{tally.runs:,} runs, {tally.crash_runs:,} of them with crashes: {tally.restarts:,} restarts,"
        f" {tally.rescales:,} at another parallelism"
    )
    yield f"faults: {', '.join(f'{n:,} {kind}' for kind, n in sorted(tally.faults.items()))}"
    yield f"{tally.cuts:,} checkpoints looked into, {tally.in_flight:,} records in flight in them"
    twice = f"{tally.duplicated:,} duplicated"
    if not exactly_once:
        twice = f"{tally.repeated:,} repeated, which this mode may do after a restart"
    yield f"{tally.lost:,} records lost, {twice}"
    if tally.failures:
        seeds = ", ".join(str(run.case.seed) for run in tally.failures)
        yield f"{len(tally.failures):,} runs failed, those of the seeds {seeds}"


def counterexample(run: Run) -> Iterator[str]:
    """A case that failed: what it is, how it went, and what is wrong."""
    yield from (f"  {line}" for line in in_words(run.case))
    yield "the last steps:"
    yield from (f"  {line}" for line in run.result.trace[-_LAST_STEPS:])
    yield from problems(run)


def problems(run: Run) -> Iterator[str]:
    """What is wrong with a run, or that nothing is."""
    yield "what is wrong:" if run.wrong else "nothing is wrong"
    for problem in run.wrong[:_PROBLEMS]:
        yield from (f"  {line}" for line in problem.splitlines())
    if (more := len(run.wrong) - _PROBLEMS) > 0:
        yield f"  and {more} more"


def to_plain(tally: Tally, smallest: Run | None) -> dict[str, Any]:
    """Everything as what JSON can carry; `smallest` is the counterexample, if there is one."""
    figures = {name: value for name, value in vars(tally).items() if name != "failures"}
    return {
        "passed": not tally.failures,
        **figures,
        "failures": [
            {"seed": run.case.seed, "token": run.case.token, "wrong": run.wrong}
            for run in tally.failures
        ],
        "counterexample": None if smallest is None else case_to_plain(smallest),
    }


def case_to_plain(run: Run) -> dict[str, Any]:
    """One run as what JSON can carry, with all its steps."""
    return {
        "passed": not run.wrong,
        "token": run.case.token,
        "case": list(in_words(run.case)),
        "wrong": run.wrong,
        "steps": list(run.result.trace),
    }
