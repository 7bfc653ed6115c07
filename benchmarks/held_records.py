"""CPU time of operators that hold whole records: `python -m benchmarks.held_records`.

NexMark's auctions and bids go through a join with a time to live, and its bids through `top_n`, each as one
operator of one subtask without a job around it, in batches of so many events.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.measure import print_rows
from benchmarks.one_operator import alone
from minirt.data.batch import Columns
from minirt.graph.operator_spec import OperatorSpec
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import Kind
from minirt.laboratory.nexmark.workload import Workload
from minirt.operators.common.join_bounds import Lasting
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.operators.top_n import TopNSpec

_DAY_MS = 86_400_000
_HIGHEST = TopNSpec(10, (("price", "descending"), ("dateTime", "ascending")))
_LAST = TopNSpec(1, (("dateTime", "descending"),))

CASES: dict[str, tuple[OperatorSpec, tuple[str, ...], tuple[Kind, ...]]] = {
    "join": (TtlJoinSpec(Lasting(_DAY_MS)), ("id",), ("auction", "bid")),
    "highest-ten": (_HIGHEST, ("auction",), ("bid",)),
    "last": (_LAST, ("bidder", "auction"), ("bid",)),
}
"""The operator, its key, and what goes into each of its inputs."""


def measure(case: str, events: int, batch: int) -> dict[str, Any]:
    spec, keys, kinds = CASES[case]
    given = list(_batches(kinds, events, batch))
    results = 0

    def count(columns: Any) -> None:
        nonlocal results
        results += len(columns)

    operator = alone(spec, *keys, emit=count)
    began = time.process_time()
    for columns, place in given:
        operator.process(columns, place)
    took_s = time.process_time() - began
    return {
        "case": case,
        "events_in_batch": batch,
        "results": results,
        "cpu_us_per_event": round(took_s / events * 1e6, 2),
    }


def _batches(kinds: tuple[Kind, ...], events: int, batch: int) -> Iterator[tuple[Columns, int]]:
    made = generator(Workload())
    for start in range(0, events, batch):
        for place, kind in enumerate(kinds):
            table = made.events(kind, start, min(events, start + batch))
            if len(kinds) > 1:
                # Both sides of the join call their key alike.
                table = table.rename_columns(
                    ["id" if n == "auction" else n for n in table.schema.names]
                )
            times = table.column("dateTime").cast(pa.int64()).to_numpy()
            yield Columns(table, times), place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    told = parser.parse_args()
    rows = [measure(case, told.events, batch) for case in CASES for batch in told.batch]
    print_rows(rows, told.json)


if __name__ == "__main__":
    main()
