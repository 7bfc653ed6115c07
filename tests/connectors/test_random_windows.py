"""Windows of random jobs, through crashes and rescales, against the same windows in Spark SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minirt.windows.panes import DAY_MS, PanedWindow
from tests.campaigns import sampled
from tests.connectors.random_jobs import Event, Ran, killed, lasts, simulated
from tests.connectors.random_windows import KINDS, Case, Windows, draw, newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEEDS = 2 * len(KINDS)
LASTING = (seed for seed in count(1000) if lasts(draw(seed).splits))
"""Seeds of jobs whose workers can be killed."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Row = tuple[Any, ...]


def spark_rows(spark: SparkSession, windows: Windows, events: Sequence[Event]) -> list[Row]:
    """What Spark gives for the events, in order."""
    if not events:
        return []
    values = ", ".join(
        f"({_sql(event['k'])}, CAST({event['t']} AS BIGINT), CAST({_sql(event['v'])} AS BIGINT))"
        for event in events
    )
    spark.sql(f"SELECT * FROM VALUES {values} AS events(k, t, v)").createOrReplaceTempView("events")
    return in_order(tuple(row) for row in spark.sql(windows.sql).collect())


def own_rows(results: Sequence[Event]) -> list[Row]:
    names = ("n", "big", "sum", "least", "most", "kinds")
    return in_order(
        (
            row["k"],
            _milliseconds(row["window_start"]),
            _milliseconds(row["window_end"]),
            *(row[name] for name in names),
        )
        for row in results
    )


def in_order(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0] is not None, *row[:3]))


def difference(spark: SparkSession, case: Case, ran: Ran) -> tuple[list[Row], list[Row]]:
    """The results that only minirt gives, and those that only Spark gives."""
    late = {row["id"] for row in ran.late}
    on_time = [event for event in case.events if event["id"] not in late]
    own, expected = own_rows(newest(ran)), spark_rows(spark, case.windows, on_time)
    only_own = [row for row in own if row not in expected]
    return only_own, [row for row in expected if row not in own]


def simulation(case: Case) -> Ran:
    return simulated(case.build, case.seed, case.mode, case.widths)


@pytest.mark.parametrize("seed", range(sampled(SEEDS, 2)))
def test_random_windows_give_what_spark_gives(spark: SparkSession, seed: int) -> None:
    case = draw(seed)
    found = difference(spark, case, simulation(case))
    assert found == ([], []), f"{case.windows.window} in {case.mode}"


@pytest.mark.processes
@pytest.mark.parametrize("seed", [*islice(LASTING, sampled(2, 2))])
def test_random_windows_give_what_spark_gives_though_workers_are_killed(
    spark: SparkSession, seed: int, tmp_path: Path
) -> None:
    case = draw(seed)
    ran = killed(case.build, seed, case.mode, case.widths, tmp_path)
    assert difference(spark, case, ran) == ([], []), f"{case.windows.window} in {case.mode}"


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "days"])
def test_records_in_a_wrong_window_are_noticed(
    spark: SparkSession, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    panes_of = PanedWindow.panes_of
    off = DAY_MS // 2 if kind == "days" else 1
    monkeypatch.setattr(PanedWindow, "panes_of", lambda self, times: panes_of(self, times + off))
    cases = (draw(seed) for seed in range(KINDS.index(kind), 50, len(KINDS)))
    found = (difference(spark, case, simulation(case)) for case in cases)
    assert any(only_own and only_spark for only_own, only_spark in found)


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _milliseconds(time: dt.datetime | str) -> int:
    if isinstance(time, str):  # As files have it.
        time = dt.datetime.fromisoformat(time)
    aware = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(milliseconds=1)
