"""Joins with a time to live: what has expired is never seen, and is given out once if it had no partner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minirt.data.batch import Batch, Columns
from minirt.graph.keys import KeySelector
from minirt.operators import join as module
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.common.join_bounds import Lasting
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.protocol.watermarks import MAX_WATERMARK
from minirt.state import runs
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

    def pass_time(self, seconds: float, between: Callable[[], None] | None = None) -> None:
        """Everything that is due happens, and what `between` does after each piece of it."""
        self.at += seconds
        while (due := self.operator.due_at) is not None and due <= self.at:
            self.operator.on_due()
            if between is not None:
                between()

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


@pytest.mark.parametrize("watermark", [None, 500, MAX_WATERMARK])
@pytest.mark.parametrize("seed", range(10))
def test_each_record_is_given_out_once_though_others_come_while_it_is_freed(
    seed: int, watermark: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_KEYS", 2)
    monkeypatch.setattr(runs, "RUN_ROWS_MIN", 6)
    monkeypatch.setattr(runs, "RUN_ROWS_MAX", 12)
    random, join, fed = Random(seed), Joined("full"), 0

    def feed() -> None:
        nonlocal fed
        join.feed(random.choice((0, 1)), fed, fed)
        fed += 1

    pieces = 0

    def between() -> None:
        nonlocal pieces
        pieces += 1
        if fed < 90 and random.random() < 0.7:
            feed()
        if watermark is not None and pieces % 5 == 0:
            for _ in join.operator.on_watermark(watermark) or ():
                pass

    for _ in range(60):
        feed()
        join.at += random.choice((0, 0.2))
    join.pass_time(TTL_S - 3, between)
    join.pass_time(2, between)
    join.pass_time(3 * TTL_S)
    assert pieces > 4
    assert sorted(right if left is None else left for left, right, _ in join.out) == [*range(fed)]
    assert join.waiting == 0


def test_a_watermark_gives_out_what_has_expired_while_it_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHUNK_KEYS", 2)
    join = Joined("left")
    for key in range(11):
        join.feed(0, key, key)
        join.at += TTL_S - 1 if key == 4 else 0  # More than half of the run stays.
    join.at += 1.2
    join.operator.on_due()
    assert len(join.out) == 2
    for _ in join.operator.on_watermark(500) or ():
        pass
    assert sorted(left for left, _, _ in join.out) == [*range(5)]
    join.pass_time(2 * TTL_S)
    assert sorted(left for left, _, _ in join.out) == [*range(11)]
