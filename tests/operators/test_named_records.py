"""An error of a user's function names the record, whichever way the operator goes through its records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import minirt as rt

Build = Callable[[rt.Stream], rt.Stream]


kept: list[Any] = []


def fails_at_7(record: dict[str, int]) -> int:
    """It keeps no record, so operators need no copies of what it returns."""
    return 0 // (record["n"] - 7) + record["n"]


def keeps_but_fails_at_7(record: dict[str, int]) -> dict[str, int]:
    kept.append(record)
    return {**record, "m": fails_at_7(record)}


def looks_and_fails_at_7(record: dict[str, int]) -> bool:
    kept.append(record)
    return fails_at_7(record) > 3


class Seen(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Any:
        return [record]


def summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {"n": fails_at_7(other)}


OPERATORS: dict[str, Build] = {
    "map": lambda s: s.map(fails_at_7),
    "map, copied": lambda s: s.map(keeps_but_fails_at_7),
    "flat_map": lambda s: s.flat_map(lambda record: [fails_at_7(record)]),
    "filter": lambda s: s.filter(fails_at_7),
    "filter, copied": lambda s: s.filter(looks_and_fails_at_7),
    "key of process": lambda s: s.key_by(fails_at_7).process(Seen(), uid="op"),
    "key of reduce": lambda s: s.key_by(fails_at_7).reduce(max, uid="op"),
    "key of distinct": lambda s: s.key_by(fails_at_7).distinct(uid="op"),
    "key of window": lambda s: (
        s.key_by(fails_at_7).window(rt.CountWindow(5, 5)).reduce(max, uid="op")
    ),
    "reduce": lambda s: s.key_by(lambda record: 0).reduce(summed, uid="op"),
}


def run(build: Build, watermarks: rt.Watermarks | None, parallelism: int) -> None:
    env = rt.Environment(parallelism=parallelism)
    rows = [{"n": n} for n in range(10)]
    source = env.source(rt.CollectionSource(rows), uid="rows", watermarks=watermarks, parallelism=1)
    build(source).sink(rt.DiscardSink())
    env.execute(runner="inline", restart=rt.Restart.none())


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_record_is_named(operator: str, times: bool, parallelism: int) -> None:
    watermarks = rt.Watermarks.monotonous(timestamp="n") if times else None
    with pytest.raises(rt.JobFailedError, match=r"failed on record \{'n': 7\}"):
        run(OPERATORS[operator], watermarks, parallelism)


@pytest.mark.parametrize("as_datetime", [False, True])
def test_a_timestamp_function_names_the_record(as_datetime: bool) -> None:
    watermarks = rt.Watermarks.monotonous(
        timestamp=lambda record: (
            dt.datetime(2024, 1, fails_at_7(record) + 1) if as_datetime else fails_at_7(record)
        )
    )
    with pytest.raises(rt.JobFailedError, match=r"failed on record \{'n': 7\}"):
        run(lambda stream: stream, watermarks, 1)
