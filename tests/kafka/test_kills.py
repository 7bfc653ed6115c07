"""SIGKILL of workers, coordinator and broker, Kafka to Kafka; more by `tests.kills kafka kafka-direct`."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.campaigns import soaked
from tests.kafka.broker import Broker, Cluster, a_broker
from tests.kills import Attempt, Outcome
from tests.program_kills import Striker, Struck, run_to_its_end

pytestmark = [pytest.mark.kafka, pytest.mark.processes]

RECORDS, PARTITIONS = 1000, 3
_PAUSE_S = 0.01
"""Of each record: a run lasts so long that the job completes many checkpoints between two kills."""

_JOB = """
import sys, time
import minirt as rt
from minirt_connectors.kafka import KafkaSink, KafkaSource

def named(record):
    time.sleep(pause_s)
    return {**record, "name": f"row {record['id']}"}

bootstrap, topic, results, storage, delivery, pause_s = *sys.argv[1:6], float(sys.argv[6])
env = rt.Environment("killed", parallelism=2)
source = KafkaSource(bootstrap, topic, bounded=True, group=f"group-{topic}")
sink = KafkaSink(bootstrap, results, key="id", ledger=f"ledger-{results}", delivery=delivery)
env.source(source, uid="in").map(named, uid="named").sink(sink, uid="out")
env.execute(
    checkpointing=rt.Checkpointing(storage, interval="50ms", tolerable_failures=1000),
    restart=rt.Restart.fixed_delay(None, "10ms"),
    restore="latest",
)
"""


def run(
    cluster: Cluster, storage: Path, delivery: str, kills: int, seed: int, crashes: int = 0
) -> tuple[str, Struck]:
    """Run the job to its end: where its results are, and what it has met.

    On the way processes are killed, and the broker is stopped or killed, and started again.
    """
    topic, results = cluster.topic(PARTITIONS), cluster.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, RECORDS, PARTITIONS)
        cluster.send(topic, [{"id": number} for number in numbers], partition)
    chance = random.Random(seed)

    def crash() -> None:
        assert isinstance(cluster, Broker)
        cluster.restart(chance.choice([signal.SIGTERM, signal.SIGKILL]))

    crashes = crashes if isinstance(cluster, Broker) else 0
    striker = Striker(storage, kills, chance, crashes=crashes, crash=crash)
    arguments = [cluster.bootstrap, topic, results, str(storage), delivery, str(_PAUSE_S)]
    run_to_its_end(_JOB, arguments, storage, chance, striker.strike)
    return results, striker.struck()


def judged(cluster: Cluster, results: str) -> tuple[int, int]:
    """How many records are lost, and how many are there more than once."""
    ids = [row["id"] for row in cluster.values(results)]
    assert set(ids) <= set(range(RECORDS))
    return RECORDS - len(set(ids)), len(ids) - len(set(ids))


@pytest.mark.parametrize("delivery", ["exactly_once", *soaked("direct")])
def test_nothing_is_lost_or_repeated_whoever_is_killed(
    cluster: Cluster, tmp_path: Path, delivery: str
) -> None:
    results, struck = run(cluster, tmp_path / "chk", delivery, kills=3, seed=1, crashes=1)
    assert struck.shows_little is None
    assert judged(cluster, results) == (0, 0)


@contextmanager
def attempts(delivery: str) -> Iterator[Attempt]:
    with a_broker() as broker:

        def attempt(folder: Path, seed: int) -> Outcome:
            kept = True
            try:
                results, struck = run(
                    broker, folder / "chk", delivery, kills=12, seed=seed, crashes=1
                )
                lost, repeated = judged(broker, results)
                kept = lost + repeated > 0
            finally:
                if kept:
                    broker.keep(folder / "broker")
            return struck, lost, repeated

        yield attempt
