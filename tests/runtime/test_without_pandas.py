"""Columns with times of nanoseconds where pandas is not installed: Arrow has no objects for them then.

minirt does not need pandas, but Arrow imports it where it can. So this runs in a process that has none.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.warm_processes import cold_starts

SCRIPT = """
import sys


class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError("there is none here")


sys.meta_path.insert(0, NoPandas())

import pyarrow as pa

import minirt as rt

NANOS = [1_700_000_000_123_456_789, None, 1_700_000_000_123_456_001, -1]
times = pa.array(NANOS, pa.timestamp("ns"))
inside = pa.StructArray.from_arrays([times], ["t"])
TABLE = pa.table({"k": [1, 2, 3, 4], "at": [1, 2, 3, 4], "t": times, "s": inside})


class Keep(rt.KeyedProcess):
    kept = rt.ValueState()

    def process(self, record, ctx):
        self.kept.value = record
        yield record


class All(rt.WindowProcess):
    def process(self, records, ctx):
        yield from records


def same(record):
    return record


async def asked(record):
    return record


def tumbling(stream):
    return stream.key_by("k").window(rt.Tumbling("1s"))


JOBS = {
    "key function": lambda s: s.key_by(lambda r: r["k"]).map_batches(same, "columns"),
    "key function of a time": lambda s: s.key_by(lambda r: r["t"]).process(Keep()),
    "key column": lambda s: s.key_by("t").process(Keep()),
    "custom": lambda s: s.partition_custom(lambda k, n: k % n, lambda r: r["k"]).map(same),
    "custom by a time": lambda s: s.partition_custom(lambda k, n: 0, "t").map(same),
    "reduce": lambda s: s.key_by("k").reduce(lambda one, other: other),
    "rows in windows": lambda s: tumbling(s).process(All()),
    "aggregates": lambda s: tumbling(s).aggregate(
        *(rt.First("t"), rt.First("s"), rt.Max("t"), rt.ArgMax("t", by="at"), rt.ArgMin("at", by="t")),
        *(rt.Collect("t"), rt.CountDistinct("t"), rt.CountDistinct("s", "ds"), rt.TopN("t", n=2)),
    ),
    "sum by a time": lambda s: s.key_by("t").aggregate(rt.Sum("k"), emit="end"),
    "join by a time": lambda s: s.join(s.map(same), on="k", within=(0, "1s")),
    "map_async": lambda s: s.map_async(asked),
}

for name, build in JOBS.items():
    for parallelism in (1, 2):
        env, out = rt.Environment(parallelism=parallelism), rt.CollectSink()
        marks = rt.Watermarks.bounded("1s", timestamp="at")
        stream = env.source(rt.CollectionSource(TABLE, splits=parallelism), watermarks=marks)
        build(stream).rebalance().map(same, parallelism=1).sink(out)
        try:
            env.execute(runner="inline")
            print(name, "gives", len(out.rows))
        except rt.MinirtError as error:
            print(name, "fails", str(error).splitlines()[-1])
"""


@pytest.fixture(scope="module")
def told() -> list[str]:
    command = [sys.executable, "-c", SCRIPT]
    with cold_starts():
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_operator_takes_them(told: list[str]) -> None:
    assert [line for line in told if " fails " in line] == []


def test_no_record_is_missing(told: list[str]) -> None:
    """Two of the times lie in one microsecond: they are one key of rows, and two of columns."""
    assert len(told) == 22
    assert {int(line.rpartition(" ")[2]) for line in told} == {4}
