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
    """Write the file: the classes that a session needs to start and for a query.

    With those of all that tests ask of it, it would take longer than they save.
    """
    from minirt_connectors.spark import local_session

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder) / ARCHIVE.name
        os.environ[_VARIABLE] = _arguments(f"-XX:ArchiveClassesAtExit={made}")
        session = local_session("minirt-classes")
        session.range(50).selectExpr("id", "id % 7 AS key").groupBy("key").count().collect()
        jvm = session.sparkContext._gateway.proc
        session.stop()
        jvm.stdin.close()  # With that it ends.
        jvm.wait(_END_S)
        os.replace(made, ARCHIVE)


def _arguments(option: str) -> str:
    options = f"defaultJavaOptions={option} {_QUIET}"
    return f'--conf "spark.driver.{options}" --conf "spark.executor.{options}" pyspark-shell'


if __name__ == "__main__":
    make()
