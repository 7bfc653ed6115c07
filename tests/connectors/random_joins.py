"""Random joins of random events: as a job of minirt, and as a query of Spark SQL over the same."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import minirt as rt
from tests.connectors.random_jobs import (
    CHANGES,
    EXACT,
    Event,
    GivenSplits,
    Pace,
    Ran,
    Splits,
    draw_splits,
)

KINDS = ("interval", "window", "zoned", "as of", "ttl")
"""A *zoned* join is an interval join of events whose time is that of a clock in some zone, about when the
clocks there are changed. In a *ttl* join nothing expires while the job runs."""

SQL_JOINS = {
    "inner": "INNER",
    "left": "LEFT OUTER",
    "right": "RIGHT OUTER",
    "full": "FULL OUTER",
    "semi": "LEFT SEMI",
    "anti": "LEFT ANTI",
}
HOWS = tuple(SQL_JOINS)

LEFT, RIGHT = ("id", "t", "k", "n"), ("rid", "rt", "rk", "rn")
"""The columns of both sides: what tells the event, when it was in milliseconds, and two keys."""

_AT = ("at", "rat")
"""The columns with the event time."""

Result = tuple[str | None, str | None]
"""The ids of a pair; None for the side that there is nothing of."""


@dataclass(frozen=True)
class Joined:
    """A join, and the query over `l` and `r` that gives the ids of its pairs."""

    options: Mapping[str, Any]
    """Of `join`, or of `join_as_of` if it is one."""
    sql: str
    as_of: bool = False


@dataclass(frozen=True)
class Case:
    """What one seed draws. Sides are left and right."""

    seed: int
    kind: str
    how: str
    joined: Joined
    sides: tuple[Splits, Splits]
    bounds_ms: tuple[int, int]
    idle: tuple[str | None, str | None]
    mode: str
    widths: Sequence[int]

    def __str__(self) -> str:
        return f"{self.how} {self.kind} {dict(self.joined.options)} in {self.mode}"

    def events(self, side: int, late: set[str]) -> list[Event]:
        """Those of one side that were not late."""
        name = (LEFT, RIGHT)[side][0]
        return [one for split in self.sides[side] for one in split if one[name] not in late]

    def build(self, env: rt.Environment, out: rt.Sink, late: rt.Sink, pace: Pace) -> None:
        left, right = (
            env.source(
                GivenSplits(splits, pace),
                uid=uid,
                watermarks=rt.Watermarks.bounded(bound_ms / 1000, timestamp=at, idle_timeout=idle),
            )
            for uid, at, splits, bound_ms, idle in zip(
                ("left", "right"), _AT, self.sides, self.bounds_ms, self.idle, strict=True
            )
        )
        join: Any = left.join_as_of if self.joined.as_of else left.join
        columns = tuple([*names, at] for names, at in zip((LEFT, RIGHT), _AT, strict=True))
        pairs = join(right, **self.joined.options, how=self.how, columns=columns, uid="pairs")
        pairs.sink(out, uid="out")
        if self.kind != "ttl":
            pairs.side_output("late").sink(late, uid="late")


def draw(seed: int) -> Case:
    random = Random(f"joins {seed}")
    kind = KINDS[seed % len(KINDS)]
    how = random.choice(("inner", "left") if kind == "as of" else HOWS)
    keys = random.choice((1, 2))
    unit_ms, first_ms, zones = 1, random.choice((0, -5000, 1_700_000_000_123)), (None, None)
    if kind == "zoned":
        unit_ms, zone_and_change = 20_000, random.choice(CHANGES)
        first_ms = zone_and_change[1] - 300 * unit_ms
        zones = zone_and_change[0], random.choice(CHANGES)[0]
    span_ms = 600 * unit_ms
    if kind in ("interval", "zoned"):
        joined = _interval(random, keys, how, unit_ms)
    else:
        joined = {"window": _window, "as of": _as_of, "ttl": _ttl}[kind](random, keys, how)
    disorder_ms = random.choice((0, span_ms // 20, span_ms // 3))
    sides = [
        _side(random, side, zone, first_ms, span_ms, disorder_ms) for side, zone in enumerate(zones)
    ]
    if kind == "as of":  # Of versions of one time, the one that came last would count.
        sides[1] = _of_distinct_times(sides[1])
    # A version that comes late counts for some records: those of as-of joins are never late.
    may_be_late = (kind != "ttl", kind not in ("as of", "ttl"))
    late = [may and random.random() < 0.4 for may in may_be_late]
    bounds = tuple(disorder_ms // 8 if each else disorder_ms for each in late)
    idle = tuple("5ms" if each and random.random() < 0.5 else None for each in late)
    return Case(
        seed,
        kind,
        how,
        joined,
        (sides[0], sides[1]),
        (bounds[0], bounds[1]),
        (idle[0], idle[1]),
        random.choice(EXACT),
        random.sample([1, 2, 3, 4], 2),
    )


def found(ran: Ran) -> Counter[Result]:
    return Counter((row.get("id"), row.get("rid")) for row in ran.results)


def _side(
    random: Random, side: int, zone: str | None, first_ms: int, span_ms: int, disorder_ms: int
) -> Splits:
    keys = ["often"] * 6 + ["seldom", "", "other", None, None]  # One key has most of them.

    def of() -> Event:
        return {"k": random.choice(keys), "n": random.choice((1, 1, 1, 2, None))}

    def named(event: Event) -> Event:
        own = {**event, "id": f"{'lr'[side]} {event['id']}"}
        row = dict(zip((LEFT, RIGHT)[side], map(own.get, LEFT), strict=True))
        return {**row, _AT[side]: _on_a_clock(event["t"], zone)}

    splits = draw_splits(random, first_ms, span_ms, disorder_ms, of)
    return [[named(event) for event in split] for split in splits]


def _on_a_clock(ms: int, zone: str | None) -> int | dt.datetime:
    if zone is None:
        return ms
    utc = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    return utc.astimezone(ZoneInfo(zone))


def _of_distinct_times(splits: Splits) -> Splits:
    firsts = {event["rt"]: event["rid"] for split in splits for event in split}
    return [[one for one in split if firsts[one["rt"]] == one["rid"]] for split in splits]


def _on(keys: int) -> tuple[dict[str, str], str]:
    pairs = dict(zip(LEFT[2 : 2 + keys], RIGHT[2 : 2 + keys], strict=True))
    return pairs, " AND ".join(f"{left} = {right}" for left, right in pairs.items())


def _query(how: str, left: str, right: str, condition: str) -> str:
    ids = "id, NULL AS rid" if how in ("semi", "anti") else "id, rid"
    return f"SELECT {ids} FROM ({left}) {SQL_JOINS[how]} JOIN ({right}) ON {condition}"


def _interval(random: Random, keys: int, how: str, unit_ms: int) -> Joined:
    on, equal = _on(keys)
    least = unit_ms * random.choice((-60, -7, 0, 5))
    most = least + unit_ms * random.choice((0, 10, 80))
    near = f"{equal} AND rt >= t + {least} AND rt <= t + {most}"
    within = f"{least}ms", f"{most}ms"
    return Joined(
        {"on": on, "within": within}, _query(how, "SELECT * FROM l", "SELECT * FROM r", near)
    )


def _window(random: Random, keys: int, how: str) -> Joined:
    on, equal = _on(keys)
    size = random.choice((1, 10, 37, 200))
    offset = random.choice((0, size // 2, size - 1))
    lengths = f"'{size} milliseconds', '{size} milliseconds', '{offset} milliseconds'"
    sides = (
        f"SELECT *, w.start AS {side}w FROM "
        f"(SELECT *, window(timestamp_millis({time}), {lengths}) AS w FROM {side})"
        for side, time in (("l", "t"), ("r", "rt"))
    )
    window = rt.Tumbling(f"{size}ms", offset=f"{offset}ms")
    query = _query(how, *sides, f"{equal} AND lw = rw")
    return Joined({"on": on, "window": window}, query)


def _ttl(random: Random, keys: int, how: str) -> Joined:
    on, equal = _on(keys)
    query = _query(how, "SELECT * FROM l", "SELECT * FROM r", equal)
    return Joined({"on": on, "ttl": random.choice(("1h", "30d"))}, query)


def _as_of(random: Random, keys: int, how: str) -> Joined:
    on, equal = _on(keys)
    tolerance = random.choice((None, 5, 100))
    known = f"{equal} AND rt <= t" + ("" if tolerance is None else f" AND rt >= t - {tolerance}")
    joined = (
        f"SELECT id, max_by(rid, rt) AS rid FROM l {SQL_JOINS[how]} JOIN r ON {known} GROUP BY id"
    )
    options: dict[str, Any] = {"on": on}
    if tolerance is not None:
        options["tolerance"] = f"{tolerance}ms"
    return Joined(options, joined, as_of=True)
