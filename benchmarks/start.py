"""What it costs to start: `python -m benchmarks.start`. Seconds of a processor, and by the clock.

Each line is one command, run again and again in turn with the others. The least is what it takes, the
median tells how busy the machine is.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import print_rows, print_table

_JOB = """
import minirt as rt

env = rt.Environment()
env.source(rt.CollectionSource([1, 2, 3])).map(lambda n: n + 1).sink(rt.PrintSink())
if __name__ == "__main__":
    env.execute()
"""


def commands(job: Path) -> Mapping[str, Sequence[str]]:
    python = sys.executable
    return {
        "python": (python, "-c", "pass"),
        "import minirt": (python, "-c", "import minirt"),
        "an environment": (python, "-c", "import minirt; minirt.Environment()"),
        "a worker's modules": (python, "-c", "import minirt.runtime.worker.template"),
        "minirt --help": (python, "-m", "minirt", "--help"),
        "python job.py": (python, str(job)),
        "minirt run job.py": (python, "-m", "minirt", "run", str(job)),
    }


def measure(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds, with those of all processes that it waited for, and seconds by the clock."""
    before_s, began_at = _children_s(), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return _children_s() - before_s, time.monotonic() - began_at


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="runs of each command")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error(f"--repetitions must be at least 1, got {options.repetitions}")
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.py")
        job.write_text(_JOB, encoding="utf-8")
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands(job)}
        for _ in range(options.repetitions):
            for name, command in commands(job).items():
                runs[name].append(measure(command))
    rows: list[dict[str, Any]] = []
    for name, figures in runs.items():
        cpu_s, took_s = zip(*figures, strict=True)
        rows.append(
            {
                "what": name,
                "least_cpu_s": min(cpu_s),
                "median_cpu_s": statistics.median(cpu_s),
                "least_s": min(took_s),
                "median_s": statistics.median(took_s),
            }
        )
    if options.json:
        print_rows(rows, options.json)
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
