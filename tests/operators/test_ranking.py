"""Which records of a key come first: what senders leave out ahead of `top_n` is never missed."""

from __future__ import annotations

from random import Random
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Columns
from minirt.graph.planner import build_execution_graph
from minirt.modes import MODES
from minirt.operators.common.ranking import FirstOfBatch
from minirt.operators.top_n import TopNOperator
from minirt.protocol.ids import SubtaskId
from minirt.runtime.cluster.local import LocalPorts
from minirt.runtime.control.package import Deployment, JobPackage
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.pacer import TimedPacer
from minirt.testing.clock import HeldClock

KEYS = ["a", "b", None, "", "seldom"]
BY = (("v", "descending"), ("w", "ascending"))
Row = dict[str, Any]


def drawn(random: Random, count: int) -> list[Row]:
    def one(place: int) -> Row:
        v = random.choice([None, float("nan"), 0.0, -0.0, 1.5, 2.5, float("inf")])
        return {"k": random.choice(KEYS), "v": v, "w": random.randrange(3), "i": place}

    return [one(place) for place in range(count)]


def first(rows: list[Row], n: int) -> set[int]:
    """The numbers of the records with a value that fewer than `n` others of their key are ahead of."""
    ranked = [row for row in rows if row["v"] is not None and row["v"] == row["v"]]
    ranked.sort(key=lambda row: (-row["v"], row["w"], row["i"]))
    return {row["i"] for key in KEYS for row in [each for each in ranked if each["k"] == key][:n]}


def columns(rows: list[Row]) -> Columns:
    schema = pa.schema(
        [("k", pa.string()), ("v", pa.float64()), ("w", pa.int64()), ("i", pa.int64())]
    )
    return Columns(pa.RecordBatch.from_pylist(rows, schema), np.arange(len(rows)))


@pytest.mark.parametrize("seed", range(20))
def test_the_first_of_each_key_stay_in_their_order_with_their_times(seed: int) -> None:
    random = Random(seed)
    n, rows = random.randint(1, 4), drawn(random, random.randrange(1, 200))
    kept = FirstOfBatch(n, BY, ["k"])(columns(rows))
    numbers = kept.table.column("i").to_pylist()
    assert first(rows, n) <= {*numbers}
    assert numbers == sorted(numbers)
    assert kept.timestamps is not None
    assert kept.timestamps.tolist() == numbers
    # Records without a value may fill ranks that are left.
    keys = [rows[number]["k"] for number in numbers]
    assert max(map(keys.count, keys)) <= n


def test_keys_in_dictionaries_are_keys() -> None:
    table = pa.record_batch({"k": pa.array(["a", "b", "a"]).dictionary_encode(), "v": [1, 1, 2]})
    kept = FirstOfBatch(1, [("v", "descending")], ["k"])(Columns(table))
    assert kept.table.column("v").to_pylist() == [1, 2]


@pytest.mark.parametrize("values", [[[1], [2]], [{"x": 1}, {"x": 2}]])
def test_what_the_operator_refuses_passes(values: list[Any]) -> None:
    batch = Columns(pa.record_batch({"k": ["a", "a"], "v": values}))
    assert FirstOfBatch(1, [("v", "descending")], ["k"])(batch) is batch
    assert FirstOfBatch(1, [("missing", "descending")], ["k"])(batch) is batch


def test_where_nothing_is_spared_most_batches_pass_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    look = FirstOfBatch._first
    monkeypatch.setattr(
        FirstOfBatch, "_first", lambda self, table: looks.append(1) or look(self, table)
    )
    thinning = FirstOfBatch(1, [("v", "descending")], ["k"])
    apart = Columns(pa.record_batch({"k": ["a", "b"], "v": [1, 2]}))
    alike = Columns(pa.record_batch({"k": ["a", "a"], "v": [1, 2]}))
    for _ in range(640):
        assert thinning(apart) is apart
    assert 10 <= len(looks) < 20
    spared = [len(thinning(alike)) for _ in range(100)]
    assert spared[64:] == [1] * 36, "it never looks again"


def job(parallelism: int = 2) -> tuple[rt.Environment, rt.CollectSink]:
    env, out = rt.Environment("ranked", parallelism=parallelism), rt.CollectSink()
    rows = [{"k": n % 3, "v": n, "w": 0} for n in range(300)]
    source = env.source(rt.CollectionSource(pa.Table.from_pylist(rows), splits=2), uid="rows")
    source.key_by("k").top_n(2, by="v", uid="top").sink(out, uid="out")
    return env, out


def test_a_job_ranks_the_same_of_fewer_records(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = []
    process = TopNOperator.process
    monkeypatch.setattr(
        TopNOperator,
        "process",
        lambda self, batch, index: arrived.append(len(batch)) or process(self, batch, index),
    )
    env, out = job()
    env.execute(runner="inline")
    assert sum(arrived) < 100
    last = {(row["k"], row["rank"]): row["v"] for row in out.rows}
    assert last == {(k, rank): 300 - 3 * rank + k for k in range(3) for rank in (1, 2)}


@pytest.mark.parametrize("alone", [False, True])
def test_who_may_have_to_send_again_leaves_nothing_out(alone: bool) -> None:
    """Batches would be others then, and so would be what is left out."""
    env, _ = job()
    graph = build_execution_graph(env.graph())
    ports = LocalPorts(HeldClock(), lambda upload: None, lambda subtask: None)
    id = SubtaskId(0, 0)
    package = JobPackage(
        cloudpickle.dumps(graph),
        rt.Options(),
        MODES,
        None,
        alone=frozenset({id} if alone else ()),
    )
    built = assemble(package, Deployment(1), id, ports, TimedPacer(1.0), lambda channel: None)
    [link] = built.subtask.outputs.links
    assert (link._thinning is None) == alone
