"""Functions over the records of windows, from the API to the results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import minirt as rt
from minirt.data.values import pack_value
from minirt.state.row_keys import key_columns, plain

RECORDS = [{"k": f"k{n % 3}", "v": n, "at": n} for n in range(50)]


def add(total: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    total["v"] += record["v"]  # As users do: what they get is theirs to change.
    return total


class Spread(rt.WindowProcess):
    def process(self, records: list[Any], ctx: rt.WindowContext) -> Iterable[Any]:
        values = [record["v"] for record in records]
        yield ctx.key, ctx.start, ctx.timestamp, max(values) - min(values)
        if len(values) < 5:
            ctx.side("few", ctx.key)


class Remembers(rt.WindowProcess):
    seen = rt.ValueState(0)

    def process(self, records: list[Any], ctx: rt.WindowContext) -> None: ...


class Forgets(Remembers):
    seen = rt.ValueState(0, ttl="1s")


def stream(env: rt.Environment, records: list[Any] = RECORDS) -> rt.Stream:
    watermarks = rt.Watermarks.monotonous(timestamp="at")
    return env.source(rt.CollectionSource(records), watermarks=watermarks)


def rows(made: Callable[[rt.Stream], rt.Stream], **source: Any) -> list[Any]:
    env, sink = rt.Environment(), rt.CollectSink()
    made(stream(env, **source)).sink(sink)
    env.execute(runner="inline")
    return sink.rows


def totals(start: int, stop: int, key: int) -> int:
    return sum(n for n in range(start, min(stop, 50)) if n % 3 == key)


def test_reduce_gives_one_value_of_each_key_and_window() -> None:
    for window in (rt.Tumbling("20ms"), rt.Sliding("20ms", "10ms")):
        every = 20 if isinstance(window, rt.Tumbling) else 10
        found = rows(lambda s, w=window: s.key_by("k").window(w).reduce(add))  # type: ignore[misc]
        wanted = [
            totals(max(start, 0), start + 20, key)
            for start in range(-10 if every == 10 else 0, 50, every)
            for key in range(3)
        ]
        assert sorted(record["v"] for record in found) == sorted(wanted)


def test_a_process_gets_all_records_and_may_use_side_outputs() -> None:
    env, sink, few = rt.Environment(), rt.CollectSink(), rt.CollectSink()
    spread = stream(env).key_by(lambda r: r["k"]).window(rt.Tumbling("20ms")).process(Spread())
    spread.sink(sink, uid="spread")
    spread.side_output("few").sink(few, uid="few")
    env.execute(runner="inline")
    held = {
        (k, at): [n for n in range(at, min(at + 20, 50)) if n % 3 == k]
        for k in range(3)
        for at in (0, 20, 40)
    }
    assert sorted(sink.rows) == sorted(
        (f"k{k}", at, at + 19, max(values) - min(values)) for (k, at), values in held.items()
    )
    assert sorted(few.rows) == ["k0", "k1", "k2"]


def test_windows_without_keys() -> None:
    found = rows(lambda s: s.window_all(rt.Tumbling("25ms")).reduce(add, Spread()))
    assert found == [(None, 0, 24, 0), (None, 25, 49, 0)]
    with pytest.raises(rt.ConfigurationError, match="its parallelism is 1, not 2"):
        stream(rt.Environment()).window_all(rt.Tumbling("25ms")).reduce(add, parallelism=2)


def test_late_rows_can_be_looked_at() -> None:
    env, late, sink = rt.Environment(), rt.CollectSink(), rt.CollectSink()
    slowly = rt.Options(limits=rt.Limits(frame_records=1, watermark_interval_s=0))
    records = [RECORDS[0], RECORDS[45], *RECORDS[1:3]]
    reduced = stream(env, records).key_by("k").window(rt.Tumbling("10ms")).reduce(add)
    reduced.sink(sink, uid="on-time")
    reduced.side_output("late").sink(late, uid="late")
    env.execute(runner="inline", options=slowly)
    assert all(record in RECORDS[1:3] for record in late.rows)
    assert sum(row["v"] for row in sink.rows + late.rows) == 0 + 45 + 1 + 2


def test_a_failure_names_the_record_or_the_window() -> None:
    def fail(total: Any, record: Any) -> Any:
        raise ValueError("no")

    class Fails(rt.WindowProcess):
        def process(self, records: list[Any], ctx: rt.WindowContext) -> Any:
            raise ValueError("no")

    with pytest.raises(rt.JobFailedError, match=r"failed on record \{'k': 'k0', 'v': 3, 'at': 3\}"):
        rows(lambda s: s.key_by("k").window(rt.Tumbling("20ms")).reduce(fail))
    with pytest.raises(rt.JobFailedError, match="the window from 0 to 20 of key 'k"):
        rows(lambda s: s.key_by("k").window(rt.Tumbling("20ms")).process(Fails()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: w(rt.Tumbling("1s")).reduce(lambda a: a), "the value so far and the record"),
        (lambda w: w(rt.Tumbling("1s")).process(Spread), r"an instance, Spread\(\.\.\.\)"),
        (lambda w: w(rt.Session("1s")).process(Remembers()), "Remembers keeps for each, seen"),
        (lambda w: w(rt.Tumbling("1s")).process(Forgets()), "'seen' of Forgets.*leave ttl out"),
        (lambda w: w(rt.CountWindow(2)).reduce(add, emit="updates"), "no early results"),
        (lambda w: w(rt.CountWindow(2)).reduce(add).side_output("late"), "nothing is late"),
        (lambda w: w(rt.Tumbling("1s")).reduce(add).side_output("few"), "one side output, 'late'"),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        make(stream(rt.Environment()).key_by("k").window)


def test_keys_that_are_equal_are_one_key() -> None:
    """Whatever their type, in the columns by which a table finds them."""
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    berlin = noon.astimezone(ZoneInfo("Europe/Berlin"))
    same: list[tuple[Any, Any]] = [
        (True, 1),
        (np.int64(7), 7),
        (np.str_("a"), "a"),
        (noon, berlin),
        ((1, None), (True, None)),
    ]
    for one, other in same:
        assert pack_value(plain(one)) == pack_value(plain(other))
        first, second = key_columns([one]), key_columns([other])
        assert [column.to_pylist() for column in first] == [c.to_pylist() for c in second]
    distinct = [None, 0, "0", b"0", noon, noon.replace(tzinfo=None), noon.date(), (0,), (0, None)]
    assert len({pack_value(plain(key)) for key in distinct}) == len(distinct)
