"""What a checkpoint costs in each mode: `python -m benchmarks.modes`.

The job is source > key_by > map > key_by > map > sink with a payload of 100 bytes, which differ. One of
the maps is slow, the one at the *end* or the one in the *middle*, so all queues up to it are full. Recovery
time and stored bytes stand beside the time of a checkpoint, since a mode that is better in one may be worse
in the others. A row without a checkpoint says what its barriers waited behind. With `--throughput`, a job
without a slow function is run in every mode in turn instead.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import minirt as rt
from benchmarks import flink_checkpoints
from benchmarks.measure import Checkpoints, milliseconds, print_rows, print_table
from benchmarks.recovery import FirstRecordSink, wait_for
from benchmarks.systems import MINIRT
from benchmarks.systems import measure as measure_system
from benchmarks.workload import Work
from minirt.cli.bench_payload import payload
from minirt.modes import MODES

KEYS = 1000
PLACES = ("end", "middle")
"""Where the slow map stands."""

RECORD_MS = (0.1, 1.0, 10.0, 100.0)
QUICK_RECORD_MS = (1.0,)

QUICK_LIMITS = rt.Limits(input_queue_bytes=16 * 1024, output_queue_bytes=8 * 1024)
"""Queues so small that every mode works through them in a second."""

_FULL_S = 30.0
"""How long to wait at most for the source to feel backpressure."""

_WAITED_S = 0.3

_PARTS = ("alignment", "start_delay", "sync", "async")


@dataclass(frozen=True)
class Effort:
    """How long a row may take: until so many checkpoints have completed, or so many seconds passed."""

    checkpoints: int
    seconds: float
    interval_ms: int
    limits: rt.Limits = field(default_factory=rt.Limits)


FULL = Effort(checkpoints=20, seconds=120.0, interval_ms=500)
QUICK = Effort(checkpoints=3, seconds=20.0, interval_ms=100, limits=QUICK_LIMITS)


class Slow:
    """Takes its time for each record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, record: Any) -> Any:
        time.sleep(self._seconds)
        return record


def backpressured_job(
    parallelism: int, slow: str, record_s: float, sink: rt.Sink
) -> rt.Environment:
    env = rt.Environment(parallelism=parallelism)
    fast: Callable[[Any], Any] = lambda record: record  # noqa: E731
    first, last = (Slow(record_s), fast) if slow == "middle" else (fast, Slow(record_s))
    (
        env.source(rt.SequenceSource.endless(splits=parallelism), uid="numbers")
        .map(lambda number: (number, number % KEYS, payload(number)), uid="pay")
        .key_by(lambda record: record[1])
        .map(first, uid="first")
        .key_by(lambda record: record[0] % KEYS)
        .map(last, uid="last")
        .sink(sink, uid="out")
    )
    return env


def measure(
    mode: str, slow: str, record_ms: float, parallelism: int, debloat: bool, effort: Effort
) -> dict[str, Any]:
    """One row: checkpoints under full backpressure, and then one recovery."""
    seen, waited_behind = Checkpoints(), None
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as notes:
        job = backpressured_job(parallelism, slow, record_ms / 1000, FirstRecordSink(notes)).start(
            "modes",
            checkpointing=rt.Checkpointing(storage, interval=f"{effort.interval_ms}ms", mode=mode),
            restart=rt.Restart.fixed_delay(attempts=None, delay="0s"),
            options=rt.Options(debloat="1s" if debloat else None, limits=effort.limits),
            observer=seen,
        )
        try:
            wait_for(notes, 1)
            _wait_until_full(job)
            full_at, began, processed = time.time(), time.monotonic(), _sink_records(job)
            measured: list[rt.CheckpointReport] = []
            while len(measured) < effort.checkpoints and time.monotonic() - began < effort.seconds:
                time.sleep(0.02)
                measured = [report for report in seen.completed if report.triggered_at >= full_at]
            rate = (_sink_records(job) - processed) / (time.monotonic() - began)
            waited_behind = None if measured else _queued_bytes(job)
            recovery_ms = _recovery_ms(job, notes)
        finally:
            job.cancel()
            job.wait()
    durations = milliseconds(report.duration_s for report in measured)
    return {
        "system": "minirt",
        "mode": mode,
        "slow": slow,
        "record_ms": record_ms,
        "parallelism": parallelism,
        "debloat": debloat,
        "checkpoints": len(measured),
        "duration_ms": durations or dict.fromkeys(("p50", "p95", "max")),
        **{f"{part}_ms": _worst_ms(measured, f"{part}_s") for part in _PARTS},
        "in_flight_bytes": _mean(measured, "in_flight_bytes"),
        "state_bytes": _mean(measured, "state_bytes"),
        "records_per_s": round(rate, 1),
        "recovery_ms": recovery_ms,
        "note": None
        if measured
        else f"none in {effort.seconds:g} s: {waited_behind:,} B in queues",
    }


def measure_flink(
    mode: str, slow: str, record_ms: float, parallelism: int, effort: Effort
) -> dict[str, Any]:
    """One row of the same job in Flink. Raises BenchmarkError."""
    return flink_checkpoints.measure(
        mode,
        slow,
        record_ms,
        parallelism,
        KEYS,
        effort.interval_ms,
        effort.checkpoints,
        effort.seconds,
    )


