"""A long campaign of simulated crashes: `python -m tests.simulation.soak --runs 20000`.

Every seed draws a job, a mode and what goes wrong. The last line counts it all; the exit status is 0 if
nothing was wrong. `--seed N` replays one seed and shows its trace.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import minirt as rt
from minirt.modes import MODES
from minirt.protocol.barriers import CheckpointMode
from minirt.testing import SimulationResult, simulate
from minirt.testing.conformance.graphs import Plan, Verdict, build, draw_plan, judge


@dataclass
class Tally:
    """What a campaign has seen."""

    runs: int = 0
    crash_runs: int = 0
    checkpoints: int = 0
    failed_checkpoints: int = 0
    restarts: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    duplicated: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        result, verdict = run.result, run.verdict
        self.runs += 1
        self.crash_runs += bool(result.restarts)
        self.checkpoints += result.checkpoints_completed
        self.failed_checkpoints += result.checkpoints_failed
        self.restarts += result.restarts
        self.steps += result.steps
        self.faults.update(result.faults)
        self.lost += verdict.lost
        self.duplicated += verdict.duplicated if run.exactly_once else 0
        wrong = [*result.problems, *verdict.wrong]
        if wrong:
            self.failures.append(f"seed {result.seed} ({run.mode}): {'; '.join(wrong)}")

    def line(self) -> str:
        kinds = " ".join(f"{kind}={count}" for kind, count in sorted(self.faults.items()))
        return (
            f"runs={self.runs} with_crashes={self.crash_runs} restarts={self.restarts} {kinds} "
            f"checkpoints={self.checkpoints} failed_checkpoints={self.failed_checkpoints} "
            f"lost={self.lost} duplicated={self.duplicated} failures={len(self.failures)}"
        )


@dataclass
class Run:
    mode: str
    exactly_once: bool
    result: SimulationResult
    verdict: Verdict


def run_seed(seed: int) -> Run:
    """Everything about a run comes from its seed."""
    random = Random(f"job {seed}")
    mode = MODES[random.choice(sorted(MODES))]
    return run_plan(draw_plan(random), seed, mode)


def run_plan(plan: Plan, seed: int, mode: CheckpointMode) -> Run:
    """A job of one's own choice, with whatever else the seed brings."""
    random = Random(f"checkpoints {seed}")
    job = build(plan)
    interval_s = random.choice((0.005, 0.02, 0.08))
    checkpointing = rt.Checkpointing(
        "simulated://",
        interval=interval_s,
        timeout=interval_s * random.choice((60, 300)),
        min_pause=interval_s * random.choice((0, 0.5)),
        mode=mode,
        retain=random.randint(1, 3),
        tolerable_failures=20,
    )
    first, *rescaled = job.forms
    result = simulate(first, seed=seed, checkpointing=checkpointing, rescaled=rescaled)
    return Run(mode.name, mode.exactly_once, result, judge(job, exactly_once=mode.exactly_once))


def campaign(seeds: range) -> Iterator[Tally]:
    """The tally after each run."""
    tally = Tally()
    for seed in seeds:
        tally.add(run_seed(seed))
        yield tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one and show its trace")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # Injected faults are reported many times a second.
    if options.seed is not None:
        return replay(options.seed)
    began_at, tally, reported = time.monotonic(), Tally(), 0
    for tally in campaign(range(options.start, options.start + options.runs)):
        for failure in tally.failures[reported:]:
            print(failure, flush=True)
        reported = len(tally.failures)
        if tally.runs % 500 == 0:
            print(f"{time.monotonic() - began_at:.0f} s: {tally.line()}", flush=True)
    print(tally.line())
    return 1 if tally.failures else 0


def replay(seed: int) -> int:
    run = run_seed(seed)
    print("\n".join(run.result.trace))
    wrong = [*run.result.problems, *run.verdict.wrong]
    print(f"seed {seed}, {run.mode}, faults {dict(run.result.faults)}: {wrong or 'all well'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
