"""Open windows of a checkpoint are taken over by windows in which the same records count together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.window import WindowSpec
from minirt.operators.window_rows import RowWindowSpec
from minirt.state.sections import section_bytes
from minirt.state.stored import UID_SEPARATOR, WINDOW_SHAPE, entries_in
from minirt.windows import Window

CTX = OperatorContext(
    *("sales", "sales", 0, 1, 8, 1, lambda: 0.0, False, lambda batch: None),
    lambda tag: lambda batch: None,
)

BERLIN = {"timezone": "Europe/Berlin"}
OTHERS: list[tuple[Window, Window]] = [
    (rt.Tumbling("1min"), rt.Tumbling("30s")),
    (rt.Tumbling("1min"), rt.Tumbling("1min", offset="10s")),
    (rt.Tumbling("1d"), rt.Tumbling("1d", **BERLIN)),
    (rt.Tumbling("100000001ms"), rt.Tumbling("100000002ms")),
    (rt.Sliding("1min", "10s"), rt.Sliding("1min", "20s")),
    (rt.Sliding("1min", "10s"), rt.Sliding("50s", "10s")),
    (rt.Session("10s"), rt.Session("20s")),
    (rt.CountWindow(10), rt.CountWindow(20)),
    (rt.CountWindow(10, 5), rt.CountWindow(10, 2)),
]
SAME: list[tuple[Window, Window]] = [
    (rt.Tumbling("1min"), rt.Tumbling("60s", allowed_lateness="1h")),
    (rt.Session("10s", allowed_lateness="1s"), rt.Session("10s", allowed_lateness="2s")),
    (rt.Session("10s"), rt.Session("10s", allowed_lateness="1s")),
    (rt.Session("10s", allowed_lateness="1s"), rt.Session("10s")),
    (rt.GlobalWindow(rt.AfterCount(3)), rt.GlobalWindow(rt.AfterCount(7))),
]


def operator(window: Window, form: str) -> Operator:
    if form == "columns":
        ctx = replace(CTX, keys=(KeySelector(("k",)),))
        return WindowSpec((rt.Count("n"),), window).build(ctx)
    ctx = replace(CTX, keys=(KeySelector(function=lambda row: row["k"]),))
    return RowWindowSpec(window, lambda held, row: row).build(ctx)


def stored(window: Window, form: str) -> Mapping[str, bytes]:
    """With one record in a window that is open."""
    rows = [{"k": "a"}]
    batch: Batch = Rows(rows, [1])
    if form == "columns":
        batch = Columns(pa.RecordBatch.from_pylist(rows), np.array([1]))
    running = operator(window, form)
    running.process(batch, 0)
    return {name: section_bytes(data) for name, data in running.snapshot().items()}


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(("old", "new"), OTHERS, ids=str)
def test_windows_of_another_shape_are_refused(old: Window, new: Window, form: str) -> None:
    with pytest.raises(ConfigurationError, match="operator sales: the checkpoint holds") as refused:
        operator(new, form).restore(stored(old, form), exact=False)
    assert old.shape in str(refused.value)
    assert new.shape in str(refused.value)


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize(("old", "new"), SAME, ids=str)
def test_how_long_windows_stay_open_and_when_they_tell_may_change(
    old: Window, new: Window, form: str
) -> None:
    operator(new, form).restore(stored(old, form), exact=True)


def test_checkpoints_that_do_not_tell_the_shape_are_restored() -> None:
    window = rt.Tumbling("1min")
    sections = dict(stored(window, "columns"))
    del sections[WINDOW_SHAPE]
    operator(rt.Tumbling("30s"), "columns").restore(sections, exact=True)


def test_who_looks_into_a_checkpoint_sees_the_shape() -> None:
    section = stored(rt.Session("10s"), "columns")[WINDOW_SHAPE]
    assert entries_in(f"sales{UID_SEPARATOR}{WINDOW_SHAPE}", section) == 1
    assert section == b"sessions with gaps of 10 s"


def counts_of(sink: list[Batch]) -> list[tuple[int | None, str]]:
    """What was given out: how many records, and which result of its session it is."""
    rows = [row for batch in sink for row in batch.rows().records]
    return [(row["n"], row.get("pane", "")) for row in rows]


def session(lateness: str, sink: list[Batch]) -> Operator:
    ctx = replace(CTX, keys=(KeySelector(("k",)),), emit=sink.append)
    return WindowSpec((rt.Count("n"),), rt.Session("10s", allowed_lateness=lateness)).build(ctx)


def at(*seconds: int) -> Batch:
    rows = [{"k": "a"}] * len(seconds)
    return Columns(pa.RecordBatch.from_pylist(rows), np.array(seconds) * 1000)


def taken_over(old: Operator, lateness: str, sink: list[Batch]) -> Operator:
    new = session(lateness, sink)
    new.restore({name: section_bytes(data) for name, data in old.snapshot().items()}, exact=True)
    new.open()
    return new


def test_lateness_can_be_allowed_to_sessions_that_are_open() -> None:
    sink: list[Batch] = []
    old = session("0s", sink)
    old.process(at(0, 5), 0)
    new = taken_over(old, "1min", sink)
    list(new.on_watermark(20_000))
    new.process(at(9), 0)
    assert counts_of(sink) == [(2, "on_time"), (None, "retracted"), (3, "late")]


def test_sessions_that_were_open_for_late_records_are_over_once_no_lateness_is_allowed() -> None:
    sink: list[Batch] = []
    old = session("1min", sink)
    old.process(at(0, 5), 0)
    list(old.on_watermark(20_000))
    new = taken_over(old, "0s", sink)
    new.process(at(12), 0)
    list(new.on_watermark(60_000))
    assert counts_of(sink) == [(2, "on_time"), (1, "")]
