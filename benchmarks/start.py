"""What it costs to start: `python -m benchmarks.start`. Seconds of a processor, and by the clock.

Each line is one command, run again and again in turn with the others. The least is what it takes, the
median tells how busy the machine is. Behind them come jobs with two shuffles at parallelism 128: by the
clock until all subtasks run, and the processor time of the whole, which then ends at once.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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

_WIDE_JOB = """
import sys, time
import minirt as rt

parallelism, workers = int(sys.argv[1]), int(sys.argv[2])
env = rt.Environment(parallelism=parallelism, max_parallelism=max(128, parallelism))
numbers = env.source(rt.SequenceSource.endless(splits=parallelism))
first = numbers.key_by(lambda n: n % 1000).reduce(max, uid="first")
first.key_by(lambda n: n % 7).reduce(max, uid="second").sink(rt.DiscardSink())
slots = {"placement": "slots", "workers": workers} if workers else {}
began_at = time.monotonic()
job = env.start(options=rt.Options(**slots))
while job.status is not rt.JobStatus.RUNNING:
    if job.status is rt.JobStatus.FAILED:
        job.wait()
    time.sleep(0.005)
print(time.monotonic() - began_at, flush=True)
job.cancel()
job.wait()
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


def wide_commands(
    job: Path, parallelism: int, processes: Sequence[int]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Each prints after how many seconds its job ran."""
    for workers in processes:
        where = f"{workers or 3 * parallelism} workers"
        command = (sys.executable, str(job), str(parallelism), str(workers))
        yield f"parallelism {parallelism}, {where}", command


def measure(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds, with those of all processes that it waited for, and seconds by the clock."""
    before_s, began_at = _children_s(), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return _children_s() - before_s, time.monotonic() - began_at


def measure_wide(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds likewise, and seconds until the job ran."""
    before_s = _children_s()
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return _children_s() - before_s, float(said.stdout)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="runs of each command")
    parser.add_argument(
        "--wide", type=int, default=128, help="parallelism of wide jobs; 0 for none"
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[2, 8],
        help="how many a wide job has; 0 is one for each subtask, which are three times the parallelism",
    )
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error(f"--repetitions must be at least 1, got {options.repetitions}")
    if min(options.wide, *options.workers) < 0:
        parser.error("--wide and --workers must not be negative")
    with tempfile.TemporaryDirectory() as folder:
        job, wide_job = Path(folder, "job.py"), Path(folder, "wide.py")
        job.write_text(_JOB, encoding="utf-8")
        wide_job.write_text(_WIDE_JOB, encoding="utf-8")
        processes = options.workers if options.wide else ()
        wide = dict(wide_commands(wide_job, options.wide, processes))
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in (*commands(job), *wide)}
        for _ in range(options.repetitions):
            for name, command in commands(job).items():
                runs[name].append(measure(command))
            for name, command in wide.items():
                runs[name].append(measure_wide(command))
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