def _wait_until_full(job: rt.Job) -> None:
    """Until every source has waited for room for a while."""
    until = time.monotonic() + _FULL_S
    while time.monotonic() < until:
        waited = [
            metrics.soft_backpressure_s
            for subtask, metrics in job.progress.metrics.items()
            if subtask.vertex == 0
        ]
        if waited and min(waited) > _WAITED_S:
            return
        time.sleep(0.05)


def _sink_records(job: rt.Job) -> int:
    metrics = job.progress.metrics
    last = max(subtask.vertex for subtask in metrics)
    return sum(figures.records_in for subtask, figures in metrics.items() if subtask.vertex == last)


def _queued_bytes(job: rt.Job) -> int:
    metrics = job.progress.metrics.values()
    return sum(figures.queued_in_bytes + figures.queued_out_bytes for figures in metrics)


def _recovery_ms(job: rt.Job, notes: str) -> float:
    """From SIGKILL of a worker to the first record at the sink."""
    killed_at = time.time()
    os.kill(next(iter(job.progress.pids.values())), signal.SIGKILL)
    return round((wait_for(notes, 2) - killed_at) * 1000, 1)


def _worst_ms(reports: Sequence[rt.CheckpointReport], part: str) -> float | None:
    """Of each checkpoint the subtask that took longest, and of these the median."""
    worst = [max(getattr(one, part) for one in report.subtasks) for report in reports]
    return round(statistics.median(worst) * 1000, 2) if worst else None


def _mean(reports: Sequence[rt.CheckpointReport], part: str) -> float | None:
    totals = [sum(getattr(one, part) for one in report.subtasks) for report in reports]
    return round(sum(totals) / len(totals)) if totals else None


def compare_throughput(modes: Sequence[str], records: int, repeat: int) -> list[dict[str, Any]]:
    """A row for each mode; runs of the modes alternate, and each is compared with its neighbours."""
    runs: dict[str, list[tuple[float, float, int]]] = {mode: [] for mode in modes}
    for turn in range(repeat):
        for mode in modes if turn % 2 == 0 else reversed(modes):
            _progress(f"run {turn + 1} of {repeat}, {mode}")
            run = measure_system(MINIRT, Work("keyed-sum-rows", records, mode=mode))
            runs[mode].append((run.records_per_s, run.cpu_s, run.checkpoints))
    first = runs[modes[0]]
    return [
        {
            "mode": mode,
            "runs": repeat,
            "records_per_s": round(statistics.median(rate for rate, _, _ in own)),
            f"against_{modes[0]}": _median_ratio([r[0] for r in own], [r[0] for r in first]),
            "cpu_s_per_million": round(
                statistics.median(cpu for _, cpu, _ in own) / records * 1e6, 3
            ),
            f"cpu_against_{modes[0]}": _median_ratio([r[1] for r in own], [r[1] for r in first]),
            "checkpoints": sum(count for _, _, count in own),
        }
        for mode, own in runs.items()
    ]


def _median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Compares the runs in pairs: what slows the machine down for a while then hits both."""
    pairs = zip(values, others, strict=True)
    return round(statistics.median(value / other for value, other in pairs), 3)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def compare_checkpoints(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each mode, time per record and choice of debloating, and those of Flink if asked for."""
    effort = QUICK if arguments.quick else FULL
    debloat = arguments.debloat or (["off"] if arguments.quick else ["off", "on"])
    with_flink = arguments.peers is not None
    if with_flink and (reason := flink_checkpoints.missing()):
        _progress(f"skipped: {reason}")
        with_flink = False
    rows: list[dict[str, Any]] = []
    records_ms = arguments.record_ms or (QUICK_RECORD_MS if arguments.quick else RECORD_MS)
    for slow, record_ms, mode in product(arguments.slow, records_ms, arguments.modes):
        row_of = f"{mode}, {record_ms:g} ms a record at the {slow}"
        for choice in debloat:
            _progress(f"{row_of}, debloating {choice}")
            on = choice == "on"
            rows.append(measure(mode, slow, record_ms, arguments.parallelism, on, effort))
        if with_flink and mode in flink_checkpoints.MODES:
            _progress(f"flink, {row_of}")
            row = measure_flink(mode, slow, record_ms, arguments.parallelism, effort)
            rows.append(dict.fromkeys(rows[0]) | {"debloat": False} | row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="+", default=list(MODES), help="checkpoint modes")
    parser.add_argument("--record-ms", nargs="+", type=float, help="of the slow map")
    parser.add_argument("--slow", nargs="+", choices=PLACES, default=list(PLACES), help="where")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument(
        "--quick", action="store_true", help="some seconds a row, with small queues"
    )
    parser.add_argument(
        "--debloat", nargs="+", choices=["off", "on"], help="both by default, off with --quick"
    )
    parser.add_argument("--throughput", action="store_true", help="instead: without backpressure")
    parser.add_argument("--records", type=int, default=5_000_000, help="of a run of --throughput")
    parser.add_argument("--repeat", type=int, default=7, help="runs of a mode for --throughput")
    parser.add_argument(
        "--peers", choices=["flink"], help="its checkpoints of the same job as well"
    )
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    if arguments.peers and arguments.throughput:
        parser.error("--peers has no effect with --throughput: see benchmarks.throughput")
    if arguments.peers and arguments.quick:
        parser.error("--quick is with small queues, which the peers do not have")
    if arguments.throughput:
        rows = compare_throughput(arguments.modes, arguments.records, arguments.repeat)
    else:
        rows = compare_checkpoints(arguments)
    if arguments.json:
        print_rows(rows, arguments.json)
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
