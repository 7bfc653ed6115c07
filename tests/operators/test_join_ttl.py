"""Joins with a time to live: what has expired is never seen, and is given out once if it had no partner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minirt.data.batch import Batch, Columns
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.join_bounds import Lasting
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.state.sections import section_bytes

TTL_S = 10.0


class Joined:
    """A join of one subtask, whose clock stands still until it is set."""

    def __init__(self, how: Any, restore: Mapping[str, bytes] | None = None, at: float = 1_000.0):
        self.at = at
        self.out: list[Any] = []
        ctx = OperatorContext(
            label="join",
            uid="join",
            subtask=0,
            parallelism=1,
            max_parallelism=8,
            generation=1 if restore is None else 2,
            now=lambda: self.at,
            allow_pickle=False,
            emit=self._keep,
            side=lambda tag: self._keep,
            monotonic=lambda: self.at,
            keys=(KeySelector(("k",)),) * 2,
        )
        columns = (
            pa.schema([("k", pa.int64()), ("l", pa.int64())]),
            pa.schema([("k", pa.int64()), ("r", pa.int64())]),
        )
        self.operator: Operator = TtlJoinSpec(Lasting(int(TTL_S * 1000)), how, "_r", columns).build(
            ctx
        )
        if restore is not None:
            self.operator.restore(restore, exact=True)
        self.operator.open()

    def feed(self, side: int, key: int | None, value: int, time: int | None = None) -> None:
        table = pa.RecordBatch.from_pylist(
            [{"k": key, "lr"[side]: value}],
            pa.schema([("k", pa.int64()), ("lr"[side], pa.int64())]),
        )
        times = None if time is None else np.array([time], np.int64)
        self.operator.process(Columns(table, times), side)

    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        while (due := self.operator.due_at) is not None and due <= self.at:
            for _ in self.operator.on_due() or ():
                pass

    def stored(self) -> dict[str, bytes]:
        return {name: section_bytes(data) for name, data in self.operator.snapshot().items()}

    @property
    def waiting(self) -> int:
        return self.operator.ctx.metrics.waiting_records

    def _keep(self, batch: Batch) -> None:
        rows = batch.rows()
        times = rows.timestamps or [None] * len(rows)
        self.out += [(r.get("l"), r.get("r"), t) for r, t in zip(rows.records, times, strict=True)]


def test_what_has_expired_is_not_seen_though_it_is_still_there() -> None:
    join = Joined("inner")
    join.feed(0, 1, 7)
    join.at += TTL_S - 0.001
    join.feed(1, 1, 8)
    join.at += 0.001
    assert join.waiting == 2, "nobody has looked for what has expired yet"
    join.feed(1, 1, 9)
    assert join.out == [(7, 8, None)]
    join.pass_time(2 * TTL_S)
    assert join.waiting == 0
    assert join.operator.due_at is None


@pytest.mark.parametrize(
    ("how", "alone"),
    [
        ("left", {(7, None)}),
        ("right", {(None, 8)}),
        ("full", {(7, None), (None, 8)}),
        ("anti", {(7, None)}),
    ],
)
def test_a_record_without_partner_is_given_out_once_when_it_expires(how: str, alone: Any) -> None:
    join = Joined(how)
    join.feed(0, 1, 7)
    join.feed(1, 2, 8)
    join.feed(0, 3, 5)
    join.feed(1, 3, 6)
    join.pass_time(TTL_S - 0.001)
    pairs = {(5, 6)} if how in ("left", "right", "full") else set()
    assert {(left, right) for left, right, _ in join.out} == pairs
    join.pass_time(TTL_S)
    assert {(left, right) for left, right, _ in join.out} == pairs | alone
    assert len(join.out) == len(pairs | alone)
    assert join.waiting == 0


def test_time_goes_on_while_the_job_stands_still() -> None:
    before = Joined("left")
    before.feed(0, 1, 7)
    before.at += 4
    before.feed(0, 2, 8)
    stored = before.stored()
    after = Joined("left", stored, before.at + TTL_S - 4)
    after.feed(1, 1, 3)
    after.feed(1, 2, 4)
    assert after.out == [(8, 4, None)], "the first has expired meanwhile"
    after.pass_time(1)
    assert after.out == [(8, 4, None), (7, None, None)]
    # A clock that was set back does not make it live again.
    back = Joined("left", stored, before.at - 3)
    back.pass_time(TTL_S - 0.001)
    back.feed(1, 2, 5)
    back.pass_time(0.2)
    assert back.out == [(7, None, None), (8, 5, None)]


def test_results_have_the_time_of_the_newer_record_and_none_is_late() -> None:
    join = Joined("full")
    join.feed(0, 1, 7, time=50)
    join.feed(1, 1, 8, time=20)
    join.feed(0, 2, 9, time=60)
    join.feed(1, 3, 4)
    for _ in join.operator.on_watermark(500) or ():
        pass
    join.pass_time(2 * TTL_S)
    assert sorted(join.out, key=str) == [(7, 8, 50), (9, None, 501), (None, 4, None)]
