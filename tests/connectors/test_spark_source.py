"""SparkSource: what Spark writes, and what is read back of it."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.errors import ConfigurationError, SourceDataError, StorageError
from minirt.io.base import Source, Split
from minirt_connectors.spark import SparkSource
from minirt_connectors.spark.parquet_reader import BATCH_RECORDS, ParquetFileReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Times that fall while ids rise, so that no order comes by itself."""
    return spark.range(count).selectExpr("id", f"{count} - id AS time")


def read_split(source: Source, split: Split, offset: Any = None) -> list[dict[str, Any]]:
    reader = source.open_split(split, offset)
    rows: list[dict[str, Any]] = []
    while (batch := reader.read()) is not None:
        assert isinstance(batch, pa.RecordBatch)
        rows += batch.to_pylist()
    reader.close()
    return rows


def read_all(source: Source) -> list[dict[str, Any]]:
    return [row for split in source.plan_splits(2) for row in read_split(source, split)]


def data_folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def test_every_record_is_in_exactly_one_split(spark: SparkSession, tmp_path: Path) -> None:
    source = SparkSource(numbers(spark, 1000), splits=3, cache_dir=str(tmp_path))
    assert len(source.plan_splits(2)) == 3
    assert sorted(row["id"] for row in read_all(source)) == list(range(1000))


