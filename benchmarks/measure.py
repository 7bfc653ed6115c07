"""What every benchmark needs: run a job, watch its processes, print rows."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

try:
    from minirt.laboratory.processes import ProcessTree
except ImportError as error:
    raise SystemExit("the benchmarks need psutil: pip install 'minirt[bench]'") from error

import minirt as rt

_SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a job. `running_s` counts from all subtasks running to the last commit."""

    running_s: float
    cpu_s: float
    peak_rss_bytes: int
    result: rt.JobResult


class Usage:
    """CPU seconds and resident memory of a process and all below it, sampled in a thread."""

    def __init__(self, pid: int) -> None:
        self._tree = ProcessTree(pid)
        self._began_s: float | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu_s(self) -> float:
        """From `begin` to the last sample."""
        return self._tree.cpu_s - (self._began_s or 0.0)

    @property
    def peak_rss_bytes(self) -> int:
        return self._tree.peak_rss_bytes

    def begin(self) -> None:
        """Count CPU time from here on. Only the first call does anything."""
        if self._began_s is None:
            self._tree.look()
            self._began_s = self._tree.cpu_s

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            self._tree.look()


class StatusTimes(rt.JobObserver):
    """When the job entered each status first, in seconds of the monotonic clock.

    `on_running` is called when it runs.
    """

    def __init__(self, on_running: Callable[[], None]) -> None:
        self.first: dict[rt.JobStatus, float] = {}
        self._on_running = on_running

    def on_status(self, status: rt.JobStatus, generation: int) -> None:
        if status is rt.JobStatus.RUNNING:
            self._on_running()
        self.first.setdefault(status, time.monotonic())


class Checkpoints(rt.JobObserver):
    """Remembers the checkpoints that have ended."""

    def __init__(self) -> None:
        self.ended: list[rt.CheckpointReport] = []

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        self.ended.append(report)

    @property
    def completed(self) -> list[rt.CheckpointReport]:
        return [report for report in self.ended if report.completed]


def run(env: rt.Environment, name: str, **options: Any) -> Measured:
    """Run a job in worker processes to its end; what this process uses counts as well."""
    usage = Usage(os.getpid())
    times = StatusTimes(usage.begin)
    result = env.start(name, observer=times, **options).wait()
    usage.stop()
    running_s = times.first[rt.JobStatus.FINISHED] - times.first[rt.JobStatus.RUNNING]
    return Measured(running_s, usage.cpu_s, usage.peak_rss_bytes, result)


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "p50": statistics.median(ordered),
        "p95": ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
        "max": ordered[-1],
    }


def milliseconds(seconds: Iterable[float]) -> dict[str, float]:
    """`percentiles` of durations in seconds, in milliseconds."""
    return {name: round(value * 1000, 2) for name, value in percentiles(seconds).items()}


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    target: str | None,
    skipped: Sequence[Mapping[str, Any]] = (),
) -> None:
    """As JSON to a file, to standard output for "-", or as lines to read.

    `skipped` says what has no rows, and why; it is part of the JSON.
    """
    if target is None:
        for row in rows:
            print("  ".join(f"{key}={_shown(value)}" for key, value in row.items()))
        return
    document = {"rows": list(rows), **({"skipped": list(skipped)} if skipped else {})}
    text = json.dumps(document, indent=2)
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    with open(target, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line a row below the names of the columns; of percentiles median and maximum."""
    lines = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case {"p50": median, "max": most}:
            return "-" if median is None else f"{_shown(median)} ({_shown(most)})"
        case float():
            return f"{value:,.4g}"
    return str(value)
