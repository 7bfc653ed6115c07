"""What the parts of a keyed sum of rows cost: `python -m benchmarks.row_parts`.

One thread does on batches of 4,096 records, one part after the other, what the subtasks of `keyed-sum-rows`
do. Beside them, the functions of the job in the plainest loop: no job can be faster in Python. CPU time,
nanoseconds a record, the least of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.measure import print_rows
from benchmarks.one_operator import alone
from benchmarks.workload import SPREAD
from minirt.data.batch import Rows
from minirt.data.codec import RowCodec
from minirt.graph.keys import KeySelector
from minirt.operators.map import MapSpec
from minirt.operators.reduce import ReduceSpec
from minirt.partitionings.common.dealing import DealingSite
from minirt.partitionings.hash import Hash

RECORDS = 4096
KEYS = 1000
CALLS = 4

Pair = tuple[int, int]


def pair(number: int) -> Pair:
    return number * SPREAD % KEYS, 1


def key_of(record: Pair) -> int:
    return record[0]


def add(total: Pair, record: Pair) -> Pair:
    return total[0], total[1] + record[1]


class _Buffer:
    def __init__(self) -> None:
        self.records: list[Any] = []
        self.timestamps: list[int] = []


def parts() -> Mapping[str, Callable[[], object]]:
    """What is measured, by its name."""
    numbers = list(range(7_000_000, 7_000_000 + RECORDS))
    pairs, codec = [*map(pair, numbers)], RowCodec()
    packed = codec.encode(Rows(pairs))
    by_key = KeySelector(function=key_of)
    buffers = [_Buffer(), _Buffer()]
    dealer = Hash(by_key).dealer(DealingSite(buffers, 128, "pairs", 100_000))
    to_pairs, sums = alone(MapSpec(pair)), alone(ReduceSpec(add), by=by_key)
    totals: dict[int, Pair] = {}

    def deal() -> None:
        dealer.rows(Rows(pairs))
        for buffer in buffers:
            buffer.records.clear()

    def plain() -> None:
        for number in numbers:
            record = pair(number)
            key = key_of(record)
            totals[key] = add(totals[key], record) if key in totals else record

    return {
        "map": lambda: to_pairs.process(Rows(numbers), 0),
        "deal to two receivers": deal,
        "pack": lambda: codec.encode(Rows(pairs)),
        "unpack": lambda: codec.decode(packed),
        "reduce": lambda: sums.process(Rows(pairs), 0),
        "the functions in a plain loop": plain,
    }


def measured(part: Callable[[], object], rounds: int) -> float:
    """Nanoseconds a record."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(CALLS):
            part()
        best = min(best, time.thread_time() - began)
    return best / CALLS / RECORDS * 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    gc.disable()  # As good as: workers hardly look for cycles.
    found = {name: measured(part, options.rounds) for name, part in parts().items()}
    print_rows(
        [{"part": name, "ns_a_record": round(ns)} for name, ns in found.items()], options.json
    )


if __name__ == "__main__":
    main()
