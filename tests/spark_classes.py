"""One file with the classes of Spark, from which JVMs that tests start have them in half the time.

`python -m tests.spark_classes` makes it; `make test` does so where it is missing, beside the tests. Tests
that begin before it is there go without, so tests with Spark are the last ones of a part; and so does a JVM
if another Java made it, or of other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_VARIABLE = "PYSPARK_SUBMIT_ARGS"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Else a JVM that goes without the file says so among what programs print."""
_END_S = 600
"""How long a JVM may take to write it, in seconds, while other parts of the tests keep the cores busy."""


def use() -> None:
    """From now on, Spark that starts here or in a program begun here loads classes from the file, if it is
    there.

    A JVM that is given a file and finds none goes without the one that Java brings, too.
    """
    if ARCHIVE.exists():
        os.environ.setdefault(_VARIABLE, _arguments(f"-XX:SharedArchiveFile={ARCHIVE}"))


def make() -> None:
    """Write the file: the classes that a session needs for the likes of what tests ask of it."""
    from minirt_connectors.spark import local_session

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder) / ARCHIVE.name
        os.environ[_VARIABLE] = _arguments(f"-XX:ArchiveClassesAtExit={made}")
        session = local_session("minirt-classes")
        _use(session, folder)
        jvm = session.sparkContext._gateway.proc
        session.stop()
        jvm.stdin.close()  # With that it ends.
        jvm.wait(_END_S)
        os.replace(made, ARCHIVE)


def _use(session: SparkSession, folder: str) -> None:
    numbers = session.range(50).selectExpr(
        *("id", "id % 7 AS key", "id / 3 AS share", "'n' || id AS text"),
        *("timestamp_seconds(id) AS at", "named_struct('a', id) AS nested", "array(id) AS list"),
    )
    flat = numbers.drop("nested", "list")
    for name, each in (("parquet", numbers), ("json", numbers), ("csv", flat)):
        each.write.format(name).save(f"{folder}/{name}")
        session.read.schema(each.schema).format(name).load(f"{folder}/{name}").collect()
    session.createDataFrame([(1, "a"), (2, "b")], ["key", "name"]).createOrReplaceTempView("names")
    session.read.parquet(f"{folder}/parquet").createOrReplaceTempView("numbers")
    session.sql(
        """
        SELECT key, name, window.start, count(*), sum(share), max(text),
               row_number() OVER (PARTITION BY key ORDER BY count(*) DESC) AS place
        FROM numbers LEFT JOIN names USING (key)
        GROUP BY key, name, window(at, '10 seconds')
        HAVING count(*) > 0 ORDER BY key
        """
    ).collect()
    flat.exceptAll(flat.distinct()).toArrow()


def _arguments(option: str) -> str:
    options = f"defaultJavaOptions={option} {_QUIET}"
    return f'--conf "spark.driver.{options}" --conf "spark.executor.{options}" pyspark-shell'


if __name__ == "__main__":
    make()
