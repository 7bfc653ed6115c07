"""Has Spark write rows as Parquet files into a folder, and makes sure that all of them are there.

The law: what a source replays are all rows that Spark has counted, or the source is refused. Executors that
do not share the folder write to disks of their own, and Spark's commit keeps what the driver sees.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minirt.errors import ConfigurationError, SourceDataError
from minirt_connectors.spark.columns import exact_parquet
from minirt_connectors.spark.layout import Layout
from minirt_connectors.spark.place import Place
from minirt_connectors.spark.session import reasons, without_pandas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROBE_TASKS_MAX = 64
_PROBE_ROWS = 100
"""For each task: so many that each has some to write, however Spark deals them."""
_UNKNOWN_TASKS = 8
_SEEN = "seen-by-the-driver"


def write_files(
    df: DataFrame, layout: Layout, place: Place, **options: Any
) -> tuple[list[str], int]:
    """Write the rows in this layout into an empty folder: the names of the files, and how many rows.

    Raises ConfigurationError unless this process sees in the files as many rows as Spark has counted while
    it wrote them; SourceDataError if Spark cannot write them.
    """
    written = _write(layout.deal(df), place, options)
    files = place.parts()
    present = place.rows_of(files)
    if present != written or not files:
        raise _not_shared(df.sparkSession, place, written, present)
    return files, written


def refuse_private_folder(spark: SparkSession, folder: Path) -> None:
    """Raise ConfigurationError if an executor does not write to where this process reads.

    Asks about as many executors as take a task each at once; `write_files` counts besides.
    """
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return
    context = None if is_connect(spark) else spark.sparkContext
    tasks = min(_UNKNOWN_TASKS if context is None else context.defaultParallelism, _PROBE_TASKS_MAX)
    aside = Path(tempfile.mkdtemp(prefix=".probe-", dir=folder))
    try:
        rows = spark.range(0, tasks * _PROBE_ROWS, 1, tasks)
        write_files(rows, Layout(splits=tasks), Place.at(aside))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_connect(spark: SparkSession) -> bool:
    """The session is that of a client of Spark Connect, and this process is not the driver."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _write(dealt: DataFrame, place: Place, options: dict[str, Any]) -> int:
    """The number of rows that the tasks have written, each of which counts once however often it ran."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    counting = _observation(dealt.sparkSession)
    counted = dealt.observe(counting, F.count(F.lit(1)).alias("rows"))
    chosen = {"compression": "snappy", "maxRecordsPerFile": 0, **options}
    try:
        with exact_parquet(dealt.sparkSession):
            counted.write.mode("overwrite").options(**chosen).parquet(place.spark_url)
    except (PySparkException, Py4JJavaError) as error:
        raise SourceDataError(f"Spark cannot write the DataFrame: {reasons(error)}") from error
    return int(counting.get["rows"])


def _observation(spark: SparkSession) -> Any:
    if is_connect(spark):
        from pyspark.sql.connect.observation import Observation as OfConnect

        return OfConnect()
    from pyspark.sql import Observation

    return Observation()


def _not_shared(
    spark: SparkSession, place: Place, written: int, present: int
) -> ConfigurationError:
    hosts = _clear_executors(spark, Path(place.root)) if place.is_local else []
    where = f" ({', '.join(hosts)})" if hosts else ""
    return ConfigurationError(
        f"of {written:,} rows that Spark has written to {place.root.rpartition('/')[0]}, {present:,} are "
        f"there for this process: executors{where} do not share the folder. Give cache_dir=... a folder "
        "that the driver, all executors and all workers share; what was written is deleted"
    )


def _clear_executors(spark: SparkSession, folder: Path) -> list[str]:
    """Have executors delete the folder where it is not the one seen here, and name their hosts."""
    (folder / _SEEN).touch()
    here, seen = str(folder), _SEEN

    def clear(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # This runs on executors, which may lack minirt.
        import os
        import shutil
        import socket

        import pyarrow as pa

        for batch in batches:
            apart = not os.path.exists(os.path.join(here, seen))
            if apart:
                shutil.rmtree(here, ignore_errors=True)
            hosts = [socket.gethostname() if apart else None] * batch.num_rows
            yield pa.RecordBatch.from_pydict({"host": pa.array(hosts, pa.string())})

    with suppress(Exception), without_pandas():  # It is a courtesy: the refusal says what is wrong.
        tasks = _UNKNOWN_TASKS if is_connect(spark) else spark.sparkContext.defaultParallelism
        asked = spark.range(0, tasks, 1, tasks).mapInArrow(clear, "host string")
        return sorted({row["host"] for row in asked.collect()} - {None})
    return []
