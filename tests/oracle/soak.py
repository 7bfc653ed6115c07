"""A campaign: `python -m tests.oracle.soak --mode unaligned --parallelism 20 --runs 10`.

Draws topology, failures and options from a seed; several parallelisms are gone through by cancelling and
restoring. The last line counts; the exit status is 1 if anything was lost, duplicated, out of order or
invented that the mode does not allow, or if a job failed otherwise than planned.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import minirt as rt
from minirt.modes import MODES
from minirt.protocol.families import TakesLocalSnapshots
from tests.oracle.board import AT_START, HOOKS, Failure
from tests.oracle.running import TINY, Outcome, Plan, is_ordered, run
from tests.oracle.topologies import TOPOLOGIES

_PARALLELISMS = ((1,), (2,), (3,), (5,), (2, 5), (5, 2), (3, 1, 4), (3, 7), (7, 3))

_MANY = 6
"""From this parallelism on a worker has a subtask of each operator."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--mode", choices=sorted(MODES), nargs="+", default=sorted(MODES))
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), nargs="+")
    parser.add_argument("--parallelism", type=int, nargs="+", help="one after the other")
    parser.add_argument("--failures", type=int, help="how many in each run; drawn by default")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.runs):
        plan = _plan(random.Random(seed), seed, given)
        folder = Path(tempfile.mkdtemp(prefix="oracle-"))
        began = time.monotonic()
        outcome = run(plan, folder)
        wrong = _wrong(plan, outcome)
        counts += _counted(plan, outcome, bad=bool(wrong))
        print(f"seed {seed}: {_described(plan)}: {time.monotonic() - began:.1f} s", flush=True)
        if wrong:
            print(f"BAD {wrong}\n{plan}\n{outcome}\nkept {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    print(" ".join(f"{name}={counts[name]}" for name in _COUNTED))
    return 1 if counts["bad"] else 0


_COUNTED = (
    *("runs", "values", "checkpoints", "restarts", "restores", "recovered_bytes"),
    *("lost", "duplicated", "disordered", "invented", "unplanned", "bad"),
)


def _counted(plan: Plan, outcome: Outcome, *, bad: bool) -> Counter[str]:
    """Without what the mode and the topology allow."""
    exact = MODES[plan.mode].exactly_once
    state, output = outcome.state, outcome.output
    return Counter(
        runs=1,
        values=outcome.values,
        checkpoints=outcome.checkpoints,
        restarts=outcome.restarts,
        restores=len(plan.parallelism) - 1,
        recovered_bytes=outcome.recovered_bytes,
        lost=state.lost + output.lost,
        duplicated=(state.duplicated + output.duplicated) * exact,
        disordered=state.disordered * (exact and is_ordered(plan)),
        invented=(state.invented + output.invented) * exact,
        unplanned=len(outcome.unplanned),
        bad=bad,
    )


def _wrong(plan: Plan, outcome: Outcome) -> list[str]:
    return outcome.wrong(exactly_once=MODES[plan.mode].exactly_once, ordered=is_ordered(plan))


def _plan(chosen: random.Random, seed: int, given: argparse.Namespace) -> Plan:
    """Topologies and modes are gone through in turn, so that a campaign visits all."""
    topologies = given.topology or list(TOPOLOGIES)
    topology = TOPOLOGIES[topologies[seed % len(topologies)]]
    mode = given.mode[seed // len(topologies) % len(given.mode)]
    parallelism = tuple(given.parallelism or chosen.choice(_PARALLELISMS))
    if topology.ordered_by_place and isinstance(MODES[mode], TakesLocalSnapshots):
        parallelism = parallelism[:1]
    many = max(parallelism) >= _MANY
    placement: Literal["subtask", "slots"] = (
        "slots" if many else chosen.choice(["subtask", "slots"])
    )
    options = rt.Options(
        allow_pickle=True,
        placement=placement,
        transport=chosen.choice(["unix", "unix", "tcp"]),
        buffer_timeout=chosen.choice(["10ms", "10ms", "0s", "100ms"]),
        limits=replace(TINY, input_queue_bytes=chosen.choice([512, 2048, 4096])),
    )
    count = given.failures if given.failures is not None else chosen.randint(2, 6)
    return Plan(
        topology.name,
        mode,
        parallelism,
        tuple(_failure(chosen) for _ in range(count)),
        checkpoints=chosen.randint(1, 3),
        options=options,
    )


def _failure(chosen: random.Random) -> Failure:
    hook = chosen.choice(HOOKS[:-1])
    return Failure(
        hook,
        completed=0 if hook in AT_START else chosen.choice([0, 1, 1, 2, 3]),
        kill=hook != "commit" and chosen.random() < 0.3,
    )


def _described(plan: Plan) -> str:
    failures = [
        f"{'kill' if f.kill else 'fail'} in {f.hook} at {f.completed}" for f in plan.failures
    ]
    return f"{plan.topology} {plan.mode} {plan.parallelism}, {', '.join(failures)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
