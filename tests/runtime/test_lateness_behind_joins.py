"""Records that come late for a window have to come through the operators before it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt

MINUTE = 60


class OneByOne(rt.Source, rt.SplitReader):
    def __init__(self, records: list[Any]) -> None:
        self.records, self.offset = records, 0

    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        return [rt.Split("all", {})]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        reader = OneByOne(self.records)
        reader.offset = offset or 0
        return reader

    def read(self) -> list[Any] | None:
        self.offset += 1
        return self.records[self.offset - 1 : self.offset] or None


def stream(env: rt.Environment, uid: str, seconds: list[tuple[int, Any]]) -> rt.Stream[Any]:
    records = [{"u": "a", "ts": at * 1000, "v": value} for at, value in seconds]
    marks = rt.Watermarks.bounded("0s", timestamp="ts", emit="per record")
    return env.source(OneByOne(records), uid=uid, watermarks=marks)


def counted(
    clicks: list[int], versions: list[int] | None, lateness: int, of_join: int
) -> tuple[dict[int, int], list[Any], str]:
    """The last result of each minute, what was late for the join, and the plan."""
    env = rt.Environment("late")
    rows = stream(env, "clicks", [(at, place) for place, at in enumerate(clicks)])
    late = rt.CollectSink()
    if versions is not None:
        table = stream(env, "versions", [(at, at) for at in versions])
        rows = rows.join_as_of(
            table, on="u", how="left", allowed_lateness=f"{of_join}s", uid="join",
            columns=(["u", "ts", "v"], ["u", "ts", "v"]),
        )  # fmt: skip
        rows.side_output("late").sink(late, uid="late")
    windows = rows.key_by("u").window(rt.Tumbling("1min", allowed_lateness=f"{lateness}s"))
    counts = windows.aggregate(rt.Count("n"), uid="counts")
    out = rt.CollectSink()
    counts.sink(out, uid="out")
    plan = str(env.plan())
    env.execute(runner="inline")
    return {row["window_start"].minute: row["n"] for row in out.rows}, late.rows, plan


@settings(deadline=None, max_examples=25)
@given(
    clicks=st.lists(st.integers(0, 300), min_size=1, max_size=10),
    versions=st.lists(st.integers(0, 300), max_size=4),
    lateness=st.sampled_from([30, 90, 600]),
)
def test_a_join_that_allows_as_much_lateness_as_the_window_hides_no_record(
    clicks: list[int], versions: list[int], lateness: int
) -> None:
    """The window itself drops what is later. Event time may be held back by the versions, which helps."""
    alone, _, _ = counted(clicks, None, lateness, 0)
    joined, late, _ = counted(clicks, versions, lateness, lateness + MINUTE)
    assert all(joined.get(minute, 0) >= count for minute, count in alone.items())
    newest = max(clicks)
    assert all(newest - row["ts"] // 1000 >= lateness + MINUTE for row in late)


def test_a_late_record_has_the_version_of_its_time() -> None:
    env = rt.Environment()
    clicks = stream(env, "clicks", [(at, at) for at in (1, 50, 100, 45, 5, 200)])
    table = stream(env, "versions", [(0, "first"), (40, "second"), (90, "third")])
    names = ["u", "ts", "v"]
    joined = clicks.join_as_of(
        table, on="u", how="left", columns=(names, names), allowed_lateness="1min", uid="join"
    )
    out, late = rt.CollectSink(), rt.CollectSink()
    joined.sink(out, uid="out")
    joined.side_output("late").sink(late, uid="late")
    env.execute(runner="inline")
    found = {row["ts"] // 1000: row["v_right"] for row in out.rows}
    assert found == {1: "first", 50: "second", 100: "third", 45: "second", 200: "third"}
    assert [row["ts"] for row in late.rows] == [5000]


def test_the_plan_and_the_log_say_that_lateness_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _, late, plan = counted([1, 100, 2], [0], 60, 0)
    assert len(late) == 1
    assert "allowed lateness of 60 s has less effect" in plan
    assert "give it allowed_lateness=60, and the length of a window more" in plan
    assert any(
        "operator counts" in message and "late for" in message for message in caplog.messages
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        _, _, plan = counted([1, 100, 2], [0], 60, 60)
    assert "lateness of" not in plan
    assert caplog.messages == []


def results(*batches: list[float], keys: int = 1) -> list[Any]:
    """What a global window gives out every 10 s of event time; each inner list is one batch."""

    class Batches(OneByOne):
        def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
            return Batches(self.records)

        def read(self) -> list[Any] | None:
            self.offset += 1
            return self.records[self.offset - 1] if self.offset <= len(self.records) else None

    env = rt.Environment()
    rows = [
        [{"k": n % keys, "t": round(at * 1000)} for n, at in enumerate(batch)] for batch in batches
    ]
    marks = rt.Watermarks.bounded("1s", timestamp="t")
    source = env.source(Batches(rows), uid="s", watermarks=marks)
    window = rt.GlobalWindow(rt.AfterTime("10s"))
    out = rt.CollectSink()
    source.key_by("k").window(window).aggregate(rt.Count("c"), uid="w").sink(out, uid="o")
    env.execute(runner="inline", options=rt.Options(limits=rt.Limits(watermark_interval_s=0)))
    return [(row["k"], row["c"]) for row in out.rows]


def test_the_first_watermark_gives_out_keys_whose_interval_it_has_passed() -> None:
    assert results([5, 15], [16], [18]) == [(0, 2), (0, 4)]
    assert results([5, 9], [16], [18])[0] == (0, 3)  # It has passed none.
    assert results([5, 15, 4], [16], keys=2)[0] == (0, 2)
    assert results([5, 15], [16], keys=2)[0] == (0, 1)  # The other key began at 15 s.