def test_each_split_runs_in_order_through_the_whole_range(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = SparkSource(
        numbers(spark, 4000),
        order_by="time",
        partition_by="id",
        splits=4,
        cache_dir=str(tmp_path),
    )
    assert source.interleave
    assert len(source.plan_splits(2)) == 4
    for split in source.plan_splits(2):
        times = [row["time"] for row in read_split(source, split)]
        assert times == sorted(times)
        assert 900 < len(times) < 1100
        assert times[0] < 100
        assert times[-1] > 3900


def test_several_columns_order_a_split(spark: SparkSession, tmp_path: Path) -> None:
    frame = numbers(spark, 200).selectExpr("id", "time % 7 AS day", "id % 13 AS hour")
    source = SparkSource(frame, order_by=["day", "hour"], splits=1, cache_dir=str(tmp_path))
    order = [(row["day"], row["hour"]) for row in read_all(source)]
    assert order == sorted(order)


def test_without_order_splits_need_not_be_read_side_by_side(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = SparkSource(numbers(spark, 5), cache_dir=str(tmp_path))
    assert source.interleave is None
    assert not source.reads_side_by_side


def test_the_same_content_is_found_again_and_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = SparkSource(numbers(spark, 50), order_by="time", splits=2, cache_dir=str(tmp_path))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    shuffled = numbers(spark, 50).orderBy("time")
    again = SparkSource(shuffled, order_by="time", splits=2, cache_dir=str(tmp_path))
    assert again.plan_splits(4) == first.plan_splits(2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == times


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([(1, None)], [(None, 1)]),
        ([(1, 2)], [(2, 1)]),
        ([(1, 2)], [(1, 2), (1, 2)]),
        ([], [(None, None)]),
    ],
)
def test_other_content_of_the_same_shape_is_other_data(
    spark: SparkSession, tmp_path: Path, left: list[Any], right: list[Any]
) -> None:
    for rows in (left, right):
        frame = spark.createDataFrame(rows, "a int, b int")
        source = SparkSource(frame, splits=1, cache_dir=str(tmp_path))
        assert [(row["a"], row["b"]) for row in read_all(source)] == rows
    assert len(data_folders(tmp_path)) == 2


def test_nested_nulls_count_in_the_content(spark: SparkSession, tmp_path: Path) -> None:
    for values in ([1, None], [None, 1]):
        frame = spark.createDataFrame([(values,)], "list array<int>")
        assert read_all(SparkSource(frame, cache_dir=str(tmp_path))) == [{"list": values}]


def test_another_layout_of_the_same_content_is_other_data(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = numbers(spark, 20)
    SparkSource(frame, order_by="time", splits=2, cache_dir=str(tmp_path))
    SparkSource(frame, order_by="id", splits=2, cache_dir=str(tmp_path))
    SparkSource(frame, order_by="id", splits=3, cache_dir=str(tmp_path))
    SparkSource(frame, order_by="id", partition_by="time", splits=3, cache_dir=str(tmp_path))
    assert len(data_folders(tmp_path)) == 4


def test_a_name_stands_for_the_data_first_written_under_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(10).selectExpr("rand() AS x")
    first = SparkSource(frame, name="dice", cache_dir=str(tmp_path))
    again = SparkSource(
        spark.range(10).selectExpr("rand() AS x"), name="dice", cache_dir=str(tmp_path)
    )
    assert data_folders(tmp_path) == ["dice"]
    assert read_all(again) == read_all(first)


def test_a_name_with_another_layout_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    SparkSource(numbers(spark, 5), name="few", splits=2, cache_dir=str(tmp_path))
    with pytest.raises(ConfigurationError, match="'few' was written with another layout"):
        SparkSource(numbers(spark, 5), name="few", splits=3, cache_dir=str(tmp_path))


def test_a_restored_split_is_read_from_the_data_it_was_planned_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    planned = SparkSource(numbers(spark, 9), splits=1, cache_dir=str(tmp_path)).plan_splits(1)[0]
    changed = SparkSource(numbers(spark, 5), splits=1, cache_dir=str(tmp_path))
    assert len(read_split(changed, planned)) == 9


def test_a_restored_split_whose_data_was_deleted_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = SparkSource(numbers(spark, 9), splits=1, cache_dir=str(tmp_path))
    split = source.plan_splits(1)[0]
    (tmp_path / split.info["file"]).unlink()
    with pytest.raises(SourceDataError, match="is gone"):
        source.open_split(split, None)


def test_an_interrupted_write_is_cleared_away_and_not_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    abandoned = tmp_path / ".few.writing-x"
    abandoned.mkdir()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "part-00000-half.parquet").write_text("half")
    source = SparkSource(numbers(spark, 5), name="few", cache_dir=str(tmp_path))
    assert len(read_all(source)) == 5
    assert data_folders(tmp_path) == ["few"]


def test_a_failing_write_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(10).selectExpr("raise_error('no') AS x").selectExpr("cast(x AS int) x")
    with pytest.raises(SourceDataError, match=r"(?s)Spark cannot write the DataFrame: .*no"):
        SparkSource(frame, name="bad", cache_dir=str(tmp_path))
    assert data_folders(tmp_path) == []


def test_damaged_data_names_the_folder_to_delete(spark: SparkSession, tmp_path: Path) -> None:
    SparkSource(numbers(spark, 5), name="few", cache_dir=str(tmp_path))
    (tmp_path / "few" / "_minirt.json").write_text("{")
    with pytest.raises(StorageError, match=r"delete the folder.*few"):
        SparkSource(numbers(spark, 5), name="few", cache_dir=str(tmp_path))


def test_types_arrive_as_python_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        """SELECT timestamp '2013-01-01 05:15:00.123456+00:00' AS at,
                  timestamp_ntz '2013-01-01 05:15:00' AS local,
                  date '2013-01-01' AS day, cast(1.50 AS decimal(10, 2)) AS price, 'é' AS text,
                  named_struct('a', 1, 'b', array(1, null)) AS nested,
                  map('k', timestamp '2013-01-01 00:00:00+00:00') AS times, cast(null AS int) AS none"""
    )
    source = SparkSource(frame, splits=1, cache_dir=str(tmp_path))
    assert read_all(source) == [
        {
            "at": dt.datetime(2013, 1, 1, 5, 15, 0, 123456, dt.UTC),
            "local": dt.datetime(2013, 1, 1, 5, 15),
            "day": dt.date(2013, 1, 1),
            "price": Decimal("1.50"),
            "text": "é",
            "nested": {"a": 1, "b": [1, None]},
            "times": [("k", dt.datetime(2013, 1, 1, tzinfo=dt.UTC))],
            "none": None,
        }
    ]
    assert source.schema().field("at").type == pa.timestamp("us", "UTC")
    assert source.schema().field("local").type == pa.timestamp("us")


def test_timestamps_are_utc_in_any_session_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("SELECT timestamp '2013-01-01 00:00:00' AS at")
        source = SparkSource(frame, cache_dir=str(tmp_path))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert read_all(source) == [{"at": dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)}]


def test_the_session_keeps_its_own_timestamp_format(spark: SparkSession, tmp_path: Path) -> None:
    option = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(option)
    SparkSource(spark.range(1), cache_dir=str(tmp_path))
    assert spark.conf.get(option) == before


