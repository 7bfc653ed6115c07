"""Windows in one operator: what is given out when, what is late, and what a snapshot keeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.keys import key_group
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import OperatorContext
from minirt.operators.windows import tumbling
from minirt.operators.windows.frame import Task
from minirt.operators.windows.tumbling import TumblingFrame
from minirt.protocol.key_groups import group_range
from minirt.protocol.watermarks import MAX_WATERMARK


class Running:
    """A window operator, and what it has put out: (window start, key, count, timestamp)."""

    def __init__(self, tumbling: rt.Tumbling, subtask: int = 0, parallelism: int = 1) -> None:
        self.out: list[tuple[int, str, int, int]] = []
        self.late: list[tuple[str, int]] = []
        ctx = OperatorContext(
            "w",
            "w",
            subtask,
            parallelism,
            8,
            1,
            lambda: 0.0,
            False,
            self._emit,
            lambda _: self._side,
        )
        self.operator = TumblingFrame(
            replace(ctx, keys=(KeySelector(("k",)),)), Task(tumbling, (rt.Count("n"),))
        )

    def add(self, *records: tuple[str, int]) -> None:
        keys = pa.array([key for key, _ in records], pa.string())
        times = np.array([time for _, time in records], np.int64)
        self.operator.process(Columns(pa.RecordBatch.from_arrays([keys], ["k"]), times), 0)

    def advance(self, watermark: int) -> None:
        for _ in self.operator.on_watermark(watermark):
            pass

    def take_out(self) -> list[tuple[int, str, int, int]]:
        taken, self.out = sorted(self.out), []
        return taken

    def _emit(self, batch: Batch) -> None:
        rows = batch.rows()
        for row, time in zip(rows.records, rows.timestamps or (), strict=True):
            start = round(row["window_start"].timestamp() * 1000)
            assert row["window_end"].timestamp() * 1000 - start == self.operator._window.size_ms
            self.out.append((start, row["k"], row["n"], time))

    def _side(self, batch: Batch) -> None:
        rows = batch.rows()
        times = rows.timestamps or ()
        self.late += [(row["k"], time) for row, time in zip(rows.records, times, strict=True)]


def restored(old: list[Mapping[str, bytes]], tumbling: rt.Tumbling, **place: int) -> Running:
    running = Running(tumbling, **place)
    for sections in old:
        running.operator.restore(sections, exact=not place)
    return running


def test_results_come_with_the_watermark_that_ends_the_window() -> None:
    running = Running(rt.Tumbling("10ms", offset="3ms"))
    running.add(("a", 3), ("a", 12), ("b", 7), ("a", 13), ("a", 2))
    running.advance(11)
    assert running.take_out() == [(-7, "a", 1, 2)]
    running.advance(12)
    assert running.take_out() == [(3, "a", 2, 12), (3, "b", 1, 12)]
    running.advance(MAX_WATERMARK)
    assert running.take_out() == [(13, "a", 1, 22)]
    assert running.operator._tables == {}


def test_late_records_go_aside_and_are_counted() -> None:
    running = Running(rt.Tumbling("10ms"))
    running.add(("a", 5))
    running.advance(9)
    running.add(("a", 6), ("b", 10), ("c", 9))
    assert running.late == [("a", 6), ("c", 9)]
    assert running.operator.ctx.metrics.late_records == 2
    running.advance(MAX_WATERMARK)
    assert running.take_out() == [(0, "a", 1, 9), (10, "b", 1, 19)]


def test_with_allowed_lateness_results_are_given_out_once_more() -> None:
    running = Running(rt.Tumbling("10ms", allowed_lateness="5ms"))
    running.add(("a", 5), ("b", 5))
    running.advance(9)
    assert running.take_out() == [(0, "a", 1, 9), (0, "b", 1, 9)]
    running.add(("a", 6), ("a", 7))
    assert running.take_out() == [(0, "a", 3, 9)]
    running.advance(13)
    running.add(("a", 6))
    assert running.take_out() == [(0, "a", 4, 9)]
    running.advance(14)
    running.add(("a", 6))
    assert running.take_out() == []
    assert running.late == [("a", 6)]


def test_a_snapshot_between_two_chunks_of_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tumbling, "CHUNK_KEYS", 2)
    running = Running(rt.Tumbling("10ms"))
    running.add(*((key, 1) for key in "abcde"))
    firing = running.operator.on_watermark(9)
    next(firing)
    first = running.take_out()
    assert len(first) == 2
    later = restored([running.operator.snapshot()], rt.Tumbling("10ms"))
    later.advance(0)
    assert sorted(first + later.out) == [(0, key, 1, 9) for key in "abcde"]


def test_what_was_late_is_late_after_a_restore() -> None:
    running = Running(rt.Tumbling("10ms"))
    running.add(("a", 5))
    running.advance(9)
    later = restored([running.operator.snapshot()], rt.Tumbling("10ms"))
    later.add(("a", 6))
    assert later.late == [("a", 6)]


def test_the_end_of_event_time_is_not_restored() -> None:
    running = Running(rt.Tumbling("10ms"))
    running.advance(20)
    running.advance(MAX_WATERMARK)
    later = restored([running.operator.snapshot()], rt.Tumbling("10ms"))
    later.add(("a", 6), ("a", 25))
    assert later.late == [("a", 6)]


def test_records_without_event_time_are_refused() -> None:
    running = Running(rt.Tumbling("10ms"))
    with pytest.raises(rt.UserCodeError, match=r"event time.*watermarks"):
        running.operator.process(Rows([{"k": "a"}]), 0)


def ahead_and_behind() -> list[Running]:
    """Two subtasks, of which the second has given out a window that is open in the first."""
    subtasks = [Running(rt.Tumbling("10ms"), subtask=i, parallelism=2) for i in range(2)]
    for running in subtasks:
        running.add(*((key, 5) for key in sorted(owned(running))))
    subtasks[0].advance(3)
    subtasks[1].advance(12)
    return subtasks


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_was_late_for_a_key_stays_late_whoever_owns_it(parallelism: int) -> None:
    behind, ahead = ahead_and_behind()
    assert {row[1] for row in ahead.take_out()} == owned(ahead)
    old = [running.operator.snapshot() for running in (behind, ahead)]
    for _ in range(2):  # A second restore, before the watermark has caught up, changes nothing.
        subtasks = [
            restored(old, rt.Tumbling("10ms"), subtask=i, parallelism=parallelism)
            for i in range(parallelism)
        ]
        old = [running.operator.snapshot() for running in subtasks]
    for running in subtasks:
        running.add(*((key, 6) for key in sorted(owned(running))))
        running.advance(20)
    assert {key for running in subtasks for key, _ in running.late} == owned(ahead)
    given_out = sorted(row for running in subtasks for row in running.take_out())
    assert given_out == [(0, key, 2, 9) for key in sorted(owned(behind))]


def test_event_times_that_do_not_tell_key_groups_apart_are_restored() -> None:
    old = [dict(running.operator.snapshot()) for running in ahead_and_behind()]
    for sections in old:
        sections["time"] = sections["time"][:8]
    running = restored(old, rt.Tumbling("10ms"), subtask=0, parallelism=1)
    assert running.operator._times.least == 3
    same = Running(rt.Tumbling("10ms"), subtask=1, parallelism=2)
    same.operator.restore(old[1], exact=True)
    assert same.operator._times.least == 12


RECORDS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(-30, 60)), min_size=1, max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RECORDS),
        st.tuples(st.just("advance"), st.tuples(st.integers(-20, 80), st.integers(0, 3))),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    max_size=20,
)


@given(STEPS, st.sampled_from([1, 7, 20]), st.integers(0, 6), st.integers(0, 9))
def test_as_in_plain_python(steps: list[Any], size: int, offset: int, lateness: int) -> None:
    """The counts that were given out last, whatever was restored in between, at any parallelism.

    Time advances for all subtasks, or for one of them only.
    """
    tumbling = rt.Tumbling(
        f"{size}ms", offset=f"{offset % size}ms", allowed_lateness=f"{lateness}ms"
    )
    subtasks = [Running(tumbling)]
    counts: Counter[tuple[int, str]] = Counter()
    given_out: dict[tuple[int, str], list[int]] = defaultdict(list)
    time, late = dict.fromkeys("abcdefgh", -(10**9)), 0

    def collect() -> None:
        for running in subtasks:
            for start, key, count, at in running.take_out():
                assert at == start + size - 1
                given_out[start, key].append(count)

    for action, what in [*steps, ("advance", (10**6, 0))]:
        if action == "add":
            for running in subtasks:
                mine = [record for record in what if record[0] in owned(running)]
                if mine:
                    running.add(*mine)
            for key, at in what:
                start = (at - offset % size) // size * size + offset % size
                if start + size - 1 + lateness <= time[key]:
                    late += 1
                else:
                    counts[start, key] += 1
        elif action == "advance":
            watermark, place = what
            for running in subtasks if place == 0 else [subtasks[place % len(subtasks)]]:
                time |= {key: max(time[key], watermark) for key in owned(running)}
                running.advance(watermark)
        else:
            collect()
            late -= sum(running.operator.ctx.metrics.late_records for running in subtasks)
            old = [running.operator.snapshot() for running in subtasks]
            subtasks = [restored(old, tumbling, subtask=i, parallelism=what) for i in range(what)]
    collect()
    assert {place: seen[-1] for place, seen in given_out.items()} == counts
    assert all(seen == sorted(set(seen)) for seen in given_out.values())
    assert late == sum(running.operator.ctx.metrics.late_records for running in subtasks)


def owned(running: Running) -> set[str]:
    ctx = running.operator.ctx
    groups = group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
    return {key for key in "abcdefgh" if key_group(key, ctx.max_parallelism) in groups}
