"""A program whose job runs on the executors of a Spark cluster; prints its result as JSON.

Arguments: a folder, how many records, their pace a second, and, for a cluster other than one that Spark
starts here, its master and the address of this machine. There the parallelism follows the slots: the file
`parallelism` in the folder says what it is, and the last records come once `let-go` is there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import minirt as rt
from minirt_connectors.spark import SparkCluster
from minirt_connectors.spark.session import QUICK_JAVA
from tests.runtime.campaign import compare, write_files
from tests.runtime.jobs import CASES, build

_HERE = ("local-cluster[2,2,512]", "127.0.0.1")
REACTIVE = rt.Reactive(settle="1s", patience="3s", rescales=20)


class Tells(rt.JobObserver):
    """Writes the parallelism of a job that runs, else 0."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_status(self, status: rt.JobStatus, generation: int) -> None:
        if status is not rt.JobStatus.RUNNING:
            self._file.write_text("0")

    def on_progress(self, progress: rt.JobProgress) -> None:
        self._file.write_text(str(max((id.index + 1 for id in progress.metrics), default=0)))


def session_on(master: str, host: str, folder: Path) -> SparkSession:
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    session: SparkSession = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", QUICK_JAVA)
        .config("spark.executor.extraJavaOptions", QUICK_JAVA)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", host)
        .config("spark.driver.bindAddress", host)
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    folder, count, pace = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    elsewhere = sys.argv[4:]
    session = session_on(*(elsewhere or _HERE), folder)
    let_go = folder / "let-go" if elsewhere else None
    cluster = SparkCluster(
        session, slots=2 if elsewhere else 3, reactive=REACTIVE if elsewhere else None
    )
    env = rt.Environment("on-spark", parallelism=2)
    case = CASES["keyed"]
    write_files(build(case, env, count, per_second=pace, let_go=let_go), folder)
    job = env.start(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="100ms"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots"),
        observer=Tells(folder / "parallelism"),
        cluster=cluster,
    )
    print("started", session.sparkContext.applicationId, flush=True)
    try:
        result = job.wait()
        lost, duplicated = compare(case, count, 2, folder)
        said = {"restarts": result.restarts, "lost": lost, "duplicated": duplicated}
    except rt.JobFailedError as error:
        said = {"failed": str(error)}
    print(json.dumps(said), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
