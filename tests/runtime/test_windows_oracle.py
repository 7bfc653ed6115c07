"""Every kind of window, of columns and of rows, against plain Python, restored and rescaled in between."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.window import WindowSpec
from minirt.operators.window_rows import RowWindowSpec
from minirt.testing.contracts import Advance, Given
from minirt.testing.contracts.operating import Result, Subtasks

KEYS = (None, "a", "b", "c", "d")
AGGREGATES = (rt.Count("n"), rt.Sum("v", "sum"), rt.First("v", "first"), rt.Last("v", "last"))
Record = tuple[Any, int]

RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-20, 90)), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RECORDS),
        st.tuples(st.just("advance"), st.integers(-20, 90)),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    max_size=12,
)


class Figures(rt.WindowProcess):
    """What `AGGREGATES` compute, of rows; and the number of the result among those of its window."""

    given = rt.ValueState(0)

    def process(self, records: list[Any], ctx: rt.WindowContext) -> Iterable[Any]:
        values = [record["v"] for record in records]
        self.given.value += 1
        found = {"n": len(values), "sum": sum(values), "first": values[0], "last": values[-1]}
        yield {"k": ctx.key, **bounds(ctx), **found, "given": self.given.value}

    def retract(self, ctx: rt.WindowContext) -> Iterable[Any]:
        yield {"k": ctx.key, **bounds(ctx), "n": None, "sum": None}

    def merge(self, other: Mapping[str, Any], ctx: rt.WindowContext) -> None:
        self.given.value += other["given"]


def bounds(ctx: rt.WindowContext) -> dict[str, Any]:
    if ctx.start is None or ctx.end is None:
        return {"pane": ctx.pane}
    edges = {"window_start": ctx.start, "window_end": ctx.end}
    times = {name: dt.datetime.fromtimestamp(at / 1000, dt.UTC) for name, at in edges.items()}
    return {"pane": ctx.pane, **times}


def run(
    window: rt.Window, steps: Sequence[tuple[str, Any]], *, rows: bool = False, **how: Any
) -> list[Result]:
    """What comes out; record number `i` has the value `i`."""
    return [result for part in stepwise(window, steps, rows=rows, **how) for result in part]


def stepwise(
    window: rt.Window, steps: Sequence[tuple[str, Any]], *, rows: bool = False, **how: Any
) -> Iterator[list[Result]]:
    """What comes out at each step, and at the end."""
    spec: OperatorSpec = WindowSpec(AGGREGATES, window, **how)
    if rows:
        spec = RowWindowSpec(window, process=Figures(), **how)
    running = Subtasks(spec, (KeySelector(("k",)),))
    number = given = 0
    for place, (step, what) in enumerate(steps):
        if step == "add":
            records = [{"k": k, "v": number + i} for i, (k, _) in enumerate(what)]
            number += len(what)
            running.feed(Given(records, [time for _, time in what]), columns=not rows)
        elif step == "advance":
            running.feed(Advance(what))
        else:
            stored = running.snapshot(str(place))
            running, given = Subtasks(spec, (KeySelector(("k",)),), what, restore=stored), 0
        yield running.results[given:]
        given = len(running.results)
    yield running.end()[given:]


def milliseconds(time: dt.datetime) -> int:
    return round(time.timestamp() * 1000)


def newest(results: Sequence[Result]) -> dict[Any, tuple[int, int]]:
    """Count and sum that were given out last, by key and bounds."""
    return {
        (r["k"], milliseconds(r["window_start"]), milliseconds(r["window_end"])): (r["n"], r["sum"])
        for tag, r, _ in results
        if not tag
    }


def numbered(steps: Sequence[tuple[str, Any]]) -> list[tuple[Any, int, int, int]]:
    """Key, time, value and the watermark that was seen before, of each record."""
    found, watermark = [], -(10**9)
    for step, what in steps:
        if step == "advance":
            watermark = max(watermark, what)
        elif step == "add":
            found += [(k, time, len(found) + i, watermark) for i, (k, time) in enumerate(what)]
    return found


@settings(deadline=None, max_examples=60)
@given(
    STEPS,
    st.sampled_from([(10, 10), (10, 5), (12, 8), (20, 1)]),
    st.integers(0, 1),
    st.integers(0, 9),
    st.booleans(),
)
def test_sliding(
    steps: list[Any], sizes: tuple[int, int], offset: int, lateness: int, rows: bool
) -> None:
    size, every = sizes
    offset %= every
    window = rt.Sliding(
        f"{size}ms", f"{every}ms", offset=f"{offset}ms", allowed_lateness=f"{lateness}ms"
    )
    wanted: dict[Any, list[int]] = defaultdict(list)
    late = 0
    for key, time, value, seen in numbered(steps):
        last = (time - offset) // every * every + offset
        if last + size - 1 + lateness <= seen:
            late += 1
            continue
        for start in range(last, time - size, -every):
            if start + size - 1 + lateness > seen:
                wanted[key, start, start + size].append(value)
    results = run(window, steps, rows=rows)
    # A window that is closed is not given out again, though panes of it may still be filled.
    assert newest(results) == {w: (len(values), sum(values)) for w, values in wanted.items()}
    assert sum(tag == "late" for tag, _, _ in results) == late
    for tag, r, _ in results:
        if not tag and not rows:  # Rows of panes are in the order of the panes.
            assert r["first"] <= r["last"]
    if rows:
        assert_numbered(results)


def assert_numbered(results: Sequence[Result]) -> None:
    """The state of each window has counted its results."""
    given: dict[Any, list[int]] = defaultdict(list)
    for tag, r, _ in results:
        if not tag:
            given[r["k"], r["window_start"], r["window_end"]].append(r["given"])
    for numbers in given.values():
        assert numbers == list(range(1, len(numbers) + 1))


def sessions(records: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int, list[int]]]:
    found: list[tuple[int, int, list[int]]] = []
    for time, value in sorted(records):
        if found and time <= found[-1][1]:
            start, end, values = found.pop()
            found.append((start, max(end, time + gap), [*values, value]))
        else:
            found.append((time, time + gap, [value]))
    return found


def without_late(steps: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The steps with watermarks that do not pass what is still to come."""
    records = [time for step, what in steps if step == "add" for _, time in what]
    left, kept = list(records), []
    for step, what in steps:
        if step == "add":
            del left[: len(what)]
        if step == "advance":
            what = min([what, *(time - 1 for time in left)])
        kept.append((step, what))
    return kept


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(1, 12), st.booleans())
def test_sessions_of_records_that_are_not_late(steps: list[Any], gap: int, rows: bool) -> None:
    """Watermarks before the end never pass what is still to come, however records are disordered."""
    kept = without_late(steps)
    by_key: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, time, value, _ in numbered(kept):
        by_key[key].append((time, value))
    wanted = Counter(
        (key, start, end, len(values), sum(values))
        for key, own in by_key.items()
        for start, end, values in sessions(own, gap)
    )
    got = Counter(
        (*bounds, *values)
        for bounds, values in newest(run(rt.Session(f"{gap}ms"), kept, rows=rows)).items()
    )
    assert got == wanted


