"""The conformance kit for checkpoint modes: random jobs, schedules, faults and rescales against a mode.

`minirt conformance package.module:Mode` on the command line, `check_mode` in a test.

Theory of operation. A seed draws a *case*: a job, and what goes wrong (`cases`, `graphs`). The simulator
runs it with the mode under test. Each completed checkpoint is read from its bytes and must be a
consistent cut (`cuts`, `stored`); the committed output must be what plain Python computes (`oracle`). A
case that fails is made smaller as long as it fails (`shrink`). `campaign` repeats all this for many
seeds.
"""

from __future__ import annotations

from functools import partial

from minirt.protocol.barriers import CheckpointMode
from minirt.testing.conformance.campaign import Tally, campaign
from minirt.testing.conformance.cases import Run, draw_case, run_case
from minirt.testing.conformance.report import counterexample
from minirt.testing.conformance.shrink import shrink

__all__ = ["check_mode", "Tally"]


def check_mode(mode: CheckpointMode, *, runs: int = 300, start: int = 0) -> Tally:
    """Put a mode to the test with the seeds from `start`; returns what was seen.

    Raises AssertionError with the smallest counterexample that was found.
    """

    def run_seed(seed: int) -> Run:
        return run_case(draw_case(seed), mode)

    tally = Tally()
    for tally in campaign(run_seed, range(start, start + runs)):
        if tally.failures:
            smallest = shrink(tally.failures[0], partial(run_case, mode=mode))
            raise AssertionError("\n".join(counterexample(smallest)))
    return tally
