"""One run of `minirt demo kafka`: workers and a coordinator killed, and what Spark says of the table."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minirt.errors import ConfigurationError, JobFailedError, MinirtError
from minirt_connectors.flights.demo import DemoInput
from minirt_connectors.flights.expected import KEYS
from minirt_connectors.flights.kafka_job import PARTITIONS, KafkaPlan, arguments
from minirt_connectors.kafka.cluster import Cluster
from minirt_connectors.spark import Verdict, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASK_TIMEOUT_S = 10.0
_HOW_TO_GET_ONE = (
    "`docker compose up --detach --wait kafka` starts one from the file docker-compose.yml of minirt, and "
    "--bootstrap HOST:PORT names any other"
)


@dataclass(frozen=True, slots=True)
class KafkaRun:
    """What came out of a run. `workers` and `coordinators` say how many were killed."""

    mode: str
    workers: int
    coordinators: int
    wanted: int
    """How many workers were to be killed; with one of them a coordinator."""
    checkpoints: int
    rows_in: int
    verdict: Verdict
    left_running: int

    @property
    def passed(self) -> bool:
        """Whether the output is what the mode promises, all kills were made and nothing is left."""
        spared = self.workers < self.wanted or self.coordinators < min(1, self.wanted)
        promised = self.verdict.ok or (self.mode == "at_least_once" and self.verdict.lost == 0)
        return promised and not spared and not self.left_running

    @property
    def conclusion(self) -> str:
        """What the verdict means, in a sentence."""
        killed = f"{self.workers} workers and {self.coordinators} coordinators were killed"
        if self.left_running:
            return (
                f"{self.mode}: FAILED, processes of the job are left running: {self.left_running}."
            )
        if self.passed and self.verdict.ok:
            return f"{self.mode}: {killed}; nothing lost, duplicated or wrong."
        if self.passed:
            return f"{self.mode}: {killed}; nothing lost, but results came twice."
        if self.workers < self.wanted:
            return f"{self.mode}: FAILED, {killed}, fewer than asked for: give it more --seconds."
        return f"{self.mode}: FAILED, the output is not what this mode promises."

    def to_plain(self) -> dict[str, Any]:
        """The figures of the run in terms of JSON."""
        verdict = self.verdict
        return {
            "mode": self.mode,
            "kills": self.workers,
            "coordinator_kills": self.coordinators,
            "checkpoints": self.checkpoints,
            "rows_in": self.rows_in,
            "rows_out": verdict.rows_output,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "unexpected": verdict.unexpected,
            "left_running": self.left_running,
        }


@contextmanager
def new_topic(bootstrap: str) -> Iterator[str]:
    """A topic for the block, which nobody else has. Raises ConfigurationError if no broker answers."""
    from confluent_kafka.admin import NewTopic

    cluster, name = Cluster(bootstrap, None), f"minirt-demo-{uuid.uuid4().hex[:12]}"
    try:
        cluster.answers()
    except MinirtError as error:
        raise ConfigurationError(f"{error}. {_HOW_TO_GET_ONE}") from None
    admin = cluster.admin()
    with cluster.errors("cannot make a topic for the demo"):
        new = NewTopic(name, PARTITIONS, replication_factor=-1)
        admin.create_topics([new])[name].result(_ASK_TIMEOUT_S)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(_ASK_TIMEOUT_S)


def run_and_kill(plan: KafkaPlan, say: Callable[[str], None]) -> tuple[int, int, int]:
    """Run the job to its end: how many workers and coordinators were killed, and how many checkpoints were.

    The first process of the job kills a worker and is killed itself, once it has completed a checkpoint
    after that. The next one goes on, and kills the other workers. Raises JobFailedError.
    """
    if plan.kills == 0:
        told = _Told(say)
        _to_its_end(plan, told, stop=lambda: False)
        return 0, 0, told.checkpoints
    first, second = _Told(say), _Told(say)
    stopped = _to_its_end(replace(plan, kills=1), first, stop=lambda: first.since_kill >= 1)
    if not stopped:
        return first.kills, 0, first.checkpoints
    say("SIGKILL to the process of the coordinator; the next one goes on from its checkpoint")
    _to_its_end(replace(plan, kills=plan.kills - 1), second, stop=lambda: False)
    return first.kills + second.kills, 1, first.checkpoints + second.checkpoints


def judge(
    spark: SparkSession, demo: DemoInput, plan: KafkaPlan, killed: tuple[int, int, int], left: int
) -> KafkaRun:
    """Have Spark compare the newest version of the table with what it must hold."""
    verdict = verify(spark, plan.output, demo.expected, keys=KEYS, examples=1)
    workers, coordinators, checkpoints = killed
    return KafkaRun(
        plan.mode, workers, coordinators, plan.kills, checkpoints, demo.rows, verdict, left
    )


class _Told:
    """What a process of the job has said."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.kills = self.checkpoints = self.since_kill = 0
        self.ended = False

    def take(self, line: str) -> None:
        told = json.loads(line)
        if "kill" in told:
            self.kills, self.since_kill = self.kills + 1, 0
            self._say(told["kill"])
        elif "checkpoint" in told:
            self.checkpoints += 1
            self.since_kill += self.kills > 0
        else:
            self.ended = True


def _to_its_end(plan: KafkaPlan, told: _Told, stop: Callable[[], bool]) -> bool:
    """Run a process of the job until it ends, or kill it when `stop` says so; whether it was killed."""
    with subprocess.Popen(arguments(plan), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                told.take(line)
                if not told.ended and stop():
                    process.kill()
                    return True
        finally:
            if process.poll() is None and not told.ended:
                process.kill()
    if process.returncode or not told.ended:
        raise JobFailedError(f"the job of the demo has ended with status {process.returncode}")
    return False