@pytest.mark.parametrize("rows", [False, True])
def test_a_session_is_over_when_no_record_can_touch_it(rows: bool) -> None:
    """One at its very end still belongs to it, though the watermark is a millisecond before."""
    steps = [("add", [("a", 0)]), ("advance", 9), ("add", [("a", 10)]), ("advance", 20)]
    results = run(rt.Session("10ms"), steps, rows=rows)
    assert [(r["n"], time) for _, r, time in results] == [(2, 20)]


@pytest.mark.parametrize("rows", [False, True])
def test_a_late_record_joins_two_sessions_and_takes_their_results_back(rows: bool) -> None:
    window = rt.Session("10ms", allowed_lateness="100ms")
    steps = [
        ("add", [("a", 0), ("a", 18)]),
        ("advance", 40),
        ("rescale", 2),
        ("add", [("a", 9)]),
    ]
    shown = [
        (r["pane"], milliseconds(r["window_start"]), milliseconds(r["window_end"]), r["n"])
        for _, r, _ in run(window, steps, rows=rows)
    ]
    assert sorted(shown) == sorted(
        [
            ("on_time", 0, 10, 1),
            ("on_time", 18, 28, 1),
            ("retracted", 0, 10, None),
            ("retracted", 18, 28, None),
            ("late", 0, 28, 3),
        ]
    )


