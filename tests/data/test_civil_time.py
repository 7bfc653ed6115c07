"""Keys that are times of a zone whose clocks change: the same keys in rows as in columns."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.civil_time import SecondPass
from minirt.data.keys import KeyRouter, distinct_keys, hash_column, key_hash, subtask_of_group
from minirt.data.values import pack_value, unpack_value

ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")]
CHANGES = [
    dt.datetime(2024, month, day, 2)
    for month, day in ((3, 10), (3, 31), (4, 7), (10, 6), (10, 27), (11, 3))
]
"""Near nights in which clocks are changed somewhere."""

CIVIL = st.builds(
    lambda day, minutes, zone, fold: (day + dt.timedelta(minutes=minutes)).replace(
        tzinfo=zone, fold=fold
    ),
    st.sampled_from(CHANGES),
    st.integers(-120, 120),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)


def instant(time: dt.datetime) -> float:
    return time.timestamp()


@given(CIVIL, st.integers(-8, 8), st.integers(0, 1))
def test_times_of_a_zone_are_one_key_if_they_are_one_instant(
    one: dt.datetime, quarters: int, fold: int
) -> None:
    other = (one.replace(tzinfo=None) + dt.timedelta(minutes=15 * quarters)).replace(
        tzinfo=one.tzinfo, fold=fold
    )
    same = instant(one) == instant(other)
    a, b = distinct_keys([one, other])
    assert (a == b) is same
    assert len({a, b}) == 2 - same
    [(x, _), (y, _)] = distinct_keys([(one, 1), (other, 1)])
    assert (x == y) is same
    assert instant(a) == instant(one)


@given(CIVIL)
def test_rows_are_hashed_as_columns_are(time: dt.datetime) -> None:
    [distinct] = distinct_keys([time])
    column = pa.array([time], pa.timestamp("us", str(time.tzinfo)))
    assert key_hash(time) == key_hash(distinct) == int(hash_column(column)[0])


@given(st.lists(CIVIL, min_size=1, max_size=10))
def test_a_router_sends_keys_where_they_belong_whatever_it_has_seen(times: list[Any]) -> None:
    router = KeyRouter(range(7), 128, 100)
    keys = [key for time in times for key in (time, time.replace(fold=1 - time.fold), (time, "x"))]
    for key in keys:
        assert router[key] == subtask_of_group(key_hash(key) % 128, 7, 128)


@given(CIVIL)
def test_they_travel_and_are_stored(time: dt.datetime) -> None:
    [key] = distinct_keys([time])
    back = unpack_value(pack_value(key))
    assert type(back) is dt.datetime
    assert distinct_keys([back]) == [key]
    assert pickle.loads(pickle.dumps(key)) == key


def test_a_second_pass_is_equal_to_the_time_that_it_was_made_of() -> None:
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZONES[0])
    second = SecondPass.of(first.replace(fold=1))
    assert second == first.replace(fold=1)
    assert first.replace(fold=1) == second
    assert second != first
    assert second.replace(hour=12) == first.replace(hour=12)
    assert second != "text"


@pytest.mark.parametrize("keys", [["a", 1, None], [("a", 1), ("b", 2)], [dt.date(2024, 1, 1)], []])
def test_other_keys_stay_what_they_are(keys: list[Any]) -> None:
    assert distinct_keys(keys) is keys
