"""How many records per second a job sustains: `python -m benchmarks.throughput keyed-sum-rows`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

import minirt as rt
from benchmarks.column_source import ColumnSource
from benchmarks.latest_sink import LatestSink
from benchmarks.measure import Measured, print_rows, run
from benchmarks.plain import keyed_sum_seconds
from minirt.modes import DEFAULT_MODE

KEYS = 1000
_SPREAD = 2654435761
"""Multiplying by it scatters consecutive numbers over the keys."""


def _prepare(number: int) -> tuple[int, int]:
    return ((number * _SPREAD) % KEYS, 1)


def _combine(total: tuple[int, int], pair: tuple[int, int]) -> tuple[int, int]:
    return (total[0], total[1] + pair[1])


def plain_keyed_sum(records: int) -> float:
    """The same functions on the same records, by hand."""
    return keyed_sum_seconds(records, _prepare, lambda pair: pair[0], _combine)


def keyed_sum_rows(records: int, checkpoints: bool, mode: str = DEFAULT_MODE) -> Measured:
    """Count records per key with Python functions, one update emitted for each record."""
    env = rt.Environment(parallelism=2)
    sink = LatestSink()
    (
        env.source(rt.SequenceSource(records), uid="numbers")
        .map(_prepare)
        .key_by(lambda pair: pair[0])
        .reduce(_combine, uid="sum")
        .sink(sink, uid="latest")
    )
    measured = _run(env, "keyed-sum-rows", checkpoints, mode)
    assert len(sink.latest) == KEYS, len(sink.latest)
    assert sum(sink.latest.values()) == records, sum(sink.latest.values())
    return measured


def keyed_pass_columns(records: int, checkpoints: bool) -> Measured:
    """Two columns of int64 through one shuffle by a key of int64, and nothing else."""
    env = rt.Environment(parallelism=2)
    source = ColumnSource(records, width=2, keys=KEYS, splits=2)
    env.source(source, uid="numbers").key_by("k").sink(rt.DiscardSink(), uid="out")
    return _run(env, "keyed-pass-columns", checkpoints)


def filter_project(records: int, checkpoints: bool) -> Measured:
    """Of ten columns, keep half of the records and compute three columns; no shuffle."""
    env = rt.Environment(parallelism=2)
    stream = env.source(ColumnSource(records, width=10, keys=KEYS, splits=2), uid="numbers")
    (
        stream.filter(pc.bit_wise_and(pc.field("v0"), 1) == 0)
        .select("k", "v1", total=pc.field("v2") + pc.field("v3"), double=pc.field("v4") * 2)
        .sink(rt.DiscardSink(), uid="out")
    )
    return _run(env, "filter-project", checkpoints)


def _run(env: rt.Environment, name: str, checkpoints: bool, mode: str = DEFAULT_MODE) -> Measured:
    with tempfile.TemporaryDirectory() as storage:
        every_second = rt.Checkpointing(storage, interval="1s", mode=mode)
        return run(env, name, checkpointing=every_second if checkpoints else None)


CASES: dict[str, tuple[Callable[[int, bool], Measured], int]] = {
    "keyed-sum-rows": (keyed_sum_rows, 20_000_000),
    "keyed-pass-columns": (keyed_pass_columns, 100_000_000),
    "filter-project": (filter_project, 100_000_000),
}
"""What to run, and with how many records by default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="any of: " + ", ".join(CASES))
    parser.add_argument("--records", type=int, help="how many records a run processes")
    parser.add_argument("--repeat", type=int, default=3, help="how often each case is run")
    parser.add_argument(
        "--peers", choices=["plain"], help="plain: keyed-sum-rows by hand, after each run"
    )
    parser.add_argument("--no-checkpoints", action="store_true", help="take none but the last")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown case {min(unknown)!r}; there are: {', '.join(CASES)}")
    rows: list[dict[str, Any]] = []
    for case in arguments.cases or CASES:
        function, records = CASES[case]
        count = arguments.records or records
        for _ in range(arguments.repeat):
            measured = function(count, not arguments.no_checkpoints)
            rows.append(_row(case, count, measured))
            if arguments.peers and function is keyed_sum_rows:
                rows.append(_plain_row(case, count, plain_keyed_sum(count)))
    print_rows(rows, arguments.json)


def _row(case: str, records: int, measured: Measured) -> dict[str, Any]:
    return {
        "case": case,
        "system": "minirt",
        "records": records,
        "seconds": measured.running_s,
        "records_per_s": records / measured.running_s,
        "cpu_s_per_million": measured.cpu_s / records * 1e6,
        "peak_rss_bytes": measured.peak_rss_bytes,
        "checkpoints": measured.result.completed_checkpoints,
    }


def _plain_row(case: str, records: int, seconds: float) -> dict[str, Any]:
    return {
        "case": case,
        "system": "plain",
        "records": records,
        "seconds": seconds,
        "records_per_s": records / seconds,
    }


if __name__ == "__main__":
    main()