@settings(deadline=None, max_examples=40)
@given(STEPS, st.sampled_from([(1, 1), (3, 3), (3, 1), (4, 2), (5, 3)]), st.booleans())
def test_count_windows(steps: list[Any], sizes: tuple[int, int], rows: bool) -> None:
    size, every = sizes
    by_key: dict[Any, list[int]] = defaultdict(list)
    for key, _, value, _ in numbered(steps):
        by_key[key].append(value)
    wanted = Counter(
        (key, len(values[i : i + size]), sum(values[i : i + size]), values[i], values[i + size - 1])
        for key, values in by_key.items()
        for i in range(0, len(values) - size + 1, every)
    )
    results = run(rt.CountWindow(size, every), steps, rows=rows)
    assert (
        Counter((r["k"], r["n"], r["sum"], r["first"], r["last"]) for _, r, _ in results) == wanted
    )


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("purge", [False, True])
def test_a_global_window_gives_out_after_so_many(purge: bool, rows: bool) -> None:
    steps = [("add", [("a", 1), ("b", 2), ("a", 3), ("a", 4)]), ("rescale", 2), ("add", [("a", 5)])]
    results = run(rt.GlobalWindow(rt.AfterCount(2), purge=purge), steps, rows=rows)
    assert sorted((r["k"], r["n"], r["sum"]) for _, r, _ in results) == (
        [("a", 2, 2), ("a", 2, 7)] if purge else [("a", 2, 2), ("a", 4, 9)]
    )


@pytest.mark.parametrize("rows", [False, True])
def test_civil_days_have_23_and_25_hours_when_clocks_are_changed(rows: bool) -> None:
    zone = ZoneInfo("Europe/Berlin")
    hours = [
        dt.datetime(2024, month, day, tzinfo=dt.UTC) + dt.timedelta(hours=hour)
        for month, day in ((3, 29), (10, 25))
        for hour in range(96)
    ]
    wanted = Counter(hour.astimezone(zone).date() for hour in hours)
    steps = [("add", [("a", milliseconds(hour)) for hour in hours])]
    found = {}
    for _, r, _ in run(rt.Tumbling("1d", timezone="Europe/Berlin"), steps, rows=rows):
        start, end = (r[name].astimezone(zone) for name in ("window_start", "window_end"))
        assert (start.hour, end.hour) == (0, 0)
        found[start.date()] = r["n"]
    assert found == wanted
    assert {23, 25} <= set(found.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rt.Sliding("1h", 0), "every.*at least 1ms"),
        (lambda: rt.Sliding("1min", "1h"), "records between windows"),
        (lambda: rt.Sliding("100000d", "1ms"), "at most 100000 parts|at most 100000"),
        (lambda: rt.Session(0), "gap of sessions.*at least 1ms"),
        (lambda: rt.CountWindow(0), "above 0"),
        (lambda: rt.CountWindow(2, 3), "at most the size"),
        (lambda: rt.GlobalWindow("soon"), "a trigger"),  # type: ignore[arg-type]
        (lambda: rt.Tumbling("1h", timezone="Europe/Berlin"), "whole days"),
        (lambda: rt.Tumbling("1d", timezone="Mars/Base"), "no time zone 'Mars/Base'"),
    ],
)
def test_windows_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=message):
        make()
