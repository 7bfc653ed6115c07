"""Random windows over random events: as a job of minirt, and as a query of Spark SQL over the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow.compute as pc

import minirt as rt
from minirt.windows.base import Window
from tests.connectors.random_jobs import (
    CHANGES,
    DAY_MS,
    EXACT,
    Event,
    GivenSplits,
    Pace,
    Ran,
    Splits,
    draw_splits,
)

KINDS = ("tumbling", "sliding", "session", "days", "sliding days")

AGGREGATES = (
    rt.Count("n"),
    rt.Count("big", where=pc.field("v") > 4),
    rt.Sum("v", "sum"),
    rt.Min("v", "least"),
    rt.Max("v", "most"),
    rt.CountDistinct("v", "kinds"),
)
SQL_AGGREGATES = (
    "count(*) AS n, count_if(v > 4) AS big, sum(v) AS sum, min(v) AS least, max(v) AS most, "
    "count(DISTINCT v) AS kinds"
)


@dataclass(frozen=True)
class Windows:
    """A window, and the query that gives each event the bounds `s` and `e` of those that it lies in."""

    window: Window
    assigned: str
    """A query over `events`, or an expression for `session_window`."""
    session: bool = False

    @property
    def sql(self) -> str:
        if self.session:
            grouped = f"SELECT k, {self.assigned} AS w, {SQL_AGGREGATES} FROM events GROUP BY k, w"
            bounds = "unix_millis(w.start) AS s, unix_millis(w.end) AS e"
            return f"SELECT k, {bounds}, n, big, sum, least, most, kinds FROM ({grouped})"
        return f"SELECT k, s, e, {SQL_AGGREGATES} FROM ({self.assigned}) GROUP BY k, s, e"


@dataclass(frozen=True)
class Case:
    """What one seed draws."""

    seed: int
    windows: Windows
    splits: Splits
    bound_ms: int
    idle_timeout: str | None
    mode: str
    widths: Sequence[int]

    @property
    def events(self) -> list[Event]:
        return [event for split in self.splits for event in split]

    def build(self, env: rt.Environment, out: rt.Sink, late: rt.Sink, pace: Pace) -> None:
        marks = rt.Watermarks.bounded(
            self.bound_ms / 1000, timestamp="t", idle_timeout=self.idle_timeout
        )
        source = GivenSplits(self.splits, pace)
        events = env.source(source, uid="events", watermarks=marks)
        windows = events.key_by("k").window(self.windows.window)
        results = windows.aggregate(*AGGREGATES, uid="windows")
        results.sink(out, uid="out")
        results.side_output("late").sink(late, uid="late")


def draw(seed: int) -> Case:
    random = Random(f"windows {seed}")
    kind = KINDS[seed % len(KINDS)]
    # A late record may count in some windows and not in others, but for tumbling ones.
    late = kind == "tumbling" and random.random() < 0.5
    lateness_ms = random.choice((0, 30)) if late else 0
    windows, first_ms, span_ms = _windows(kind, random, lateness_ms)
    disorder_ms = random.choice((0, span_ms // 20, span_ms // 3))
    keys = ["often"] * 8 + ["seldom", "", None]  # One key has most of them.

    def of() -> Event:
        return {"k": random.choice(keys), "v": random.choice((None, *range(9)))}

    splits = draw_splits(random, first_ms, span_ms, disorder_ms, of)
    return Case(
        seed,
        windows,
        splits,
        disorder_ms // 8 if late else disorder_ms,
        random.choice((None, "5ms")) if late else None,
        random.choice(EXACT),
        random.sample([1, 2, 3, 4], 2),
    )


def _windows(kind: str, random: Random, lateness_ms: int) -> tuple[Windows, int, int]:
    """The windows, where events begin, and over what time they are spread."""
    first_ms = random.choice((0, -5000, 1_700_000_000_123))
    if kind == "session":
        gap_ms = random.choice((1, 7, 50))
        window = rt.Session(f"{gap_ms}ms")
        assigned = f"session_window(timestamp_millis(t), '{gap_ms} milliseconds')"
        return Windows(window, assigned, session=True), first_ms, 3000
    if "days" in kind:
        return _days(kind, random)
    pane_ms = random.choice((1, 10, 37))
    every_ms = pane_ms * random.choice((1, 2, 3))
    size_ms = every_ms if kind == "tumbling" else pane_ms * random.choice((3, 5, 8))
    offset_ms = random.choice((0, every_ms // 2, every_ms - 1))
    late, size, every, offset = (f"{ms}ms" for ms in (lateness_ms, size_ms, every_ms, offset_ms))
    options = {"offset": offset, "allowed_lateness": late}
    if kind == "tumbling":
        window: Window = rt.Tumbling(size, **options)
    else:
        window = rt.Sliding(size, every, **options)
    lengths = ", ".join(f"'{ms} milliseconds'" for ms in (size_ms, every_ms, offset_ms))
    inner = f"SELECT k, v, window(timestamp_millis(t), {lengths}) AS w FROM events"
    bounds = "unix_millis(w.start) AS s, unix_millis(w.end) AS e"
    return Windows(window, f"SELECT k, v, {bounds} FROM ({inner})"), first_ms, 600


def _days(kind: str, random: Random) -> tuple[Windows, int, int]:
    zone, change_ms = random.choice(CHANGES)
    every = random.choice((1, 2, 3))
    size = every if kind == "days" else every * random.choice((2, 3))
    if kind == "days":
        window: Window = rt.Tumbling(f"{size}d", timezone=zone)
    else:
        window = rt.Sliding(f"{size}d", f"{every}d", timezone=zone)
    local = f"from_utc_timestamp(timestamp_millis(t), '{zone}')"
    numbered = f"SELECT k, v, unix_date(to_date({local})) AS d FROM events"
    last = f"CAST(floor(d / {every}) AS INT)"
    exploded = (
        f"SELECT k, v, explode(sequence({last} - {size // every - 1}, {last})) AS number "
        f"FROM ({numbered})"
    )
    start, end = (
        f"unix_millis(to_utc_timestamp(CAST(date_from_unix_date({day}) AS TIMESTAMP), '{zone}'))"
        for day in (f"number * {every}", f"number * {every} + {size}")
    )
    assigned = f"SELECT k, v, {start} AS s, {end} AS e FROM ({exploded})"
    return Windows(window, assigned), change_ms - 4 * DAY_MS, 8 * DAY_MS


def newest(ran: Ran) -> list[Event]:
    """The newest result of each window."""
    found: dict[Any, Event] = {}
    for row in ran.results:
        key = row["k"], row["window_start"], row["window_end"]
        if key not in found or row["n"] > found[key]["n"]:
            found[key] = row
    return [*found.values()]
