"""What a function returns for a record is several records, or refused."""

from __future__ import annotations

from collections import Counter, UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import JobFailedError


class Pair(NamedTuple):
    one: int
    other: int


class Plain:
    """A record of a class that says nothing of iteration."""


class Returning(rt.Process):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, record: Any, ctx: rt.ProcessContext) -> Any:
        return self.make()


class ReturningByKey(rt.KeyedProcess):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        ctx.set_timer(0)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Any:
        return self.make()


OPERATORS = {
    "flat_map": lambda s, make: s.flat_map(lambda _: make(), name="culprit"),
    "connected": lambda s, make: s.connect(s).flat_map(
        lambda _: make(), lambda _: [], name="culprit"
    ),
    "process": lambda s, make: s.process(Returning(make), name="culprit"),
    "timer": lambda s, make: s.key_by(str).process(ReturningByKey(make), name="culprit"),
}


# Made where the function runs: a memoryview comes to a worker as bytes.
SINGLE: list[Callable[[], Any]] = [
    lambda: "text",
    lambda: "",
    lambda: b"bytes",
    lambda: bytearray(b"x"),
    lambda: memoryview(b"x"),
    lambda: {"a": 1},
    lambda: Counter("a"),
    lambda: UserDict(a=1),
    lambda: MappingProxyType({"a": 1}),
    lambda: Pair(1, 2),
    lambda: pa.table({"a": [1]}),
    lambda: pa.table({"a": [1]}).to_batches()[0],
    lambda: 7,
    lambda: 0.5,
    lambda: Plain(),
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("make", SINGLE, ids=lambda make: type(make()).__name__)
def test_a_single_record_is_refused(operator: str, make: Callable[[], Any]) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    watermarks = rt.Watermarks.monotonous(timestamp=lambda n: n)
    source = env.source(rt.SequenceSource(3), watermarks=watermarks)
    OPERATORS[operator](source, make).sink(out)
    kind = type(make()).__name__
    message = f"culprit failed on record(.|\\n)*an? {kind} was returned where several records"
    with pytest.raises(JobFailedError, match=message):
        env.execute(runner="inline")


@pytest.mark.parametrize("operator", ["flat_map", "connected"])
def test_a_flat_map_that_returns_nothing_is_told_what_to_return(operator: str) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    OPERATORS[operator](env.source(rt.SequenceSource(3)), lambda: None).sink(out)
    with pytest.raises(
        JobFailedError, match=r"None was returned .* return a list of records, \[\] "
    ):
        env.execute(runner="inline")
