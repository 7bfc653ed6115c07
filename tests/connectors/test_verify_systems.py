"""verify: output in tables and topics, as readers of their systems see it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minirt.errors import ConfigurationError, StorageError
from minirt_connectors.spark import Verdict, verify
from minirt_connectors.spark.verify.systems import copy_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = pa.table({"k": ["a", "b", "b"], "v": [1, 2, 2]})
MORE = pa.table({"k": ["c"], "v": [3]})
ALL_WELL, ONE_LOST = (0, 0, 0), (1, 0, 0)


def judged(spark: SparkSession, output: str, expected: pa.Table = ROWS) -> tuple[int, int, int]:
    frame: DataFrame = spark.createDataFrame(expected)
    verdict: Verdict = verify(spark, output, frame)
    return verdict.lost, verdict.duplicated, verdict.unexpected


def test_of_a_delta_table_only_the_rows_of_its_newest_version_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = str(tmp_path / "a folder" / "my table")
    deltalake.write_deltalake(table, MORE)
    deltalake.write_deltalake(table, ROWS, mode="overwrite")
    pq.write_table(MORE, Path(table) / "never-committed.parquet")
    assert judged(spark, table) == ALL_WELL
    assert judged(spark, table, pa.concat_tables([ROWS, MORE])) == ONE_LOST


def test_of_an_iceberg_table_the_file_of_metadata_says_which_rows_count(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = catalogs.SqlCatalog(
        "c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "tables").as_uri()
    )
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", ROWS.schema)
    table.append(ROWS)
    before = table.metadata_location
    table.append(MORE)
    assert judged(spark, before) == ALL_WELL
    assert judged(spark, table.metadata_location) == (0, 0, 1)
    folder = str(Path(re.sub(r"^file://", "", before)).parents[1])
    with pytest.raises(ConfigurationError, match=r"only its catalog knows.*metadata_location"):
        judged(spark, folder)


def test_a_folder_of_files_needs_no_client(tmp_path: Path) -> None:
    assert copy_of(str(tmp_path), {}) is None


def test_a_topic_is_named_with_its_brokers() -> None:
    with pytest.raises(ConfigurationError, match="kafka://HOST:PORT/TOPIC"):
        copy_of("kafka://topic", {})


def test_a_table_that_is_damaged_is_told(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(StorageError, match="cannot read the output"):
        judged(spark, str(tmp_path))
