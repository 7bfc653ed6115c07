"""A program whose job runs on the executors of a local Spark cluster; prints its result as JSON.

Arguments: a folder, how many records, and their pace a second.
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


def main() -> None:
    folder, count, pace = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    session = (
        SparkSession.builder.master("local-cluster[2,2,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", QUICK_JAVA)
        .config("spark.executor.extraJavaOptions", QUICK_JAVA)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    env = rt.Environment("on-spark", parallelism=2)
    case = CASES["keyed"]
    write_files(build(case, env, count, per_second=pace), folder)
    job = env.start(
        checkpointing=rt.Checkpointing(str(folder / "checkpoints"), interval="100ms"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="10ms"),
        options=rt.Options(placement="slots"),
        cluster=SparkCluster(session, slots=3),
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
