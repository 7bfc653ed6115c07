"""Event time from a column: units, zones, and what cannot be a time."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import minirt as rt

NOON = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
NOON_MS = int(NOON.timestamp() * 1000)
NAIVE = NOON.replace(tzinfo=None)


def stamped(values, function=False):
    """The timestamps that the records of a job carry, in order."""

    class Times(rt.Process):
        def process(self, record, ctx):
            yield ctx.timestamp

    env, out = rt.Environment(), rt.CollectSink()
    by = (lambda record: record["t"]) if function else "t"
    table = pa.RecordBatch.from_arrays([values], names=["t"])
    marks = rt.Watermarks.monotonous(timestamp=by)
    source = env.source(rt.CollectionSource(table), uid="events", watermarks=marks)
    source.process(Times()).sink(out)
    env.execute(runner="inline")
    return out.rows


TIMES = {
    "s": pa.array([NAIVE], pa.timestamp("s")),
    "ms": pa.array([NAIVE], pa.timestamp("ms")),
    "us": pa.array([NAIVE + dt.timedelta(microseconds=999)], pa.timestamp("us")),
    "ns": pa.array([NAIVE], pa.timestamp("ns")),
    "zone": pa.array(
        [NOON.astimezone(ZoneInfo("Asia/Kolkata"))], pa.timestamp("us", "Asia/Kolkata")
    ),
    "seconds with zone": pa.array([NOON], pa.timestamp("s", "America/New_York")),
    "int64": pa.array([NOON_MS]),
    "uint64": pa.array([NOON_MS], pa.uint64()),
}


@pytest.mark.parametrize("kind", TIMES)
def test_units_and_zones(kind):
    assert stamped(TIMES[kind]) == [NOON_MS]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_a_date_is_its_midnight(kind):
    assert stamped(pa.array([NOON.date(), dt.date(1969, 12, 31)], kind)) == [
        NOON_MS - 12 * 3_600_000,
        -86_400_000,
    ]


def test_times_before_1970_are_rounded_down_as_well():
    before = pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999_500)], pa.timestamp("us"))
    assert stamped(before) == [-1]
    assert stamped(before, function=True) == [-1]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (pa.array([NAIVE, None]), "column 't' is the event time but holds 1 nulls"),
        (pa.array([2**63], pa.uint64()), "column 't' .* more than 64 bits of milliseconds"),
        (pa.array([2**60], pa.timestamp("s")), "column 't' .* more than 64 bits of milliseconds"),
    ],
)
def test_what_is_no_time_fails_with_source_and_column(values, problem):
    with pytest.raises(rt.JobFailedError, match=f"source CollectionSource .uid events.: {problem}"):
        stamped(values)


@pytest.mark.parametrize("values", [pa.array(["noon"]), pa.array([1.5]), pa.array([True])])
def test_other_types_are_refused_when_the_job_is_written(values):
    with pytest.raises(rt.ConfigurationError, match="column 't' is of type"):
        stamped(values)
