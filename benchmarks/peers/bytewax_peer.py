"""Bytewax: one process for each subtask, recovery snapshots in SQLite."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

from benchmarks.peers.processes import in_processes
from benchmarks.workload import SPREAD, Tally, Work, announce, last_total, report

_BATCH = 4096
_FIRST_PORT = 21950


class _Numbers(FixedPartitionedSource[int, int]):
    def __init__(self, work: Work) -> None:
        self._work = work

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self._work.parallelism)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Part:
        share = self._work.records // self._work.parallelism
        announce()
        start = int(for_part) * share
        return _Part(start if resume_state is None else resume_state, start + share)


class _Part(StatefulSourcePartition[int, int]):
    def __init__(self, next_number: int, stop: int) -> None:
        self._next = next_number
        self._stop = stop
        self._snapshots = 0

    def next_batch(self) -> Iterable[int]:
        if self._next == self._stop:
            raise StopIteration
        start, self._next = self._next, min(self._stop, self._next + _BATCH)
        return range(start, self._next)

    def snapshot(self) -> int:
        self._snapshots += 1
        return self._next

    def close(self) -> None:
        report(Tally(), 0.0, self._snapshots)


class _Check(DynamicSink[tuple[str, int]]):
    def __init__(self, last: int) -> None:
        self._last = last

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _CheckPart:
        return _CheckPart(self._last)


class _CheckPart(StatelessSinkPartition[tuple[str, int]]):
    def __init__(self, last: int) -> None:
        self._last = last
        self._tally = Tally()
        self._written_at = time.monotonic()

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        done = [int(key) for key, total in items if total >= self._last]
        self._tally.add(len(done), sum(done))
        self._written_at = time.monotonic()

    def close(self) -> None:
        report(self._tally, self._written_at)


def _dataflow(work: Work) -> Dataflow:
    """Keys must be strings here."""
    keys = work.keys

    def add(total: int | None, one: int) -> tuple[int, int]:
        total = one if total is None else total + one
        return total, total

    flow = Dataflow("benchmark")
    numbers = op.input("numbers", flow, _Numbers(work))
    pairs = op.map("pair", numbers, lambda number: (str(number * SPREAD % keys), 1))
    totals: Any = op.stateful_map("sum", pairs, add)
    op.output("out", totals, _Check(last_total(work)))
    return flow


def _run(work: Work, process: int) -> None:
    addresses = [f"localhost:{_FIRST_PORT + number}" for number in range(work.parallelism)]
    every = timedelta(milliseconds=work.checkpoint_ms) if work.checkpoint_ms else None
    recovery = RecoveryConfig(work.storage) if every else None
    cluster_main(
        _dataflow(work), addresses, process, epoch_interval=every, recovery_config=recovery
    )


def main() -> None:
    work = Work.parse(sys.argv[1:])
    if work.checkpoint_ms:
        init_db_dir(Path(work.storage), work.parallelism)
    in_processes(_run, work, work.parallelism)


if __name__ == "__main__":
    main()
