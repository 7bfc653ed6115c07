"""What a function returns for a record is several records, or refused."""

from __future__ import annotations

from collections import Counter, UserDict
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import JobFailedError


class Pair(NamedTuple):
    one: int
    other: int


class Returning(rt.Process):
    def __init__(self, result: Any) -> None:
        self.result = result

    def process(self, record: Any, ctx: rt.ProcessContext) -> Any:
        return self.result


class ReturningByKey(rt.KeyedProcess):
    def __init__(self, result: Any) -> None:
        self.result = result

    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        ctx.set_timer(0)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Any:
        return self.result


OPERATORS = {
    "flat_map": lambda s, result: s.flat_map(lambda _: result, name="culprit"),
    "connected": lambda s, result: s.connect(s).flat_map(
        lambda _: result, lambda _: [], name="culprit"
    ),
    "process": lambda s, result: s.process(Returning(result), name="culprit"),
    "timer": lambda s, result: s.key_by(str).process(ReturningByKey(result), name="culprit"),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    "result",
    [
        *("text", b"bytes", bytearray(b"x"), {"a": 1}, Counter("a"), ""),
        *(UserDict(a=1), MappingProxyType({"a": 1}), Pair(1, 2)),
        *(pa.table({"a": [1]}), pa.table({"a": [1]}).to_batches()[0]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_a_single_record_that_can_be_iterated_is_refused(operator: str, result: Any) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    watermarks = rt.Watermarks.monotonous(timestamp=lambda n: n)
    source = env.source(rt.SequenceSource(3), watermarks=watermarks)
    OPERATORS[operator](source, result).sink(out)
    kind = type(result).__name__
    message = f"culprit failed on record(.|\\n)*a {kind} was returned where several records"
    with pytest.raises(JobFailedError, match=message):
        env.execute(runner="inline")
