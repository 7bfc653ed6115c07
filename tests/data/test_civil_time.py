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

from minirt.data.civil_time import ByInstant, Nanoseconds
from minirt.data.keys import KeyRouter, distinct_keys, hash_column, key_hash, subtask_of_group
from minirt.data.values import pack_value, unpack_value
from minirt.state.row_keys import key_columns, plain

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


@given(CIVIL, st.sampled_from([dt.UTC, *ZONES]))
def test_times_of_two_zones_are_one_key_if_they_are_one_instant(
    time: dt.datetime, zone: dt.tzinfo
) -> None:
    """Also where Python says that they differ, since their hour comes twice."""
    other = time.astimezone(dt.UTC).astimezone(zone)
    one, same = distinct_keys([time, other])
    assert one == same
    assert len({one, same}) == 1
    assert key_hash(time) == key_hash(other) == key_hash(one) == key_hash(same)
    later = distinct_keys([other + dt.timedelta(minutes=1)])
    assert one not in later


TIMES = st.datetimes(
    timezones=st.sampled_from([None, dt.UTC, *ZONES, dt.timezone(dt.timedelta(hours=2))])
)


@given(TIMES, st.integers(1, 999), st.integers(0, 999))
def test_nanoseconds_tell_keys_apart(time: dt.datetime, one: int, other: int) -> None:
    a = Nanoseconds.of(time, one)
    [b] = [Nanoseconds.of(time, other)] if other else [time]
    assert (a == b) is (one == other)
    assert (b == a) is (one == other)
    assert len({a, b}) == (1 if one == other else 2)
    assert key_hash(a) == key_hash(b) == key_hash(time)
    assert (plain(a) == plain(b)) is (one == other)
    assert repr(one).rjust(3, "0") in a.isoformat()
    for back in (unpack_value(pack_value(a)), pickle.loads(pickle.dumps(a))):
        assert type(back) is Nanoseconds
        assert (back, back.nanosecond, back.tzinfo) == (a, one, time.tzinfo)


@given(TIMES)
def test_no_instant_is_too_far_to_be_stored_as_a_key(time: dt.datetime) -> None:
    same = [time] if time.tzinfo is None else [time, Nanoseconds.of(time, 1)]
    assert len({repr(plain(key)) for key in same}) == len(same)
    key_columns(distinct_keys([*same]))


@pytest.mark.parametrize(("time", "west"), [(dt.datetime.max, -1), (dt.datetime.min, 1)])
def test_instants_that_utc_does_not_have_are_keys(time: dt.datetime, west: int) -> None:
    """One key in each zone that has it, and another one than its neighbours."""
    hours, half = dt.timedelta(hours=5), dt.timedelta(minutes=30)
    one = time.replace(tzinfo=dt.timezone(west * hours))
    same = (time + west * half).replace(tzinfo=dt.timezone(west * (hours + half)))
    other = one + west * dt.timedelta(microseconds=1)
    assert plain(one) == plain(same) != plain(other)
    first, second, third = key_columns(distinct_keys([one, same, other]))[1].to_pylist()
    assert first == second != third
    assert key_hash(one) == key_hash(same)


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
    second = ByInstant.of(first.replace(fold=1))
    assert second == first.replace(fold=1)
    assert first.replace(fold=1) == second
    assert second != first
    assert second.replace(hour=12) == first.replace(hour=12)
    assert second != "text"


@pytest.mark.parametrize("keys", [["a", 1, None], [("a", 1), ("b", 2)], [dt.date(2024, 1, 1)], []])
def test_other_keys_stay_what_they_are(keys: list[Any]) -> None:
    assert distinct_keys(keys) is keys
