"""A job on the executors of a Spark cluster on this machine: what is killed, and what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt_connectors.spark import SparkCluster, require_java
from tests.cluster.asked import TOKEN, Asked
from tests.runtime.processes import command_line, is_alive, needs_proc, send, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.conftest import Call

pytest.importorskip("cryptography")
pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, needs_proc]

COUNT, PACE = 3000, 500.0
_START_S_MAX = 120.0


class Program:
    """`spark_program.py`, and the processes that belong to it: they have its mark in their environment."""

    def __init__(self, folder: Path, *where: str) -> None:
        self._mark = f"MINIRT_TEST_MARK={folder}"
        self._out = folder / "out"
        with self._out.open("w") as out, (folder / "err").open("w") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).parent / "spark_program.py"),
                    *(str(folder), str(COUNT), str(PACE), *where),
                ],
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "MINIRT_TEST_MARK": str(folder),
                },
            )

    def result(self) -> dict[str, Any]:
        self.process.wait(_START_S_MAX)
        said: dict[str, Any] = json.loads(self._out.read_text().splitlines()[-1])
        return said

    def all(self, what: str = "") -> list[int]:
        """Living processes of it whose command line contains this."""
        return [pid for pid in marked(self._mark) if what in command_line(pid)]

    def agents(self) -> list[int]:
        return self.all("minirt host")

    def wait_until_running(self) -> None:
        """Three agents, two of which have forked a worker."""
        wait_until(lambda: len(self.agents()) == 5, "workers run", _START_S_MAX)
        time.sleep(1)


def marked(mark: str) -> list[int]:
    """Living processes with this in their environment, NAME=VALUE, which those that they start inherit."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            mine = mark.encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return sorted(found)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    try:
        require_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    program = Program(tmp_path)
    yield program
    try:
        wait_until(lambda: not program.all(), "nothing of it is left", 30)
    finally:
        for pid in program.all():
            send(pid, signal.SIGKILL)
        program.process.wait()


def test_the_loss_of_a_worker_and_of_an_executor_loses_nothing(program: Program) -> None:
    program.wait_until_running()
    workers = [pid for pid in program.agents() if _parent(pid) in program.agents()]
    send(workers[0], signal.SIGKILL)
    program.wait_until_running()
    send(program.all("CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    said = program.result()
    assert said["restarts"] >= 1
    assert (said["lost"], said["duplicated"]) == (0, 0)


@pytest.mark.soak
def test_nothing_is_left_when_the_program_is_killed(program: Program) -> None:
    program.wait_until_running()
    send(program.process.pid, signal.SIGKILL)
    wait_until(lambda: not program.agents(), "agents and workers end", 30)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


# In the session of all tests, whose executor is this machine.


def test_who_cancels_the_spark_job_ends_the_job(spark: SparkSession, tmp_path: Path) -> None:
    cluster = SparkCluster(spark, slots=1, listen="127.0.0.1:0")
    env = rt.Environment("cancelled", parallelism=1)
    env.source(rt.SequenceSource.endless(splits=1)).sink(rt.DiscardSink())
    job = env.start(cluster=cluster, restart=rt.Restart.fixed_delay(None, "50ms"))
    try:
        wait_until(lambda: job.status is rt.JobStatus.RUNNING, "the job runs", _START_S_MAX)
        spark.sparkContext.cancelAllJobs()
        with pytest.raises(rt.JobFailedError, match=r"Spark runs no tasks for it: .*cancelled"):
            job.wait(60)
    finally:
        job.cancel()
    assert spark.range(3).count() == 3


def test_the_end_of_the_job_ends_the_spark_job(spark: SparkSession) -> None:
    env, sink = rt.Environment("short"), rt.CollectSink()
    env.source(rt.SequenceSource(10)).sink(sink)
    env.execute(cluster=SparkCluster(spark, slots=1, listen="127.0.0.1:0"))
    assert sorted(sink.rows) == list(range(10))
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.soak  # As on plain hosts.
def test_a_job_on_spark_is_rescaled_by_who_knows_its_url(
    spark: SparkSession, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIRT_TOKEN", TOKEN)
    asked = Asked(
        tmp_path,
        "SparkCluster(SparkSession.builder.getOrCreate(), slots=2, listen='127.0.0.1:0')",
        imports="from pyspark.sql import SparkSession\n"
        "from minirt_connectors.spark import SparkCluster",
    )

    def run() -> None:
        called = call("run", str(asked.file))
        assert called.status == 0, called.err

    asked.rescale_while(run)


class PlayedContext:
    def __init__(self, **conf: str) -> None:
        self._conf = {"spark.driver.host": "127.0.0.1", **conf}

    def getConf(self) -> dict[str, str]:
        return self._conf


class PlayedSession:
    def __init__(self, **conf: str) -> None:
        self.sparkContext = PlayedContext(**conf)


@pytest.mark.parametrize(
    ("conf", "tls", "why"),
    [
        ({"spark.speculation": "true"}, True, "spark.speculation"),
        ({"spark.authenticate": "true"}, False, "tls=False is refused where spark.authenticate"),
        ({"spark.ssl.enabled": "true"}, False, "tls=False is refused where spark.ssl.enabled"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(conf: dict[str, str], tls: bool, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        SparkCluster(PlayedSession(**conf), slots=2, tls=tls)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_a_session_of_spark_connect_is_refused() -> None:
    class Remote(PlayedSession): ...

    Remote.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        SparkCluster(Remote(), slots=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"slots": 1}, "the job needs 2 slots, and slots=1 gives fewer; ask for as many, or let"),
        (
            {"slots": 1, "min_slots": 2},
            "the job needs 2 slots, and slots=1 gives fewer; ask for as many$",
        ),
    ],
)
def test_fewer_slots_than_the_job_could_do_with_are_refused_at_once(
    given: dict[str, Any], why: str
) -> None:
    env = rt.Environment("wide", parallelism=2)
    env.source(rt.SequenceSource(10)).sink(rt.DiscardSink())
    with pytest.raises(ConfigurationError, match=why):
        env.start(cluster=SparkCluster(PlayedSession(), **given))  # type: ignore[arg-type]


def test_tasks_are_as_many_as_give_the_slots() -> None:
    session = PlayedSession(**{"spark.task.cpus": "4"})
    assert SparkCluster(session, slots=9)._tasks == 3  # type: ignore[arg-type]
