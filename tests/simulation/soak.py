"""A long campaign of simulated crashes: `python -m tests.simulation.soak --runs 20000`.

Every seed draws a job, a mode and what goes wrong; what the conformance kit does to one mode is done to
all that are built in. The last line counts it all; the exit status is 0 if nothing was wrong. `--seed N`
replays one seed and shows its trace.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from random import Random

from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.modes.epoch import Epoch
from minirt.protocol.barriers import CheckpointMode
from minirt.testing.conformance.campaign import Tally, campaign
from minirt.testing.conformance.cases import Run, draw_case, run_case


def run_seed(seed: int) -> Run:
    """Everything about a run comes from its seed."""
    return run_case(draw_case(seed), draw_mode(Random(f"mode {seed}")))


def draw_mode(random: Random) -> CheckpointMode:
    """A registered mode, with options that suit the pace of the simulated clock if it has any."""
    mode = MODES[random.choice(sorted(MODES))]
    if isinstance(mode, Epoch):
        return Epoch(random.choice((1, 1, 2, 5)))
    return draw_timeout(random) if isinstance(mode, AlignedWithTimeout) else mode


def draw_timeout(random: Random) -> AlignedWithTimeout:
    """Late or early, by age or by size or both."""
    timeout = random.choice((0.001, 0.01, 0.1, None))
    sizes = (1, 100, 1000)
    return AlignedWithTimeout(
        timeout=timeout,
        switch_below=random.choice(sizes if timeout is None else (None, *sizes)),
    )


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
    for tally in campaign(run_seed, range(options.start, options.start + options.runs)):
        for failed in tally.failures[reported:]:
            print(f"seed {failed.case.seed} ({failed.mode}): {'; '.join(failed.wrong)}", flush=True)
        reported = len(tally.failures)
        if tally.runs % 500 == 0:
            print(f"{time.monotonic() - began_at:.0f} s: {tally.line()}", flush=True)
    print(tally.line())
    return 1 if tally.failures else 0


def replay(seed: int) -> int:
    run = run_seed(seed)
    print("\n".join(run.result.trace))
    faults = dict(run.result.faults)
    print(f"seed {seed}, {run.mode}, faults {faults}: {run.wrong or 'all well'}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
