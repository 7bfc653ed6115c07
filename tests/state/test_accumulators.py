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
from hypothesis import given, settings
from hypothesis import strategies as st

from minirt.aggregates import WIDE_SUM, Aggregate, Count, First, Fold, Last, Max, Mean, Min, Sum
from minirt.errors import ConfigurationError
from minirt.state.accumulators import accumulator
from minirt.state.sums import SumOverflowError


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


def _wide_sum(values: list[Any]) -> Decimal | None:
    return Decimal(sum(map(int, _present(values)))) if _present(values) else None


ANY_INT = (pa.int64(), st.integers(-(2**63), 2**63 - 1))
ANY_UNSIGNED = (pa.uint64(), st.integers(0, 2**64 - 1))
WIDE = (WIDE_SUM, st.integers(-(2**80), 2**80).map(Decimal))
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
    (Sum("v", overflow="widen"), ANY_INT, lambda vs: _wide_sum(vs)),
    (Sum("v", overflow="widen"), ANY_UNSIGNED, lambda vs: _wide_sum(vs)),
    (Sum("v", overflow="widen"), WIDE, lambda vs: _wide_sum(vs)),
    (Sum("v", overflow="widen"), BOOLS, lambda vs: _wide_sum(vs)),
    (Sum("v", overflow="widen"), EIGHTHS, lambda vs: sum(_present(vs)) if _present(vs) else None),
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


@pytest.mark.parametrize(("aggregate", "kind", "expected"), CASES)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data())
def test_first_slots_are_merged_as_any_slots_are(
    aggregate: Aggregate, kind: Any, expected: Callable[[list[Any]], Any], data: st.DataObject
) -> None:
    type, values = kind
    row = st.tuples(st.integers(0, 5), st.none() | values)
    earlier, later = data.draw(st.tuples(*[st.lists(row, min_size=1, max_size=12)] * 2))
    whole, other = accumulator(aggregate, type), accumulator(aggregate, type)
    for held, rows in ((whole, earlier), (other, later)):
        held.make_room(6)
        held.add(np.array([slot for slot, _ in rows]), pa.array([v for _, v in rows], type))
    before = other.result(np.arange(6))
    whole.merge_first(5, other)
    for slot, found in enumerate(whole.result(np.arange(6)).to_pylist()):
        rows = earlier + later if slot < 5 else earlier
        of_slot = [pa.scalar(value, type).as_py() for at, value in rows if at == slot]
        if of_slot:
            assert found == expected(of_slot)
    assert str(other.result(np.arange(6))) == str(before)


def test_a_sum_that_leaves_its_range_when_ranges_are_merged_is_noticed() -> None:
    whole, other = accumulator(Sum("v"), pa.int64()), accumulator(Sum("v"), pa.int64())
    for held in (whole, other):
        held.make_room(5)
        held.add(np.arange(5), pa.array([1, 1, 1, 2**62 + 1, 1]))
    with pytest.raises(SumOverflowError) as error:
        whole.merge_first(5, other)
    assert error.value.slot == 3


def _reloaded(running: Any, aggregate: Aggregate, type: pa.DataType, slots: list[int]) -> Any:
    """Another accumulator with the same content."""
    fresh = accumulator(aggregate, type)
    room = max(slots, default=-1) + 1
    fresh.make_room(room)
    running.make_room(room)
    fresh.load(np.array(slots, np.intp), running.stored(np.array(slots, np.intp)))
    return fresh


NEAR_THE_END = st.integers(-(2**62), 2**62) | st.integers(2**63 - 40, 2**63 - 1) | st.integers(0, 9)


@pytest.mark.parametrize("type", [pa.int64(), pa.uint64()])
@given(data=st.data())
def test_a_sum_beyond_its_range_is_noticed_and_no_other(
    type: pa.DataType, data: st.DataObject
) -> None:
    values = NEAR_THE_END if type == pa.int64() else NEAR_THE_END.map(lambda n: 2 * abs(n))
    row = st.tuples(st.integers(0, 9), values)
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=6), max_size=8))
    bounds = np.iinfo(type.to_pandas_dtype())
    sums: dict[int, int] = defaultdict(int)
    running = accumulator(Sum("v"), type)
    for batch in batches:
        running.make_room(10)
        for slot, value in batch:
            sums[slot] += value
        beyond = {slot for slot, held in sums.items() if not bounds.min <= held <= bounds.max}
        slots = np.array([slot for slot, _ in batch])
        if beyond:
            with pytest.raises(SumOverflowError) as error:
                running.add(slots, pa.array([value for _, value in batch], type))
            assert error.value.slot in beyond
            return
        running.add(slots, pa.array([value for _, value in batch], type))
        if data.draw(st.booleans()):
            running = _reloaded(running, Sum("v"), type, list(range(10)))
        assert running.result(np.array(sorted(sums))).to_pylist() == [sums[s] for s in sorted(sums)]


def test_a_sum_of_many_large_numbers_that_cancel_out_is_no_error() -> None:
    sums = accumulator(Sum("v"), pa.int64())
    sums.make_room(5000)
    for _ in range(20):
        for sign in (1, -1):
            sums.add(np.arange(5000), pa.array(np.full(5000, sign * 2**61)))
    assert set(sums.result(np.arange(5000)).to_pylist()) == {0}


def test_wide_sums_beyond_96_bits_are_noticed() -> None:
    sums = accumulator(Sum("v", overflow="widen"), WIDE_SUM)
    sums.make_room(1)
    with pytest.raises(OverflowError, match="96 bits"):
        sums.add(np.array([0]), pa.array([Decimal(2**96)], WIDE_SUM))
    sums.add(np.array([0]), pa.array([Decimal(2**94)], WIDE_SUM))
    with pytest.raises(SumOverflowError):
        sums.add(np.array([0]), pa.array([Decimal(2**94)], WIDE_SUM))


def test_wide_sums_go_on_from_sums_that_were_not_wide() -> None:
    narrow, wide = (
        accumulator(Sum("v"), pa.int64()),
        accumulator(Sum("v", overflow="widen"), pa.int64()),
    )
    for sums in (narrow, wide):
        sums.make_room(3)
    narrow.add(np.array([0, 1]), pa.array([2**63 - 1, -5]))
    wide.load(np.arange(3), narrow.stored(np.arange(3)))
    wide.add(np.array([0]), pa.array([2**63 - 1]))
    assert wide.result(np.arange(3)).to_pylist() == [Decimal(2**64 - 2), Decimal(-5), None]


def test_overflow_is_one_of_two_words() -> None:
    with pytest.raises(ConfigurationError, match="'error' or 'widen', not 'wrap'"):
        Sum("v", overflow="wrap")  # type: ignore[arg-type]


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
