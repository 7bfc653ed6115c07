"""`write_savepoint`: a history in Spark becomes the state that a job starts from."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minirt as rt
from minirt_connectors.spark import register, write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CITIES = ["Bergen", "Łódź", "Porto", None]


def rows(first: int, count: int) -> pa.Table:
    """Measurements of cities by hour, with nulls in every column."""
    numbers = range(first, first + count)
    midnight = dt.datetime(2024, 3, 30, 22, tzinfo=dt.UTC)
    return pa.table(
        {
            "city": pa.array([CITIES[n % 4] for n in numbers]),
            "hour": pa.array(
                [None if n % 31 == 0 else midnight + dt.timedelta(hours=n % 9) for n in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "value": pa.array(
                [None if n % 5 == 0 else (n * 7919) % 1000 - 500 for n in numbers], pa.int64()
            ),
        }
    )


HISTORY, NEWS = rows(0, 4000), rows(4000, 1500)

BY_SPARK = {
    "total": "sum(value)",
    "n": "count(*)",
    "given": "count(value)",
    "least": "min(value)",
    "most": "max(value)",
}


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> DataFrame:
    pq.write_table(HISTORY, tmp_path / "history.parquet")
    return spark.read.parquet(str(tmp_path / "history.parquet"))


def totals(parallelism: int, news: Path) -> tuple[rt.Environment, rt.CollectSink]:
    env, sink = rt.Environment("totals", parallelism=parallelism), rt.CollectSink()
    (
        env.source(rt.ParquetSource(str(news)), uid="news")
        .key_by("city", "hour")
        .aggregate(
            rt.Sum("value", "total"),
            rt.Count("n"),
            rt.Count("given", "value"),
            rt.Min("value", "least"),
            rt.Max("value", "most"),
            uid="totals",
            emit="end",
        )
        .sink(sink, uid="out")
    )
    return env, sink


def by_spark(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.expr(text).alias(name) for name, text in BY_SPARK.items()]
    return df.groupBy("city", "hour").agg(*columns)


def test_a_job_that_starts_with_history_gives_what_spark_gives_of_all(
    spark: SparkSession, history: DataFrame, tmp_path: Path
) -> None:
    """The session is in a zone with a missing hour, in which the history lies."""
    news = tmp_path / "news.parquet"
    pq.write_table(NEWS, news)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        env, _ = totals(3, news)
        savepoint = write_savepoint(
            by_spark(history), tmp_path / "savepoint", job=env, uid="totals", key=["city", "hour"]
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    expected = by_spark(history.union(spark.read.parquet(str(news))))
    in_micros = expected.selectExpr("city", "unix_micros(hour) AS hour", *BY_SPARK)
    wanted = sorted((tuple(row) for row in in_micros.collect()), key=repr)
    assert len(wanted) > 30
    for parallelism in (1, 2, 3):
        env, sink = totals(parallelism, news)
        storage = rt.Checkpointing(tmp_path / f"checkpoints-{parallelism}", interval="1s")
        env.execute(checkpointing=storage, restore=savepoint.path)
        found = pa.Table.from_pylist(sink.rows)
        found = found.set_column(1, "hour", found["hour"].cast(pa.int64()))
        assert sorted((tuple(row.values()) for row in found.to_pylist()), key=repr) == wanted


class Visits(rt.KeyedProcess[str, dict[str, Any], tuple[str, int, int]]):
    count = rt.ValueState(0)
    recent = rt.ListState[int]()
    by_day = rt.MapState[dt.date, int]()

    def process(self, record: dict[str, Any], ctx: rt.KeyedContext) -> Any:
        self.count.value += 1
        yield ctx.key, self.count.value, len(self.recent.get()) + sum(self.by_day.values())


def test_states_of_a_process_come_from_columns_of_their_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT concat('user ', id) AS user, id AS count, sequence(1, id + 1) AS recent, "
        "map(DATE'2024-01-01', id) AS by_day FROM range(100)"
    )

    def visits(parallelism: int) -> tuple[rt.Environment, rt.CollectSink]:
        env, sink = rt.Environment("visits", parallelism=parallelism), rt.CollectSink()
        news = env.source(
            rt.CollectionSource([{"user": f"user {n}"} for n in range(0, 200, 3)]), uid="news"
        )
        news.key_by(lambda record: record["user"]).process(Visits(), uid="visits").sink(
            sink, uid="out"
        )
        return env, sink

    savepoint = write_savepoint(
        frame, tmp_path / "savepoint", job=visits(1)[0], uid="visits", key="user", parallelism=7
    )
    register(spark)
    stored = spark.read.format("minirt").options(path=savepoint.path, state="count").load()
    assert stored.rdd.getNumPartitions() == 7
    assert stored.selectExpr("sum(value)").collect()[0][0] == sum(range(100))
    env, sink = visits(2)
    storage = rt.Checkpointing(tmp_path / "checkpoints", interval="1s")
    env.execute(checkpointing=storage, restore=savepoint.path)
    assert sorted(sink.rows) == sorted(
        (f"user {n}", n + 1, 2 * n + 1) if n < 100 else (f"user {n}", 1, 0)
        for n in range(0, 200, 3)
    )


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("SELECT id % 50 AS user, id AS count FROM range(99)", r"the key \d+ comes more than once"),
        ("SELECT id AS user, id AS n FROM range(9)", "nothing for column 'n' to fill; it takes"),
        ("SELECT id AS user, id AS recent FROM range(9)", "type int64; a ListState takes an array"),
        ("SELECT cast(id AS double) AS user, 1 AS count FROM range(9)", "type double cannot be"),
        ("SELECT id, id AS count FROM range(9)", "key: no column user; there are id, count"),
    ],
)
def test_what_does_not_fit_is_refused(
    spark: SparkSession, tmp_path: Path, query: str, complaint: str
) -> None:
    env = rt.Environment("visits", parallelism=2)
    news = env.source(rt.CollectionSource([{"user": 1}]), uid="news")
    news.key_by("user").process(Visits(), uid="visits").sink(rt.CollectSink(), uid="out")
    path = tmp_path / "savepoint"
    with pytest.raises(rt.ConfigurationError, match=complaint):
        write_savepoint(spark.sql(query), path, job=env, uid="visits", key="user")
    assert [found for found in path.rglob("*") if found.is_file()] == []
