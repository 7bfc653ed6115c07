"""A campaign of real SIGKILLs: `python -m tests.runtime.soak --kills 50 --mode aligned`.

Runs small jobs of all kinds, kills workers, templates and whole coordinators at random moments, and
compares every output with the oracle. The last line counts; the exit status is 1 if anything was lost
or, in an exactly-once mode, duplicated.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.runtime.campaign import Outcome, Plan, compare, run
from tests.runtime.jobs import CASES

_EXACT = ["keyed", "postponed", "reduced", "united", "connected", "stateless", "dealt"]
_CASES = {
    "aligned": _EXACT,
    "unaligned": _EXACT,
    # Those whose records do not depend on state: with duplicates it may differ from the oracle's.
    "at_least_once": ["postponed", "united", "stateless", "sides"],
}
_COORDINATOR_SHARE = 0.25


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="stop after this many")
    parser.add_argument("--mode", choices=sorted(_CASES), default="aligned")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the jobs")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    chosen = random.Random(given.seed)
    runs, total = 0, Outcome(0, 0, 0, 0, 0)
    with _load(given.load):
        while total.kills < given.kills:
            runs += 1
            plan = _plan(chosen, given.mode)
            folder = Path(tempfile.mkdtemp(prefix="soak-"))
            on_coordinator = chosen.random() < _COORDINATOR_SHARE
            outcome = _kill_coordinator(plan, folder) if on_coordinator else run(plan, folder)
            total += outcome
            bad = outcome.lost or (outcome.duplicated and given.mode != "at_least_once")
            print(f"{'BAD ' if bad else ''}{plan} {outcome}", flush=True)
            if bad:
                print(f"kept {folder}", flush=True)
            else:
                shutil.rmtree(folder)
    print(
        f"{runs} runs, {total.kills} kills, {total.restarts} restarts, "
        f"{total.lost} lost, {total.duplicated} duplicated"
    )
    return 1 if total.lost or (total.duplicated and given.mode != "at_least_once") else 0


def _plan(chosen: random.Random, mode: str) -> Plan:
    kills = chosen.randint(2, 6)
    return Plan(
        chosen.choice(_CASES[mode]),
        mode,
        parallelism=chosen.randint(1, 3),
        placement=chosen.choice(["subtask", "slots"]),
        transport=chosen.choice(["unix", "unix", "tcp"]),
        kills=kills,
        template_kills=chosen.choice([0, 0, 1]),
        seed=chosen.randrange(1 << 30),
    )


def _kill_coordinator(plan: Plan, folder: Path) -> Outcome:
    """The same job as a script that is killed and started again."""
    chosen = random.Random(plan.seed)
    command = [sys.executable, "-m", "tests.runtime.script", str(folder)]
    command += ["--case", plan.case, "--mode", plan.mode, "--parallelism", str(plan.parallelism)]
    command += ["--placement", plan.placement, "--count", str(plan.count)]
    kills = 0
    for _ in range(plan.kills):
        with subprocess.Popen(command) as script:
            try:
                script.wait(chosen.uniform(0.8, 2.0))
            except subprocess.TimeoutExpired:
                kills += 1
                script.kill()
    subprocess.run(command, check=True, timeout=120)
    lost, duplicated = compare(CASES[plan.case], plan.count, plan.parallelism, folder)
    return Outcome(kills, kills, 0, lost, duplicated)


@contextmanager
def _load(processes: int) -> Iterator[None]:
    """Busy loops that take the processors away from the jobs."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], env=dict(os.environ))
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
