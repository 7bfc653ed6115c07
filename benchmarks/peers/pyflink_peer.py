"""PyFlink: Python functions record by record, within the JVM (thread mode, its fastest)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import FlatMapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from benchmarks.peers.pyflink_settings import configuration
from benchmarks.workload import SPREAD, Tally, Work, announce, last_total, report

_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class _Pairs(FlatMapFunction):
    def __init__(self, keys: int) -> None:
        self._keys = keys
        self._announced = False

    def flat_map(self, number: int) -> Iterator[tuple[int, int]]:
        if not self._announced:
            self._announced = True
            announce()
        yield number * SPREAD % self._keys, 1


class _Check(FlatMapFunction):
    """Passes nothing on. It reports last totals at once, since no end of input is announced to it."""

    def __init__(self, last: int) -> None:
        self._last = last

    def flat_map(self, pair: Any) -> Iterator[Any]:
        if pair[1] >= self._last:
            report(Tally(1, pair[0]), time.monotonic())
        yield from ()


def main() -> None:
    work = Work.parse(sys.argv[1:])
    settings = configuration(work.storage)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(work.parallelism)
    if work.checkpoint_ms:
        env.enable_checkpointing(work.checkpoint_ms)
    numbers = NumberSequenceSource(0, work.records - 1)
    (
        env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
        .flat_map(_Pairs(work.keys), _PAIR)
        .key_by(lambda pair: pair[0], Types.LONG())
        .reduce(lambda total, pair: (total[0], total[1] + pair[1]))
        .flat_map(_Check(last_total(work)), Types.LONG())
        .print()
    )
    env.execute(work.work)


if __name__ == "__main__":
    main()
