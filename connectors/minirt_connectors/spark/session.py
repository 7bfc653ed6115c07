"""A small, quiet Spark session on this machine, and the check that a Java runtime exists for it."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError
from minirt.units import positive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17
_INSTALL = (
    "install one with `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, "
    "or point JAVA_HOME to it"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LOG_TAIL_CHARS = 2000
LOCAL_CLUSTER = "local-cluster[2,2,1024]"
"""Two executors on this machine, of two cores and 1,024 MB each."""
_LOCAL_CLUSTER = re.compile(
    r"local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*(?P<memory>[1-9]\d*)\s*\]"
)
_HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""For a driver and executors that nobody from elsewhere shall reach."""
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Sessions are short: quick compilation counts for more than the best code."""


def require_java() -> None:
    """Raise ConfigurationError, in one line, unless Spark would start a Java runtime of 17 or newer.

    Looks where Spark looks: at `$JAVA_HOME`, else along `$PATH`. Does not need pyspark.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        raise ConfigurationError(
            f"Spark needs Java {MIN_JAVA} or newer and `{java}` does not run: {_INSTALL}"
        ) from None
    version = _VERSION.search(answer.stderr + answer.stdout)
    if version is None or int(version[1]) < MIN_JAVA:
        found = f"Java {version[1]}" if version else "of an unknown version"
        raise ConfigurationError(
            f"Spark needs Java {MIN_JAVA} or newer and `{java}` is {found}: {_INSTALL}"
        )


def require_pyspark() -> None:
    """Raise ConfigurationError, in one line, unless pyspark can be imported."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"pyspark cannot be imported ({error}): install it with `pip install 'minirt[spark]'`"
        ) from None


def local_session(app_name: str, cores: int = 2) -> SparkSession:
    """The running Spark session of this process, or a new one on `cores` threads of this machine.

    The new one is meant for small data: 1 GB of memory, four shuffle partitions, no web interface,
    reachable from this machine only, session time zone UTC. What the JVM has to say goes to a log
    in a temporary folder that also holds the warehouse and ends with this process.
    Raises ConfigurationError if pyspark or Java is missing, or if Spark does not start.
    """
    positive("cores", cores)
    require_java()
    require_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    return _start(app_name, f"local[{cores}]", _HERE) if running is None else running


def cluster_session(app_name: str, master: str = LOCAL_CLUSTER) -> SparkSession:
    """A new Spark session on the cluster of `master`.

    By default that is a cluster on this machine, whose two executors are processes of their own with two
    cores and 1,024 MB each. It leaves nothing behind: logs and scratch files are in a temporary folder that
    ends with this process. For what else holds see `local_session`. Raises ConfigurationError as that does,
    and if this process has a session.
    """
    require_java()
    require_pyspark()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConfigurationError(
            "this process has a Spark session: stop it before a cluster is used"
        )
    local = _LOCAL_CLUSTER.fullmatch(master)
    if local is None:
        return _start(app_name, master, {})
    os.environ["SPARK_HOME"] = str(_home_of_links())
    executors = {
        "spark.executor.memory": f"{local['memory']}m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    return _start(app_name, master, _HERE | executors)


def is_local_cluster(master: str) -> bool:
    """Whether the executors of such a cluster are processes of this machine."""
    return _LOCAL_CLUSTER.fullmatch(master) is not None


def _home_of_links() -> Path:
    """Spark's own folder once more: a local cluster writes the logs of executors into its home."""
    import pyspark

    found = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    home = _scratch_folder() / "home"
    if not home.is_dir():
        home.mkdir()
        for part in Path(found).iterdir():
            if part.name != "work":
                (home / part.name).symlink_to(part)
    return home


def _start(app_name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    with without_pandas():
        return _started(app_name, master, settings)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Keep to oneself that pyspark warns of pandas 3, for calls in which nothing goes through pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


def reasons(error: Exception) -> str:
    """Spark's messages, one line each, from the failed query down to the cause, without Java's stack."""
    raised = getattr(error, "java_exception", None)
    if raised is None:
        return str(error)
    found = []
    while raised is not None:
        found.append(str(raised.getMessage()))
        raised = raised.getCause()
    return "\n".join(dict.fromkeys(found))


def _started(app_name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    folder = _scratch_folder()
    conf = SparkConf().setAll(
        [
            ("spark.master", master),
            ("spark.app.name", app_name),
            *settings.items(),
            ("spark.local.dir", str(folder)),
            ("spark.sql.session.timeZone", "UTC"),
            ("spark.sql.shuffle.partitions", "4"),
            ("spark.sql.warehouse.dir", str(folder / "warehouse")),
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
        ]
    )
    context = SparkContext(conf=conf, gateway=_gateway())
    context.setLogLevel("ERROR")
    return SparkSession(context)


@functools.cache
def _scratch_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="minirt-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _gateway() -> Any:
    """The JVM of this process: it outlives sessions, and a second one would not be used."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    # Spark's own Python processes take what `python3` is on the path, unless told: it may lack minirt.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = _scratch_folder() / "spark.log"
    with log.open("wb") as stderr:
        try:
            conf = SparkConf(loadDefaults=False).setAll(
                [
                    ("spark.driver.memory", "1g"),
                    ("spark.driver.extraJavaOptions", QUICK_JAVA),
                ]
            )
            return launch_gateway(conf, popen_kwargs={"stderr": stderr})
        except PySparkException as error:
            said = log.read_text(errors="replace").strip()[-_LOG_TAIL_CHARS:]
            raise ConfigurationError(f"Spark's JVM does not start; it said:\n{said}") from error
