"""Columns from source to sink, with rows among them: nothing is lost or repeated, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.modes import MODES
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.protocol.barriers import CheckpointMode
from minirt.testing import Faults, TransactionalSink, simulate
from tests.campaigns import sampled

RUNS = sampled(4)
MODES_TRIED = [*MODES.values(), AlignedWithTimeout(timeout=None, switch_below=100)]
KEYS = ["a", "b", None, "c"]
ROWS = [{"n": n, "k": KEYS[n % 4], "t": 100 + n - n % 3} for n in range(24)]


class Number(rt.KeyedProcess):
    """Each record with its number among those of its key."""

    count = rt.ValueState(0)

    def process(self, record: Mapping[str, Any], ctx: rt.KeyedContext) -> Iterable[Any]:
        assert ctx.timestamp == record["t"]
        assert ctx.watermark is None or ctx.watermark < record["t"], "a watermark passed a record"
        self.count.value += 1
        yield (record["n"], record["from"], ctx.key, self.count.value)


def form(sink: TransactionalSink, parallelism: int) -> rt.Environment:
    """A source of columns and one of rows, computed, dealt in turn, then numbered by key."""
    env = rt.Environment(parallelism=parallelism, max_parallelism=8)
    marks = rt.Watermarks.bounded(0.005, timestamp="t")
    both = [
        env.source(rt.CollectionSource(records, splits=3), uid=uid, watermarks=marks)
        .rebalance()
        .with_column("from", pc.scalar(uid), uid=f"mark-{uid}")
        for uid, records in (("columns", pa.Table.from_pylist(ROWS)), ("rows", ROWS))
    ]
    kept = both[0].union(both[1]).key_by("k").filter(pc.field("n") != 5, uid="filter")
    kept.key_by("k").process(Number(), uid="number").sink(sink, uid="out")
    return env


@pytest.mark.parametrize("mode", MODES_TRIED, ids=lambda mode: mode.name)
def test_columns_survive_crashes_and_rescales(mode: CheckpointMode) -> None:
    wanted = Counter(
        (r["n"], uid, r["k"]) for r in ROWS if r["n"] != 5 for uid in ("columns", "rows")
    )
    restarts = 0
    for seed in range(RUNS):
        random, sink = Random(f"columns {seed}"), TransactionalSink()
        first, *rescaled = (form(sink, random.randint(1, 3)) for _ in range(random.randint(1, 3)))
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        result = simulate(
            first, seed=seed, checkpointing=checkpointing, faults=Faults(), rescaled=rescaled
        ).check()
        restarts += result.restarts
        got = Counter(row[:3] for row in sink.rows)
        assert not wanted - got, f"seed {seed}"
        if mode.exactly_once:
            assert got == wanted, f"seed {seed}"
            assert len({row[2:] for row in sink.rows}) == len(sink.rows), f"seed {seed}"
    assert restarts > RUNS
