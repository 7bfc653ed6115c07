"""Explores small jobs in every interleaving: `python -m tests.simulation.explore`.

One line for each job and mode; the last one counts all states. The exit status is 0 if nothing was
wrong and all was explored. `--mode` and `--job` pick some of them, `--large` takes larger ones; `--full`
follows also executions that differ from others only in the order of actions that do not touch each
other.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from minirt.modes import MODES
from minirt.protocol.families import TakesLocalSnapshots
from tests.simulation.small_jobs import SmallJob, explore_job

EXPLORED = sorted(name for name, mode in MODES.items() if not isinstance(mode, TakesLocalSnapshots))
"""Not those that go by a clock: an exploration has none."""


@dataclass(frozen=True)
class Plan:
    """What to explore of a job."""

    job: SmallJob
    checkpoints: int
    crashes: int
    queue_bytes: int = 64

    @property
    def name(self) -> str:
        narrow = " narrow" if self.queue_bytes == NARROW else ""
        return f"{self.job.name}, {self.checkpoints} checkpoints, {self.crashes} crashes{narrow}"


NARROW = 1
"""Queues of so many bytes hold one record."""

PLANS = (
    Plan(SmallJob("shuffle", 1, 2, 2), 1, 0),
    Plan(SmallJob("shuffle", 1, 2, 2), 1, 1),
    Plan(SmallJob("shuffle", 1, 2, 2), 2, 0),
    Plan(SmallJob("shuffle", 1, 3, 1), 1, 0, NARROW),
    Plan(SmallJob("shuffle", 2, 1, 1), 1, 0),
    Plan(SmallJob("shuffle", 2, 1, 2), 1, 0),
    Plan(SmallJob("forward", 1, 1, 1), 1, 1),
    Plan(SmallJob("broadcast", 1, 1, 2), 1, 1),
)

LARGE = (
    Plan(SmallJob("shuffle", 2, 1, 1), 1, 1),
    Plan(SmallJob("shuffle", 2, 1, 2), 1, 1),
    Plan(SmallJob("shuffle", 2, 2, 2), 1, 0),
    Plan(SmallJob("shuffle", 2, 2, 2), 2, 0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=EXPLORED, help="this one only")
    parser.add_argument("--job", default="", help="those whose line begins so")
    parser.add_argument("--states-max", type=int, default=1_000_000, help="for each line")
    parser.add_argument("--large", action="store_true", help="jobs with millions of states")
    parser.add_argument("--full", action="store_true", help="leave nothing out")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    states, failures, unfinished = 0, 0, 0
    for plan in LARGE if options.large else PLANS:
        if not plan.name.startswith(options.job):
            continue
        for mode in EXPLORED if options.mode is None else [options.mode]:
            result = explore_job(
                plan.job,
                mode,
                checkpoints=plan.checkpoints,
                crashes=plan.crashes,
                queue_bytes=plan.queue_bytes,
                states_max=options.states_max,
                reduced=not options.full,
            )
            states += result.states
            failures += result.violation is not None
            unfinished += result.violation is None and not result.complete
            print(f"{plan.name}, {mode}: {result.line()}", flush=True)
            if result.violation is not None:
                print(result.violation)
    print(f"states={states} failures={failures} unfinished={unfinished}")
    return 1 if failures or unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
