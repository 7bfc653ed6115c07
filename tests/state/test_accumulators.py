"""Every aggregate over arrays against the same in plain Python, also stored and loaded in between."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.aggregates import Aggregate, Count, First, Fold, Last, Max, Mean, Min, Sum
from minirt.errors import ConfigurationError
from minirt.state.accumulators import accumulator


class Distinct(Fold):
    """How many different values there are."""

    def of(self, values: pa.Array) -> list[Any]:
        return sorted(set(values.drop_null().to_pylist()))

    def merge(self, earlier: list[Any], later: list[Any]) -> list[Any]:
        return sorted({*earlier, *later})

    def result(self, remembered: list[Any]) -> int:
        return len(remembered)


def _real(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


INTS = (pa.int64(), st.integers(-(10**6), 10**6))
SMALL = (pa.int8(), st.integers(-128, 127))
UNSIGNED = (pa.uint64(), st.integers(0, 2**40) | st.just(2**63 + 5))
FLOATS = (pa.float64(), st.integers(-1000, 1000).map(lambda n: n / 8) | st.just(math.nan))
EIGHTHS = (pa.float32(), st.integers(-1000, 1000).map(lambda n: n / 8))
DATES = (pa.date32(), st.dates())
TIMES = (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC)))
TEXTS = (pa.string(), st.text(st.characters(codec="utf-8"), max_size=3))
BYTES = (pa.large_binary(), st.binary(max_size=3))
BOOLS = (pa.bool_(), st.booleans())
DECIMALS = (pa.decimal128(6, 2), st.integers(-1000, 1000).map(lambda n: Decimal(n) / 100))
CLOCKS = (pa.time64("us"), st.times())
DURATIONS = (
    pa.duration("ms"),
    st.integers(-(10**6), 10**6).map(lambda ms: dt.timedelta(milliseconds=ms)),
)
LISTS = (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2))

CASES: list[tuple[Aggregate, Any, Callable[[list[Any]], Any]]] = [
    (Sum("v"), INTS, lambda vs: sum(_present(vs)) if _present(vs) else None),
    (Sum("v"), SMALL, lambda vs: sum(_present(vs)) if _present(vs) else None),
    (Sum("v"), EIGHTHS, lambda vs: sum(_present(vs)) if _present(vs) else None),
    (Count(), INTS, len),
    (Count("n", "v"), INTS, lambda vs: len(_present(vs))),
    (Mean("v"), INTS, lambda vs: sum(_present(vs)) / len(_present(vs)) if _present(vs) else None),
    (Min("v"), INTS, lambda vs: min(_present(vs), default=None)),
    (Max("v"), UNSIGNED, lambda vs: max(_present(vs), default=None)),
    (Min("v"), FLOATS, lambda vs: min(_real(vs), default=None)),
    (Max("v"), DATES, lambda vs: max(_present(vs), default=None)),
    (Min("v"), TIMES, lambda vs: min(_present(vs), default=None)),
    (Min("v"), TEXTS, lambda vs: min(_present(vs), default=None)),
    (Max("v"), BYTES, lambda vs: max(_present(vs), default=None)),
    (Min("v"), BOOLS, lambda vs: min(_present(vs), default=None)),
    (Max("v"), DECIMALS, lambda vs: max(_present(vs), default=None)),
    (Max("v"), CLOCKS, lambda vs: max(_present(vs), default=None)),
    (Min("v"), DURATIONS, lambda vs: min(_present(vs), default=None)),
    (Last("v"), BOOLS, lambda vs: next(iter(_present(vs)[::-1]), None)),
    (First("v"), UNSIGNED, lambda vs: next(iter(_present(vs)), None)),
    (First("v"), TEXTS, lambda vs: next(iter(_present(vs)), None)),
    (Last("v"), TIMES, lambda vs: next(iter(_present(vs)[::-1]), None)),
    (Last("v"), LISTS, lambda vs: next(iter(_present(vs)[::-1]), None)),
    (Distinct("v", "n", pa.int64()), SMALL, lambda vs: len(set(_present(vs)))),
]


@pytest.mark.parametrize(("aggregate", "kind", "expected"), CASES)
@given(data=st.data())
def test_as_in_plain_python(
    aggregate: Aggregate, kind: Any, expected: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    type, values = kind
    row = st.tuples(st.integers(0, 5), st.none() | values)
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=4))
    reload_after = data.draw(st.integers(0, len(batches)))
    seen: dict[int, list[Any]] = defaultdict(list)
    running = accumulator(aggregate, type)
    for number, batch in enumerate(batches):
        if number == reload_after:
            running = _reloaded(running, aggregate, type, sorted(seen))
        running.make_room(6)
        running.add(np.array([slot for slot, _ in batch]), pa.array([v for _, v in batch], type))
        for slot, value in batch:
            seen[slot].append(pa.scalar(value, type).as_py())
    slots = sorted(seen)
    result = running.result(np.array(slots))
    assert result.type == aggregate.result_type(type)
    assert result.to_pylist() == [expected(seen[slot]) for slot in slots]


def _reloaded(running: Any, aggregate: Aggregate, type: pa.DataType, slots: list[int]) -> Any:
    """Another accumulator with the same content."""
    fresh = accumulator(aggregate, type)
    fresh.make_room(6)
    running.make_room(6)
    fresh.load(np.array(slots, np.intp), running.stored(np.array(slots, np.intp)))
    return fresh


def test_room_is_made_for_many_slots() -> None:
    sums = accumulator(Sum("v"), pa.int64())
    for count in (10, 5000, 100_000):
        sums.make_room(count)
        sums.add(np.arange(count), pa.array(np.ones(count, np.int64)))
    assert sums.result(np.array([0, 10, 4999, 99_999])).to_pylist() == [3, 2, 2, 1]


@pytest.mark.parametrize(
    ("aggregate", "type"),
    [
        (Sum("v"), pa.string()),
        (Sum("v"), pa.date32()),
        (Mean("v"), pa.timestamp("s")),
        (Min("v"), pa.month_day_nano_interval()),
        (Max("v"), pa.list_(pa.int64())),
    ],
)
def test_columns_that_do_not_fit_are_refused(aggregate: Aggregate, type: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="'v'"):
        accumulator(aggregate, type)
