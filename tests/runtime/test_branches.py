"""Chains with branches: each operator hears what it would hear in a chain of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.data.batch import Batch, Rows
from minirt.graph.planner import build_execution_graph
from minirt.operators import Form, Operator, OperatorContext, OperatorSpec, StateDealing, Step
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.runtime.subtask.chain import Chain
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing import TransactionalSink
from tests.runtime.campaign import read_files
from tests.runtime.stepped import ONE_RESTART, SteppedJob

COUNT = 30
TIMED = rt.Watermarks.monotonous(timestamp=lambda n: n, emit="per record")
Heard = dict[str, list[Any]]
HEARD: dict[str, Heard] = {}
"""What the operators of a job have heard, by its name. A job gets a copy of all that it is made of."""


@dataclass(frozen=True, slots=True)
class Listening(OperatorSpec):
    """Hands on all records, and writes down what it hears."""

    kind: ClassVar = "listening"
    inputs: ClassVar = 1
    state: ClassVar = StateDealing.NONE
    takes: ClassVar = Form.ROWS

    job: str

    def build(self, ctx: OperatorContext) -> Operator:
        return ListeningOperator(ctx, HEARD[self.job].setdefault(ctx.uid, []))


class ListeningOperator(Operator):
    def __init__(self, ctx: OperatorContext, heard: list[Any]) -> None:
        super().__init__(ctx)
        self._heard = heard

    def process(self, batch: Batch, input_index: int) -> None:
        rows = batch.rows()
        self._heard += rows.records
        self.ctx.emit(Rows(rows.records, rows.timestamps))

    def on_watermark(self, watermark: int) -> Iterator[Step]:
        self._heard.append(("watermark", watermark))
        yield

    def on_idle(self, idle: bool) -> Iterable[Step]:
        self._heard.append(("idle", idle))
        return ()

    def on_end(self) -> Iterable[Step]:
        self._heard.append("end")
        return ()


def three_branches(job: str, **how: Any) -> rt.Environment:
    """Two branches, of which one has two again, and a link."""
    HEARD[job] = {}
    env = rt.Environment()
    read = env.source(
        rt.CollectionSource([*range(COUNT)]), uid="read", watermarks=TIMED, parallelism=1
    )
    one = read.apply(Listening(job), uid="one", **how)
    two = read.apply(Listening(job), uid="two", **how)
    for uid, stream in {"three": one, "four": one, "five": two}.items():
        listening = stream.apply(Listening(job), uid=uid, **how)
        listening.sink(rt.DiscardSink(), uid=f"{uid}-out", **how)
    read.rebalance().apply(Listening(job), uid="linked").sink(rt.DiscardSink(), uid="linked-out")
    return env


def test_each_operator_hears_what_it_hears_in_a_chain_of_its_own(tmp_path: Path) -> None:
    SteppedJob(three_branches("together"), tmp_path / "together").finish()
    SteppedJob(three_branches("apart", chain=False), tmp_path / "apart").finish()
    together, apart = HEARD["together"], HEARD["apart"]
    assert together.keys() == {"one", "two", "three", "four", "five", "linked"}
    assert together == apart
    for heard in together.values():
        assert [each for each in heard if isinstance(each, int)] == [*range(COUNT)]
        marks = [each[1] for each in heard if isinstance(each, tuple) and each[0] == "watermark"]
        assert marks == sorted({*marks})
        assert len(marks) > COUNT / 2
        assert heard[-2:] == [("watermark", MAX_WATERMARK), "end"]


def test_a_branch_that_hears_no_watermarks_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fed = Chain.pass_time

    def first_branch_only(self: Chain, *args: Any, **named: Any) -> Iterator[Step]:
        known = self._fed
        self._fed = [pair for pair in known if pair[1].ctx.uid not in ("two", "five")]
        yield from fed(self, *args, **named)
        self._fed = known

    monkeypatch.setattr(Chain, "pass_time", first_branch_only)
    with pytest.raises(AssertionError):
        test_each_operator_hears_what_it_hears_in_a_chain_of_its_own(tmp_path)


async def never(number: int) -> int:
    await asyncio.get_running_loop().create_future()
    return number


class Due(rt.KeyedProcess):
    """Gives out each record once event time has reached it."""

    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        ctx.set_timer(record)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[int]:
        yield timestamp


def subtask_of(job: SteppedJob, head: str) -> Subtask:
    [vertex] = [v.id for v in job.graph.vertices if v.operators[0].uid == head]
    return next(subtask for subtask in job.subtasks if subtask.id.vertex == vertex)


@pytest.mark.parametrize("side", [False, True])
def test_a_branch_that_holds_event_time_holds_that_of_no_other(side: bool, tmp_path: Path) -> None:
    """Requests without an answer: what is behind the other branch goes on, as far as records are read."""
    env = rt.Environment()
    read = env.source(rt.CollectionSource([*range(COUNT)]), uid="read", watermarks=TIMED)
    how: Any = {"timeout": "1h", "on_timeout": "side"} if side else {"timeout": None}
    asked = read.map_async(never, capacity=10, uid="asked", **how)
    passed = read.map(lambda n: n, uid="passed")
    for uid, stream in {"behind-asked": asked, "behind-passed": passed}.items():
        due = stream.key_by(lambda n: 0).process(Due(), uid=uid)
        due.sink(rt.DiscardSink(), uid=f"{uid}-out")
    if side:
        late = asked.side_output("timeout").key_by(lambda n: 0).process(Due(), uid="late")
        late.sink(rt.DiscardSink(), uid="late-out")
    job = SteppedJob(env, tmp_path)
    assert job.graph.vertices[0].name == "CollectionSource > (map_async: never, map)"
    for _ in range(100):
        job.work(1)
        if subtask_of(job, "behind-passed").metrics.watermark == 8:
            break
    assert subtask_of(job, "behind-passed").metrics.records_in == 10
    assert subtask_of(job, "behind-asked").metrics.watermark is None
    if side:
        assert subtask_of(job, "late").metrics.watermark is None
    read_by = subtask_of(job, "read")
    assert read_by.metrics.watermark is None, "the branch that is furthest behind"
    assert read_by.metrics.records_in == 10, "there is room in no branch if there is none in one"
    job.leave()


async def tripled(number: int) -> int:
    await asyncio.sleep(number % 4 / 10)
    return 3 * number


def test_answers_in_a_branch_come_once_whatever_fails(tmp_path: Path) -> None:
    def job(out: rt.Sink, **kept: Any) -> SteppedJob:
        env = rt.Environment(parallelism=2)
        read = env.source(rt.SequenceSource(COUNT, splits=2), uid="read")
        asked = read.map_async(tripled, capacity=3, timeout=None, uid="asked", ordered=False)
        doubled = read.map(lambda n: -n, uid="doubled")
        asked.union(doubled).sink(out, uid="out")
        return SteppedJob(env, tmp_path, **kept)

    out = TransactionalSink()
    stepped = job(out, restart=ONE_RESTART, mode="aligned")
    stepped.work(5)
    stepped.checkpoint(working=True)
    stepped.work(3)
    stepped.crash()
    stepped.finish()
    assert Counter(out.rows) == Counter([3 * n for n in range(COUNT)] + [-n for n in range(COUNT)])


RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]


@pytest.mark.parametrize("runner", RUNNERS)
def test_several_sinks_of_a_chain_commit_each_their_own(runner: Any, tmp_path: Path) -> None:
    """Columns to one sink, rows to another, with checkpoints on the way."""
    env = rt.Environment(parallelism=2)
    rows = env.source(rt.SequenceSource(500, splits=4)).map(lambda n: {"n": n})
    rows.filter(pc.field("n") < 100).sink(rt.JsonlSink(tmp_path / "few"), uid="few")
    rows.map(lambda row: {"n": -row["n"]}).sink(rt.JsonlSink(tmp_path / "all"), uid="all")
    [vertex] = build_execution_graph(env.graph()).vertices
    assert len(vertex.operators) == 6
    checkpointing = rt.Checkpointing(tmp_path / "checkpoints", interval="10ms")
    env.execute(runner=runner, checkpointing=checkpointing)
    assert sorted(row["n"] for row in read_files(tmp_path / "few")) == [*range(100)]
    assert sorted(-row["n"] for row in read_files(tmp_path / "all")) == [*range(500)]
