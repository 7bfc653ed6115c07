"""The page for a newcomer, word by word: from Kafka to Delta Lake, with a kill on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.docs.blocks import ROOT, blocks, environment
from tests.kafka.broker import Broker
from tests.runtime.processes import wait_until

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytestmark = [pytest.mark.kafka, pytest.mark.processes]

PAGE = ROOT / "docs/kafka-to-delta.md"

_DOCKER = """#!{python}
# docker compose exec [-T] kafka PROGRAM OPTIONS...
import sys
import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewTopic

words = [word for word in sys.argv[3:] if word != "-T"]
assert sys.argv[1:3] == ["compose", "exec"] and words[0] == "kafka", sys.argv
program, options = words[1].rpartition("/")[2], words[2:]
told = {{name: options[options.index(name) + 1] for name in ("--bootstrap-server", "--topic")}}
servers, topic = told.values()
if program == "kafka-topics.sh" and "--create" in options:
    new = NewTopic(topic, int(options[options.index("--partitions") + 1]))
    admin = AdminClient({{"bootstrap.servers": servers}})
    admin.create_topics([new])[topic].result(60)
elif program == "kafka-console-producer.sh":
    producer = kafka.Producer({{"bootstrap.servers": servers}})
    for line in sys.stdin:
        producer.produce(topic, line.rstrip())
    assert producer.flush(60) == 0
else:
    raise SystemExit(f"nobody knows {{program}}")
"""
"""What the page does with the container of a broker, done without one."""


def test_a_newcomer_gets_from_kafka_to_delta(broker: Broker, tmp_path: Path) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(_DOCKER.format(python=sys.executable))
    docker.chmod(0o755)
    known = environment()
    known["PATH"] = f"{docker.parent}{os.pathsep}{known['PATH']}"

    def here(text: str) -> str:
        return text.replace("127.0.0.1:9092", broker.bootstrap)

    def typed(command: str) -> None:
        ran = subprocess.run(
            ["bash", "-c", here(command)], cwd=tmp_path, env=known, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def shown() -> str:
        command = [sys.executable, "show.py"]
        ran = subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True)
        return ran.stdout

    @contextmanager
    def running() -> Iterator[None]:
        with subprocess.Popen([sys.executable, "orders.py"], cwd=tmp_path, env=known) as job:
            yield
            for one in (*psutil.Process(job.pid).children(recursive=True), job):
                one.kill()

    text = blocks(PAGE, "text")
    [setup, job, _, first, show, at_first, _, second, at_last] = text
    (tmp_path / "orders.py").write_text(here(job))
    (tmp_path / "show.py").write_text(show)
    typed(setup.splitlines()[-1])
    with running():
        typed(first)
        wait_until(lambda: shown() == at_first, "the first orders are in the table", 60)
    typed(second)
    with running():
        wait_until(lambda: len(shown()) >= len(at_last), "the others are in the table", 60)
        assert shown() == at_last