def test_an_empty_frame_has_columns_and_no_records(spark: SparkSession, tmp_path: Path) -> None:
    source = SparkSource(numbers(spark, 0), order_by="time", cache_dir=str(tmp_path))
    assert source.schema().names == ["id", "time"]
    assert read_all(source) == []


def test_odd_column_names_work(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id AS `a.b`", "3 - id AS `tick``s`")
    source = SparkSource(frame, order_by="tick`s", splits=1, cache_dir=str(tmp_path))
    assert [row["a.b"] for row in read_all(source)] == [2, 1, 0]


def test_what_cannot_work_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def refused(frame: DataFrame, match: str, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=match):
            SparkSource(frame, **{"cache_dir": str(tmp_path), **options})

    frame = spark.range(3)
    refused(frame, "order_by: no column when; there are id", order_by="when")
    refused(frame, "splits must be a whole number above 0", splits=0)
    refused(frame, "name 'a/b'", name="a/b")
    for url in ("dbfs:/x", "abfss:/x", "file://host/x", "hdfs://host/x"):
        refused(frame, f"cache_dir must be a folder, or a URL of s3.*not {url}", cache_dir=url)
    refused(frame, "storage_options has no effect", storage_options={"key": "k"})
    refused(frame, "partition_by has no effect without order_by", partition_by="id")
    refused(frame, "partition_by: no column who; there are id", order_by="id", partition_by="who")
    maps = frame.selectExpr("id", "map(id, id) AS m")
    refused(maps, "order_by: column m is map.*cannot compare", order_by="m")
    refused(frame.selectExpr("id", "id AS ID"), "columns id and ID differ in case only")
    refused(frame.select(), "has no columns")
    refused(frame.selectExpr("id", "id"), "two columns are called id")
    refused(frame.selectExpr("null AS n"), "column n: records cannot carry the type void")
    refused(frame.selectExpr("array(interval '1' day) AS i"), "column i: .* interval day")
    refused(frame, "clean has no effect: the DataFrame is not streaming", clean=True)
    rate = spark.readStream.format("rate").load()
    refused(rate, "a streaming DataFrame needs a name")
    refused(rate, "backlog has no effect without clean=True", name="rate", backlog="1MiB")


def test_workers_need_no_pyspark(spark: SparkSession, tmp_path: Path) -> None:
    source = SparkSource(numbers(spark, 7), splits=1, cache_dir=str(tmp_path / "cache"))
    (tmp_path / "source.pickle").write_bytes(pickle.dumps(source))
    worker = """
import pickle, sys
sys.modules["pyspark"] = None
source = pickle.load(open(sys.argv[1], "rb"))
reader = source.open_split(source.plan_splits(1)[0], None)
print(reader.read().num_rows, reader.read())
"""
    ran = subprocess.run(
        [sys.executable, "-c", worker, str(tmp_path / "source.pickle")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["7", "None"]


@pytest.fixture
def three_groups(tmp_path: Path) -> str:
    path = str(tmp_path / "part.parquet")
    table = pa.table({"id": pa.array(range(3 * 20_000), pa.int64())})
    pq.write_table(table, path, row_group_size=20_000)
    return path


def test_reading_goes_on_exactly_at_every_offset(three_groups: str) -> None:
    reader = ParquetFileReader(three_groups, None)
    seen, offsets = [0], [reader.offset]
    while (batch := reader.read()) is not None:
        assert batch.num_rows <= BATCH_RECORDS
        seen.append(seen[-1] + batch.num_rows)
        offsets.append(reader.offset)
    reader.close()
    assert seen[-1] == 60_000
    for position, offset in [*zip(seen, offsets, strict=True), (20_123, [1, 123])]:
        resumed = ParquetFileReader(three_groups, offset)
        rest = [n for batch in iter(resumed.read, None) for n in batch["id"].to_pylist()]
        resumed.close()
        assert rest == list(range(position, 60_000))


@pytest.mark.parametrize("offset", [[0, 20_001], [3, 1], [4, 0], [-1, 0]])
def test_an_offset_that_the_file_does_not_have_is_refused(
    three_groups: str, offset: list[int]
) -> None:
    with pytest.raises(SourceDataError, match="has no position"):
        ParquetFileReader(three_groups, offset)


def test_a_damaged_file_is_named(three_groups: str) -> None:
    Path(three_groups).write_bytes(b"PAR1 nonsense")
    with pytest.raises(SourceDataError, match=r"part\.parquet"):
        ParquetFileReader(three_groups, None)
