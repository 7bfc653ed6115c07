"""What process functions emit: passed on in bounded pieces, and blamed on the right record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import minirt as rt
from minirt.data.batch import Batch, Rows
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.results import CHUNK_RECORDS
from minirt.operators.flat_map import FlatMapOperator
from minirt.operators.keyed_process import KeyedProcessOperator
from minirt.operators.process import ProcessOperator

MANY = 3 * CHUNK_RECORDS + 1


class Flood:
    """Yields very many results for a record, and counts them."""

    def __init__(self) -> None:
        self.produced = 0

    def __call__(self, record: int) -> Iterator[tuple[int, int]]:
        for number in range(MANY):
            self.produced += 1
            yield (record, number)


class FloodingProcess(rt.Process):
    def __init__(self, flood: Flood) -> None:
        self._flood = flood

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterator[Any]:
        yield from self._flood(record)


class FloodingTimer(rt.KeyedProcess):
    def __init__(self, flood: Flood) -> None:
        self._flood = flood

    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        ctx.set_timer(record)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterator[Any]:
        yield from self._flood(timestamp)


def context(emit: Callable[[Batch], None]) -> OperatorContext:
    return OperatorContext("op", "op", 0, 1, 8, 1, lambda: 0.0, False, emit, lambda tag: emit)


def flat_map(ctx: OperatorContext, flood: Flood) -> Operator:
    return FlatMapOperator(ctx, flood)


def process(ctx: OperatorContext, flood: Flood) -> Operator:
    return ProcessOperator(ctx, FloodingProcess(flood))


def timers(ctx: OperatorContext, flood: Flood) -> Operator:
    return KeyedProcessOperator(
        replace(ctx, keys=(KeySelector(function=lambda record: record),)), FloodingTimer(flood)
    )


@pytest.mark.parametrize("build", [flat_map, process, timers])
@pytest.mark.parametrize("times", [None, [5, 6]])
def test_a_record_that_becomes_very_many_is_passed_on_in_pieces(
    build: Callable[[OperatorContext, Flood], Operator], times: list[int] | None
) -> None:
    flood, emitted = Flood(), list[Rows]()
    ahead = 0

    def emit(batch: Batch) -> None:
        nonlocal ahead
        emitted.append(batch.rows())
        ahead = max(ahead, flood.produced - sum(map(len, emitted)))

    operator = build(context(emit), flood)
    operator.process(Rows([5, 6], times), 0)
    for _ in operator.on_watermark(10):
        pass
    expected = [(record, number) for record in (5, 6) for number in range(MANY)]
    assert [record for rows in emitted for record in rows.records] == expected
    assert max(map(len, emitted)) <= CHUNK_RECORDS
    assert ahead <= 1
    stamped = [time for rows in emitted for time in rows.timestamps or ()]
    timed = times is not None or build is timers
    assert stamped == ([record for record, _ in expected] if timed else [])


class LateFailure(rt.KeyedProcess):
    """Fails after its first result."""

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterator[int]:
        yield record
        ctx.set_timer(record)
        if record == 7:
            raise ValueError("seven")

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterator[int]:
        yield timestamp
        raise ValueError("too late")


def test_an_error_in_the_middle_of_a_generator_names_its_record() -> None:
    operator = KeyedProcessOperator(
        replace(context(lambda batch: None), keys=(KeySelector(function=str),)), LateFailure()
    )
    with pytest.raises(UserCodeError, match=r"op failed on record 7\n(?s:.)*ValueError: seven"):
        operator.process(Rows([6, 7, 8], [1, 1, 1]), 0)


def test_an_error_in_a_timer_names_time_and_key() -> None:
    operator = KeyedProcessOperator(
        replace(context(lambda batch: None), keys=(KeySelector(function=str),)), LateFailure()
    )
    operator.process(Rows([6], [1]), 0)
    with pytest.raises(UserCodeError, match=r"timer at 6 of key '6'(?s:.)*ValueError: too late"):
        list(operator.on_watermark(10))
