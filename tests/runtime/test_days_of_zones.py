"""Days in a time zone begin when its clocks say so, or when they skip that moment."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import minirt as rt

ZONES = sorted(available_timezones() - {"localtime"})
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAYS = st.dates(dt.date(1850, 1, 1), dt.date(2040, 1, 1))


@given(st.sampled_from(ZONES), DAYS, st.integers(0, 1))
@example("America/Toronto", dt.date(1919, 3, 31), 0)
@example("Asia/Beirut", dt.date(2024, 3, 31), 0)
@example("Pacific/Apia", dt.date(2011, 12, 31), 0)
@example("America/Havana", dt.date(2023, 11, 5), 0)
def test_a_day_begins_with_the_first_moment_of_its_date(
    zone: str, day: dt.date, hours: int
) -> None:
    window = rt.Tumbling("1d", timezone=zone, offset=f"{hours}h" if hours else 0)
    pane = (day - dt.date(1970, 1, 1)).days
    start, end = window.start_of(pane), window.start_of(pane + 1)
    moments = np.arange(start - 1, start + 1)
    before, first = window.panes_of(moments).tolist()
    if start < end:  # Some zones have left out a whole day.
        assert first == pane
    assert before < pane
    clock = (EPOCH + dt.timedelta(milliseconds=start)).astimezone(ZoneInfo(zone))
    if start < end:
        assert (clock - dt.timedelta(hours=hours)).date() == day


@pytest.mark.parametrize(
    ("zone", "day", "start"),
    [
        ("America/Toronto", dt.date(1919, 3, 31), "1919-03-31T04:30:00+00:00"),
        ("Asia/Beirut", dt.date(2024, 3, 31), "2024-03-30T22:00:00+00:00"),
        ("America/Havana", dt.date(2023, 11, 5), "2023-11-05T04:00:00+00:00"),
    ],
)
def test_days_that_begin_at_an_odd_moment(zone: str, day: dt.date, start: str) -> None:
    window = rt.Tumbling("1d", timezone=zone)
    began = window.start_of((day - dt.date(1970, 1, 1)).days)
    assert (EPOCH + dt.timedelta(milliseconds=began)).isoformat() == start
