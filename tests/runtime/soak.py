"""A campaign of real SIGKILLs: `python -m tests.runtime.soak --mode uncoordinated --kills 100`.

Runs small jobs of all kinds in each mode that is named, or in all, and kills workers, templates and whole
programs at random moments, most of them behind new checkpoints. Sources read on only as kills come, so
none strikes a job that has nothing left to do. Every output is compared with an oracle, and so is what
comes of each savepoint that was taken meanwhile. A run is given up when it stands still, however
long it takes on a busy machine.

A run that dealt fewer kills than it was to says so, and its kills do not count. There is a line for each
mode in the end, and with `--json` an object. The exit status is 1 if anything was lost or, in an
exactly-once mode, duplicated, or if a run did not come to its end; 2 if too little was seen in a mode to
tell.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from minirt import Checkpointing, Environment
from tests.program_kills import Striker, Struck, newest_checkpoint, run_to_its_end
from tests.runtime.campaign import compare, read_files, write_files
from tests.runtime.jobs import CASES, bag, build
from tests.runtime.kill_settings import SETTINGS, Setting
from tests.runtime.script import ALLOWANCE, SAID
from tests.warm_processes import warm_processes

_PROGRAM = "import sys\nfrom tests.runtime.script import main\nmain(sys.argv[1:])"
_KILLS = (3, 6)
"""Of one run, at least and at most."""
_NUMBERS_PER_KILL = 300
_PER_SECOND = 400.0
_VAIN_RUNS_MAX = 5
"""So many runs in a row that do not count end the campaign of a mode."""


@dataclass(frozen=True)
class Plan:
    """One run: a job, how it is placed, and how many to kill."""

    case: str
    parallelism: int
    placement: str
    transport: str
    kills: int
    seed: int

    @property
    def count(self) -> int:
        return _NUMBERS_PER_KILL * (self.kills + 1)


@dataclass(frozen=True)
class Seen:
    """What came of runs in one mode. Lost and duplicated are numbers of output records."""

    runs: int = 0
    struck: Struck = field(default_factory=Struck)
    """In the runs that count."""
    uncounted: int = 0
    """Runs that dealt fewer kills than they were to."""
    restarts: int = 0
    comebacks: int = 0
    savepoints: int = 0
    at_once: int = 1
    """How many checkpoints were under way together at most."""
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    """Runs that did not come to their end."""

    def __add__(self, other: Seen) -> Seen:
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__dataclass_fields__
            if name != "at_once"
        }
        return Seen(**sums, at_once=max(self.at_once, other.at_once))

    def wrong(self, setting: Setting) -> bool:
        """Whether the mode has broken its promise."""
        return bool(self.lost or self.stuck or (self.duplicated and not setting.may_repeat))

    def shows_little(self, setting: Setting, wanted: int) -> str | None:
        """Why nothing follows from it, if nothing is wrong."""
        if self.struck.kills < wanted:
            return f"{self.struck.kills} kills were dealt of {wanted}"
        if setting.scope != "job" and not self.comebacks:
            return "no worker came back alone"
        if setting.max_concurrent > 1 and self.at_once < 2:
            return "no checkpoints overlapped"
        if setting.savepoints and not self.savepoints:
            return "no savepoint was taken"
        return self.struck.shows_little


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="in each mode")
    parser.add_argument("--mode", choices=sorted(SETTINGS), nargs="+", default=list(SETTINGS))
    parser.add_argument("--case", choices=sorted(CASES), help="the one job to run")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the jobs")
    parser.add_argument("--json", help="write the counts to this file, - for standard output")
    given = parser.parse_args(arguments)
    told = sys.stderr if given.json == "-" else sys.stdout
    print(f"seed {given.seed}", file=told, flush=True)
    os.environ["PYTHONFAULTHANDLER"] = "1"  # Workers say where they are, see `run_to_its_end`.
    rows = []
    with warm_processes(), _load(given.load):
        for name in given.mode:
            setting, chance = SETTINGS[name], random.Random(f"{given.seed} {name}")
            if given.case is not None:
                setting = replace(setting, cases=(given.case,))
            seen = Seen()
            for plan, outcome in campaign(name, setting, given.kills, chance):
                seen += outcome
                print(f"  {name}: {plan} {_described(outcome)}", file=told, flush=True)
            rows.append(_row(name, setting, seen, given.kills))
            print(f"{name}: {rows[-1]['verdict']}: {_described(seen)}", file=told, flush=True)
    if given.json is not None:
        text = json.dumps({"seed": given.seed, "modes": rows}, indent=1) + "\n"
        sys.stdout.write(text) if given.json == "-" else Path(given.json).write_text(text)
    return max(row["status"] for row in rows)


def campaign(
    name: str, setting: Setting, kills: int, chance: random.Random
) -> Iterator[tuple[Plan, Seen]]:
    """Runs in one mode until so many kills count, one run is wrong, or too many are in vain."""
    left, vain = kills, 0
    while left > 0 and vain < _VAIN_RUNS_MAX:
        plan = _plan(chance, setting)
        folder = Path(mkdtemp(prefix="soak-"))
        outcome = _run(name, setting, plan, folder)
        yield plan, outcome
        if outcome.wrong(setting):
            print(f"BAD {name}: {plan}, kept {folder}", file=sys.stderr, flush=True)
            return
        shutil.rmtree(folder)
        left -= outcome.struck.kills
        vain = vain + 1 if outcome.uncounted else 0


def _plan(chance: random.Random, setting: Setting) -> Plan:
    return Plan(
        chance.choice(setting.cases),
        parallelism=chance.randint(1 if setting.scope == "job" else 2, 3),
        # With slots a worker hosts who sends to it, so none comes back alone.
        placement=chance.choice(["subtask", "slots"]) if setting.scope == "job" else "subtask",
        transport=chance.choice(["unix", "unix", "tcp"]),
        kills=chance.randint(*_KILLS),
        seed=chance.randrange(1 << 30),
    )


def _run(name: str, setting: Setting, plan: Plan, folder: Path) -> Seen:
    """A script that runs the job is killed, or what it has started is, and started again."""
    chance, storage = random.Random(plan.seed), folder / "checkpoints"
    striker = Striker(storage, plan.kills, chance)

    def allow() -> None:
        """A part of the input for each kill, and the last one behind all of them."""
        whole = folder / f"{ALLOWANCE}.new"
        whole.write_text(str(_NUMBERS_PER_KILL * (striker.so_far.kills + 1)))
        whole.replace(folder / ALLOWANCE)

    def strike(program: object) -> None:
        before = striker.so_far.kills
        striker.strike(program)  # type: ignore[arg-type]
        if striker.so_far.kills > before:
            allow()

    def progress() -> object:
        """Kills wait for checkpoints; once they are over, only output is progress."""
        written = sum(file.stat().st_size for file in folder.glob("*/*.jsonl"))
        newest = 0 if striker.done else newest_checkpoint(storage)
        return striker.so_far.kills, newest, written

    arguments = [str(folder), "--setting", name, "--case", plan.case, "--allowance"]
    arguments += ["--parallelism", str(plan.parallelism), "--placement", plan.placement]
    arguments += ["--transport", plan.transport, "--count", str(plan.count)]
    arguments += ["--per-second", str(_PER_SECOND)]
    allow()
    try:
        run_to_its_end(_PROGRAM, arguments, storage, chance, strike, progress)
    except AssertionError as error:
        print(error, file=sys.stderr, flush=True)
        return Seen(runs=1, stuck=1)
    return _judged(plan, folder, striker)


def _judged(plan: Plan, folder: Path, striker: Striker) -> Seen:
    """Of a run that has come to its end."""
    said = [json.loads(line) for line in (folder / SAID).read_text().splitlines()]
    case = CASES[plan.case]
    lost, duplicated = compare(case, plan.count, plan.parallelism, folder)
    savepoints = [one for one in said if "savepoint" in one]
    for one in savepoints:
        more = _compare_savepoint(plan, folder, one["savepoint"], one["checkpoint"])
        lost, duplicated = lost + more[0], duplicated + more[1]
    counts = striker.done
    return Seen(
        runs=1,
        struck=striker.struck() if counts else Struck(),
        uncounted=int(not counts),
        restarts=sum(one.get("restarts", 0) for one in said),
        comebacks=sum(one.get("comebacks", 0) for one in said),
        savepoints=len(savepoints),
        at_once=max((one.get("at_once", 1) for one in said), default=1),
        lost=lost,
        duplicated=duplicated,
    )


def _compare_savepoint(plan: Plan, folder: Path, name: str, checkpoint_id: int) -> tuple[int, int]:
    """What was lost and duplicated in a savepoint, by what another job makes of it.

    Its output, and what the job had put out by then, is all that there should be."""
    case, restored = CASES[plan.case], folder / "restored" / name
    env = Environment(case.name, parallelism=plan.parallelism)
    outputs = build(case, env, plan.count)
    write_files(outputs, restored)
    env.execute(
        runner="inline",
        checkpointing=Checkpointing(restored / "checkpoints", interval="1h"),
        restore=str(folder / "savepoints" / name),
    )
    lost = duplicated = 0
    for output, expected in case.expected(range(plan.count), plan.parallelism).items():
        before = read_files(folder / output, upto=checkpoint_id)
        found = bag(read_files(restored / output)) + bag(before)
        wanted = bag(expected)
        lost += (wanted - found).total()
        duplicated += (found - wanted).total()
    return lost, duplicated


def _row(name: str, setting: Setting, seen: Seen, wanted: int) -> dict[str, object]:
    little = seen.shows_little(setting, wanted)
    status, verdict = 0, "right"
    if seen.wrong(setting):
        status, verdict = 1, "WRONG"
    elif little is not None:
        status, verdict = 2, f"does not count: {little}"
    figures = {name: value for name, value in asdict(seen).items() if name != "struck"}
    return {
        "mode": name,
        "verdict": verdict,
        "status": status,
        "kills": seen.struck.kills,
        "behind_new_checkpoints": seen.struck.behind_progress,
        "checkpoints": seen.struck.checkpoints,
        **figures,
    }


def _described(seen: Seen) -> str:
    told = [
        f"{seen.runs} runs",
        f"{seen.struck.kills} kills ({seen.struck.behind_progress} behind new checkpoints)",
        f"{seen.lost} lost",
        f"{seen.duplicated} duplicated",
        f"{seen.restarts} restarts",
        f"{seen.struck.checkpoints} checkpoints",
    ]
    told += [f"{seen.comebacks} comebacks"] if seen.comebacks else []
    told += [f"{seen.at_once} at once"] if seen.at_once > 1 else []
    told += [f"{seen.savepoints} savepoints"] if seen.savepoints else []
    told += [f"{seen.uncounted} with few kills, which do not count"] if seen.uncounted else []
    told += [f"{seen.stuck} that did not end"] if seen.stuck else []
    return ", ".join(told)


@contextmanager
def _load(processes: int) -> Iterator[None]:
    """Busy loops that take the processors away from the jobs."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
