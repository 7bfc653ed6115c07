"""Partitionings of another package run like minirt's own: in every mode, through crashes and rescales."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.errors import UserCodeError
from minirt.modes import MODES
from minirt.partitionings import DealingSite, KeySelector, Order
from minirt.testing import Faults, TransactionalSink, simulate
from minirt.testing.conformance import check_mode
from minirt.testing.conformance.edges import EdgeKind, Key, registered_edge
from minirt.testing.conformance.sources import NumberedSource, numbered
from tests.campaigns import modes, runs, sampled
from tests.partitionings.outside import ByRange, Everywhere, Mirrored

SPLITS, COUNT, SEEDS, RUNS = 3, 12, sampled(3), runs(6)
BOUNDS = (3, 6, 7, 10)
TABLE = pa.table({"n": range(36), "place": [n % 12 for n in range(36)]})

Record = tuple[str, int, int]
Row = tuple[Any, int, int]
"""A record, the subtask that it has come to, and how many there were."""
Job = Callable[[rt.Sink, int], rt.Environment]


class Where(rt.Process):
    """Tells which subtask a record has come to."""

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism

    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Row]:
        yield (record, ctx.subtask, self.parallelism)


def number(record: Record) -> int:
    return record[2]


def rows(sink: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment("ranges", parallelism=parallelism, max_parallelism=16)
    source = env.source(NumberedSource("numbers", SPLITS, COUNT), uid="numbers")
    dealt = source.partition_by(ByRange(KeySelector(function=number), BOUNDS))
    dealt.process(Where(parallelism), uid="where").sink(sink, uid="out")
    return env


def columns(sink: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment("ranges", parallelism=parallelism, max_parallelism=16)
    source = env.source(rt.CollectionSource(TABLE, splits=SPLITS), uid="numbers")
    dealt = source.partition_by(ByRange(KeySelector(("place",)), BOUNDS))
    marked = dealt.with_column("twice", pc.field("n") * 2, uid="twice")
    marked.process(Where(parallelism), uid="where").sink(sink, uid="out")
    return env


def key_in(record: Any) -> int:
    return record["place"] if isinstance(record, dict) else number(record)


WANTED = {
    rows: Counter(map(repr, numbered("numbers", SPLITS, COUNT))),
    columns: Counter(repr({**row, "twice": 2 * row["n"]}) for row in TABLE.to_pylist()),
}


def judge(job: Job, got: list[Row], *, exactly_once: bool) -> None:
    found, wanted = Counter(repr(record) for record, _, _ in got), WANTED[job]
    assert not wanted - found, "lost"
    assert found.keys() == wanted.keys()
    if exactly_once:
        assert found == wanted, "duplicated"
    for record, subtask, parallelism in got:
        assert subtask == bisect_right(BOUNDS, key_in(record)) * parallelism // 5


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("job", [rows, columns])
def test_each_record_comes_once_to_the_subtask_of_its_range(job: Job, mode: str) -> None:
    restarts = rescales = 0
    for seed in range(SEEDS):
        random, sink = Random(f"ranges {seed}"), TransactionalSink()
        first, *rescaled = (job(sink, width) for width in random.sample(range(1, 6), 3))
        checkpointing = rt.Checkpointing("simulated://", interval="20ms", mode=mode)
        result = simulate(
            first, seed=seed, checkpointing=checkpointing, faults=Faults(), rescaled=rescaled
        ).check()
        restarts, rescales = restarts + result.restarts, rescales + result.rescales
        judge(job, sink.rows, exactly_once=MODES[mode].exactly_once)
    assert restarts > SEEDS
    assert rescales > 0


@pytest.mark.processes
@pytest.mark.parametrize("job", [rows, columns])
def test_it_runs_in_worker_processes(job: Job, tmp_path: Path) -> None:
    out = rt.CollectSink()
    env = job(out, 2)
    env.execute(checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="50ms"))
    judge(job, out.rows, exactly_once=True)


# Drawn into random jobs, whose checkpoints are looked into and whose edges are edited.


class RangeEdge(EdgeKind):
    name: ClassVar = "range"
    by_key: ClassVar = True

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        selector = KeySelector((key,)) if isinstance(key, str) else KeySelector(function=key)
        return stream.partition_by(ByRange(selector, (1, 3)))


class MirroredEdge(EdgeKind):
    name: ClassVar = "mirrored"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.partition_by(Mirrored())


class StraightEdge(EdgeKind):
    name: ClassVar = "straight"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.partition_by(Mirrored(ordered=True))

    def straight(self, senders: int, receivers: int) -> bool:
        return senders >= receivers


class EverywhereEdge(EdgeKind):
    name: ClassVar = "everywhere"
    copies: ClassVar = True

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.partition_by(Everywhere())


@pytest.fixture
def drawn() -> Iterator[None]:
    with (
        registered_edge(RangeEdge()),
        registered_edge(MirroredEdge()),
        registered_edge(StraightEdge()),
        registered_edge(EverywhereEdge()),
    ):
        yield


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("mode", modes())
def test_random_jobs_lose_and_repeat_nothing(mode: str) -> None:
    tally = check_mode(MODES[mode], runs=RUNS, start=sorted(MODES).index(mode) * RUNS)
    assert tally.restarts > 0
    assert tally.rescales > 0
    assert tally.lost == tally.duplicated == 0
    if mode == "unaligned":
        assert tally.in_flight > 0


def stepwise(partitioning: Any) -> rt.Stream:
    return rt.Environment(parallelism=2).source(rt.SequenceSource(9)).partition_by(partitioning)


def test_the_plan_shows_it() -> None:
    text = rows(rt.CollectSink(), 2).plan()
    assert "range by function number, 4 channels" in text
    assert "not chained: records go where their key sends them" in text
    assert "captured records at another parallelism: each is dealt again" in text


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match="expected Partitioning, got 'n'"):
        stepwise("n")
    with pytest.raises(rt.ConfigurationError, match="dealt twice, by everywhere and then by rebal"):
        stepwise(Everywhere()).rebalance()
    env = rt.Environment()
    table = env.source(rt.CollectionSource(TABLE))
    with pytest.raises(rt.ConfigurationError, match="m"):
        table.partition_by(ByRange(KeySelector(("m",)), BOUNDS))

    class Own(Everywhere):
        name: ClassVar = "broadcast"

    with pytest.raises(rt.ConfigurationError, match="'broadcast' is the name of a partitioning of"):
        stepwise(Own())


class Backwards(Mirrored):
    name: ClassVar = "backwards"

    def order(self, senders: int, receivers: int) -> Order:
        return Order.BY_KEY


def test_facts_that_contradict_each_other_are_refused_where_the_job_is_written() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"order BY_KEY is lost unless .* DEALT_AGAIN"):
        stepwise(Backwards()).map(str)


class Wrong(ByRange):
    name: ClassVar = "wrong"

    def targets(self, keys: Any, receivers: int) -> Any:
        return self.bounds

    def column_targets(self, columns: Any, receivers: int) -> Any:
        return self.bounds


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ((0, 1, 2), "returned 2; it must return an index from 0 to 1"),
        ((0, -1, 0), "returned -1; it must"),
        ((0, 1, "1"), "returned '1'; it must"),
        ((1,), "returned 1 targets for 3 records"),
    ],
)
def test_targets_that_are_none_are_refused(targets: Any, message: str) -> None:
    site = DealingSite([Rows([], []), Rows([], [])], 128, "read", 16)  # type: ignore[list-item]
    dealer = Wrong(KeySelector(("n",)), targets).dealer(site)
    table = pa.RecordBatch.from_pylist([{"n": n} for n in range(3)])
    with pytest.raises(UserCodeError, match=f"operator read: the partitioner {message}"):
        dealer.rows(Rows(table.to_pylist()))
    with pytest.raises(UserCodeError, match=f"operator read: the partitioner {message}"):
        list(dealer.columns(Columns(table)))


def test_a_record_that_cannot_be_dealt_is_named() -> None:
    env = rt.Environment(parallelism=2)
    read = env.source(rt.CollectionSource([{"n": 1}, {"n": "x"}]), parallelism=1)
    dealt = read.partition_by(ByRange(KeySelector(("n",)), BOUNDS))
    dealt.map(str, parallelism=2).sink(rt.CollectSink())
    with pytest.raises(rt.JobFailedError, match=r"partitioner, failed on record \{'n': 'x'\}"):
        env.execute(runner="inline")
