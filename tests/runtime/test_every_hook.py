"""Whatever users write may raise: the first line of the error names the operator, in each runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Batch
from minirt.graph.operator_spec import Form, OperatorSpec, StateDealing
from minirt.io.base import Prepared, SinkContext
from minirt.operators import Operator
from minirt.operators.common.base import end_error
from minirt.protocol.preparing import FATAL

MARKS = rt.Watermarks.monotonous(timestamp="t")


def broken(*given: Any, **named: Any) -> Any:
    raise ValueError("a stone in the way")


def broken_object(base: type, **methods: Any) -> Any:
    return type("Broken", (base,), methods)()


def nothing(self: Any, *given: Any) -> list[Any]:
    return []


def sets_a_timer(self: Any, record: Any, ctx: Any) -> list[Any]:
    ctx.set_timer(record["t"] + 1)
    return []


async def awaited(*given: Any) -> Any:
    broken()


async def answer(self: Any, record: Any) -> Any:
    return record


class Writer(rt.SinkWriter):
    def __init__(self, where: str) -> None:
        self.where = where

    def write(self, batch: Batch) -> None:
        if self.where == "write":
            broken()

    def release(self) -> None:
        if self.where == "release":
            broken()

    def prepare(self, checkpoint_id: int) -> Prepared:
        if self.where == "prepare":
            broken()
        return Prepared([{"n": 1}], broken if self.where == "finish" else None)


class Sink(rt.Sink):
    def __init__(self, where: str) -> None:
        self.where = where

    def open_writer(self, context: SinkContext) -> rt.SinkWriter:
        if self.where == "open":
            broken()
        return Writer(self.where)

    def commit(self, handles: Any) -> None:
        if self.where == "commit":
            broken()


class Source(rt.Source):
    def __init__(self, where: str) -> None:
        self.where = where

    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        if self.where == "plan":
            broken()
        return [rt.Split("one")]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        if self.where == "open":
            broken()
        return Reader()


class Reader(rt.SplitReader):
    offset = None

    def read(self) -> None:
        broken()


class Own(OperatorSpec):
    kind = "own"
    inputs = 1
    state = StateDealing.NONE
    takes = Form.ROWS

    def build(self, ctx: Any) -> Operator:
        return OwnOperator(ctx)


class OwnOperator(Operator):
    def process(self, batch: Batch, input_index: int) -> None:
        broken()


class Folded(rt.Fold):
    of = merge = result = broken


def keyed(stream: Any) -> Any:
    return stream.key_by("k")


HOOKS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(broken, uid="x"),
    "filter": lambda s: s.filter(broken, uid="x"),
    "flat_map": lambda s: s.flat_map(broken, uid="x"),
    "map_batches": lambda s: s.map_batches(broken, size=2, uid="x"),
    "map_batches of columns": lambda s: s.map_batches(broken, "columns", uid="x"),
    "map_async": lambda s: s.map_async(awaited, uid="x"),
    "AsyncFunction.open": lambda s: s.map_async(
        broken_object(rt.AsyncFunction, open=awaited, __call__=answer), uid="x"
    ),
    "key": lambda s: s.key_by(broken).map(str, uid="x"),
    "partitioner": lambda s: s.partition_custom(broken, "k").map(str, uid="x"),
    "reduce": lambda s: keyed(s).reduce(broken, uid="x"),
    "process": lambda s: s.process(broken_object(rt.Process, process=broken), uid="x"),
    "open": lambda s: s.process(broken_object(rt.Process, open=broken, process=nothing), uid="x"),
    "keyed process": lambda s: keyed(s).process(
        broken_object(rt.KeyedProcess, process=broken), uid="x"
    ),
    "timer": lambda s: keyed(s).process(
        broken_object(rt.KeyedProcess, process=sets_a_timer, on_timer=broken), uid="x"
    ),
    "two inputs": lambda s: (
        s.connect(s)
        .key_by("k", "k")
        .process(
            broken_object(rt.KeyedCoProcess, process_left=nothing, process_right=broken), uid="x"
        )
    ),
    "fold": lambda s: keyed(s).aggregate(Folded("t", "n", pa.int64()), uid="x"),
    "window": lambda s: (
        keyed(s).window(rt.Tumbling("1s")).process(broken_object(rt.WindowProcess, process=broken))
    ),
    "window reduce": lambda s: keyed(s).window(rt.Session("1s")).reduce(broken, uid="x"),
    "own operator": lambda s: s.apply(Own(), name="x"),
}
WAYS = {
    "key": "CollectionSource",
    "partitioner": "CollectionSource",
    "window": "row_window",
    "own operator": "CollectionSource > x",
}
"""What tells the operator, if it is not its uid."""


def first_line(env: rt.Environment, runner: Any, tmp_path: Any) -> str:
    checkpointing = rt.Checkpointing(tmp_path, interval="1h", tolerable_failures=0)
    with pytest.raises(rt.JobFailedError, match="a stone in the way") as caught:
        env.execute(runner=runner, checkpointing=checkpointing, restart=rt.Restart.none())
    return str(caught.value).splitlines()[0]


def names_its_operator(hook: str, runner: Any, tmp_path: Any) -> None:
    env = rt.Environment("j", parallelism=2)
    records = [{"k": n % 2, "t": n} for n in range(6)]
    source = env.source(rt.CollectionSource(records, splits=2), watermarks=MARKS)
    HOOKS[hook](source).sink(rt.DiscardSink())
    told = first_line(env, runner, tmp_path)
    assert WAYS.get(hook, "uid x") in told, told


@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_of_an_operator_names_it(hook: str, tmp_path: Any) -> None:
    names_its_operator(hook, "inline", tmp_path)


@pytest.mark.processes
def test_so_it_does_in_worker_processes(tmp_path: Any) -> None:
    names_its_operator("own operator", "processes", tmp_path)


@pytest.mark.parametrize("where", ["open", "write", "release", "prepare", "finish", "commit"])
def test_an_error_of_a_sink_names_it(where: str, tmp_path: Any) -> None:
    env = rt.Environment("j")
    env.source(rt.SequenceSource(3)).sink(Sink(where), uid="the-sink")
    assert "the-sink" in first_line(env, "inline", tmp_path)


def test_an_error_of_a_source_or_sink_does_not_end_a_job_that_is_prepared() -> None:
    """What they reach may be down for a while: then a restart mends it."""
    for error in (ValueError("x"), OSError("x"), rt.StorageError("x")):
        assert not isinstance(end_error("out", "could not commit", error), FATAL)


@pytest.mark.parametrize("where", ["plan", "open", "read"])
def test_an_error_of_a_source_names_it(where: str, tmp_path: Any) -> None:
    env = rt.Environment("j")
    env.source(Source(where), uid="the-source").sink(rt.DiscardSink())
    assert "the-source" in first_line(env, "inline", tmp_path)
