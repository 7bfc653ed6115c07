"""Pathway: CSV files that lie ready, as a stream that ends; its state is persisted in snapshots."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.workload import KEY_PREFIX, SPREAD, Tally, Work, announce, last_total, report

os.environ["PATHWAY_THREADS"] = str(Work.parse(sys.argv[1:]).parallelism)  # Read at the import.

import pathway as pw

_FILE_RECORDS = 1_000_000


class _Numbered(pw.Schema):
    k: int
    v: int


class _Named(pw.Schema):
    k: str
    v: int


def _write(work: Work, folder: Path) -> None:
    folder.mkdir()
    named = work.work == "keyed-sum-str"
    keys = [f"{KEY_PREFIX}{key:08d}" if named else str(key) for key in range(work.keys)]
    for number, start in enumerate(range(0, work.records, _FILE_RECORDS)):
        with open(folder / f"{number:06d}.csv", "w", encoding="ascii") as file:
            file.write("k,v\n")
            stop = min(work.records, start + _FILE_RECORDS)
            file.writelines(f"{keys[n * SPREAD % work.keys]},1\n" for n in range(start, stop))


def main() -> None:
    work = Work.parse(sys.argv[1:])
    files = Path(work.storage) / "input"
    _write(work, files)
    tally, last = Tally(), last_total(work)
    named = work.work == "keyed-sum-str"

    def see(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition and row["total"] >= last:
            name = row["k"]
            tally.add(1, int(name[len(KEY_PREFIX) :]) if named else name)

    numbers = pw.io.csv.read(str(files), schema=_Named if named else _Numbered, mode="static")
    sums = numbers.groupby(numbers.k).reduce(numbers.k, total=pw.reducers.sum(numbers.v))
    pw.io.subscribe(sums, on_change=see)
    persistence = None
    if work.checkpoint_ms:
        backend = pw.persistence.Backend.filesystem(f"{work.storage}/snapshots")
        persistence = pw.persistence.Config(backend, snapshot_interval_ms=work.checkpoint_ms)
    announce()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=persistence)
    report(tally, time.monotonic())


if __name__ == "__main__":
    main()
