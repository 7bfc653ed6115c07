"""A Spark cluster of a master and two workers, each a host of its own: one is lost and comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minirt.errors import ConfigurationError
from minirt_connectors.spark import require_java
from tests.cluster.test_namespaces import Hosts
from tests.connectors.test_spark_cluster import Program, marked
from tests.runtime.processes import needs_proc, send, wait_until

pytest.importorskip("cryptography")
pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.hosts, pytest.mark.soak, needs_proc]

_WAIT_S = 240.0
"""How long a step may take: each starts several JVMs."""


class Standalone:
    """The master runs where the test does, a worker with one core in each namespace."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts, self._folder = hosts, folder
        self._started: list[subprocess.Popen[bytes]] = []
        with socket.create_server((hosts.address, 0)) as free:
            port = free.getsockname()[1]
        self.url = f"spark://{hosts.address}:{port}"
        master = ("--host", hosts.address, "--port", str(port), "--webui-port", "0")
        self._run(0, hosts.address, "master.Master", *master)

    def start(self, number: int) -> None:
        """A worker on that host."""
        address = self._hosts.address_of(number)
        size = ("--cores", "1", "--memory", "600m", "--webui-port", "0")
        self._run(number, address, "worker.Worker", "--host", address, *size, self.url)

    def lose(self, number: int) -> None:
        """All processes of a host are gone at once: Spark's, our agent and its workers."""
        for pid in self._of(number):
            send(pid, signal.SIGKILL)

    def close(self) -> None:
        for number in range(3):
            self.lose(number)
        for process in self._started:
            process.wait()
        wait_until(lambda: not any(map(self._of, range(3))), "nothing of Spark is left", 30)

    def _of(self, number: int) -> list[int]:
        return marked(self._mark(number))

    def _mark(self, number: int) -> str:
        return f"MINIRT_TEST_HOST={self._folder}/{number}"

    def _run(self, number: int, address: str, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        prefix = self._hosts.prefix(number) if number else ()
        variable, _, value = self._mark(number).partition("=")
        with (self._folder / f"spark-{number}.log").open("a") as log:
            process = subprocess.Popen(
                [
                    *prefix,
                    str(home / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{name}",
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    variable: value,
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": address,
                    "SPARK_WORKER_DIR": str(self._folder / f"work-{number}"),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
            )
        self._started.append(process)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[tuple[Standalone, Program]]:
    """The cluster, and a program whose job runs on it."""
    try:
        require_java()
        hosts = Hosts(2)
    except ConfigurationError as error:
        pytest.skip(str(error))
    except OSError as error:
        pytest.skip(f"network namespaces are not allowed: {error}")
    with contextlib.ExitStack() as undo:
        undo.callback(hosts.close)
        cluster = Standalone(hosts, tmp_path)
        undo.callback(cluster.close)
        for number in (1, 2):
            cluster.start(number)
        program = Program(tmp_path, cluster.url, hosts.address)
        undo.callback(program.process.wait)
        undo.callback(program.process.kill)
        yield cluster, program


def test_a_job_goes_on_with_the_executor_that_is_left_and_grows_with_the_next_one(
    standalone: tuple[Standalone, Program], tmp_path: Path
) -> None:
    cluster, program = standalone
    file = tmp_path / "parallelism"

    def has(parallelism: int) -> None:
        def reached() -> bool:
            assert program.process.poll() is None, (tmp_path / "err").read_text()[-2000:]
            return file.exists() and file.read_text() == str(parallelism)

        wait_until(reached, f"parallelism {parallelism}", _WAIT_S)

    has(2)
    cluster.lose(2)
    has(1)
    cluster.start(2)
    has(2)
    (tmp_path / "let-go").touch()
    said = program.result()
    assert (said["lost"], said["duplicated"]) == (0, 0), said
    wait_until(lambda: not program.all("minirt host"), "no agent is left", 30)
