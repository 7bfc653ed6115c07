"""Keyed operators from snapshot to restore."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import minirt as rt
from minirt.data.batch import Batch, Rows
from minirt.functions import KeyedContext
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import OperatorContext
from minirt.operators.keyed_process import KeyedProcessOperator


class Sums(rt.KeyedProcess):
    """Its state is called like a time domain, which is nobody else's business."""

    event = rt.ValueState(0)

    def process(self, record: int, ctx: KeyedContext) -> None:
        self.event.value += record
        ctx.set_timer(100)
        ctx.set_processing_timer(5)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> list[Any]:
        return [(ctx.domain, timestamp, ctx.key, self.event.value)]


def operator(emitted: list[Any]) -> KeyedProcessOperator:
    def emit(batch: Batch) -> None:
        emitted.extend(batch.rows().records)

    ctx = OperatorContext("sums", "sums", 0, 1, 8, 1, lambda: 0.0, False, emit, lambda tag: emit)
    by_parity = KeySelector(function=lambda record: record % 2)
    return KeyedProcessOperator(replace(ctx, keys=(by_parity,)), Sums())


def test_state_and_timers_of_both_domains_come_back() -> None:
    before = operator([])
    before.open()
    before.process(Rows([1, 2, 3], [1, 2, 3]), 0)
    emitted: list[Any] = []
    after = operator(emitted)
    after.restore(before.snapshot(), exact=True)
    after.open()
    assert after.next_processing_time == 5
    for _ in (*after.on_processing_time(5), *after.on_watermark(100)):
        pass
    assert emitted == [
        ("processing", 5, 1, 4),
        ("processing", 5, 0, 2),
        ("event", 100, 1, 4),
        ("event", 100, 0, 2),
    ]
