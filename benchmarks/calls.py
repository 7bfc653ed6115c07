"""How many system calls a frame costs: `python -m benchmarks.calls`.

Linux' `perf` counts those of a whole keyed sum of columns at parallelism 2, in two processes, with all that
starting takes. Half of the records stay in their process, so as many frames cross as the other half makes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import print_rows
from benchmarks.systems import MINIRT, ROOT
from benchmarks.workload import Work
from minirt.config import Limits

CALLS = (
    "sendmsg",
    "recvfrom",
    "sendto",
    "epoll_wait",
    "epoll_ctl",
    "getrusage",
    "clock_gettime",
)
_EVENT = "syscalls:sys_enter_"
_CLOCK = "task-clock"
_RECORD_BYTES = 16
"""A key and a value of int64."""
_SHOWN_OUTPUT = 2000


def counted(command: Sequence[str]) -> Mapping[str, float]:
    """How often each event came while a command ran, and its milliseconds of CPU time."""
    events = ",".join([*(f"{_EVENT}{call}" for call in CALLS), _CLOCK])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "perf.csv"
        run = subprocess.run(
            ["perf", "stat", "-x", ",", "-o", str(report), "-e", events, *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise SystemExit(f"perf has failed: {run.stderr[-_SHOWN_OUTPUT:]}")
        return counts(report.read_text())


def counts(report: str) -> Mapping[str, float]:
    """By event, what a report of `perf stat -x ,` says."""
    rows = [line.split(",") for line in report.splitlines() if line.count(",") > 2]
    return {row[2].removeprefix(_EVENT): float(row[0]) for row in rows}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    if shutil.which("perf") is None:
        raise SystemExit("perf is not installed: it is in the package linux-tools or linux-perf")
    frames = options.records * _RECORD_BYTES / 2 / Limits().column_frame_bytes
    rows = []
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory() as storage:
            work = Work("keyed-sum", options.records, storage=storage)
            found = counted([*MINIRT.command, *work.arguments()])
        per_frame = {call: round(found[call] / frames, 2) for call in CALLS}
        rows.append({"frames": round(frames), **per_frame, "cpu_s": found[_CLOCK] / 1000})
    print_rows(rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
