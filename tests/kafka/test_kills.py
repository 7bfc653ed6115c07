"""SIGKILL of workers, coordinator and broker, Kafka to Kafka; more by `test_kills N DELIVERY`."""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, Cluster, classes
from tests.program_kills import Program, kill, run_to_its_end
from tests.program_kills import soak as soak_kills
from tests.servers import running

pytestmark = [pytest.mark.kafka, pytest.mark.processes]

RECORDS, PARTITIONS = 1000, 3
DELIVERIES = ("exactly_once", "direct")

_JOB = """
import sys, time
import minirt as rt
from minirt_connectors.kafka import KafkaSink, KafkaSource

def named(record):
    time.sleep(0.001)
    return {**record, "name": f"row {record['id']}"}

bootstrap, topic, results, storage, delivery = sys.argv[1:]
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
) -> tuple[str, int]:
    """Run the job to its end, killing on the way: where its results are, how often something was killed.

    In between the broker is killed so many times, and started again.
    """
    topic, results = cluster.topic(PARTITIONS), cluster.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, RECORDS, PARTITIONS)
        cluster.send(topic, [{"id": number} for number in numbers], partition)
    chance, done = random.Random(seed), 0

    def strike(program: Program) -> None:
        nonlocal done, crashes
        if done < kills and chance.random() < 0.8 and program.poll() is None:
            done += kill(program, chance)
        elif crashes and done and isinstance(cluster, Broker):
            cluster.restart(signal.SIGKILL)
            crashes -= 1

    arguments = [cluster.bootstrap, topic, results, str(storage), delivery]
    run_to_its_end(_JOB, arguments, chance, strike)
    return results, done


def judged(cluster: Cluster, results: str) -> tuple[int, int]:
    """How many records are lost, and how many are there more than once."""
    ids = [row["id"] for row in cluster.values(results)]
    assert set(ids) <= set(range(RECORDS))
    return RECORDS - len(set(ids)), len(ids) - len(set(ids))


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_nothing_is_lost_or_repeated_whoever_is_killed(
    cluster: Cluster, tmp_path: Path, delivery: str
) -> None:
    results, killed = run(cluster, tmp_path / "chk", delivery, kills=3, seed=1, crashes=1)
    assert killed > 0
    assert judged(cluster, results) == (0, 0)


def soak(kills: int, delivery: str = "exactly_once") -> None:
    """Run jobs until so many processes were killed; the last line has the count."""
    class_path = classes()
    if class_path is None:
        print("no Kafka broker is installed: nobody was killed")
        return
    with running("kafka", lambda folder: Broker(folder, class_path)) as broker:

        def attempt(storage: Path, seed: int) -> tuple[int, int, int]:
            results, killed = run(broker, storage, delivery, kills=12, seed=seed, crashes=1)
            return (killed, *judged(broker, results))

        status = soak_kills(kills, attempt)
    sys.exit(status)


if __name__ == "__main__":
    soak(int(sys.argv[1]), *sys.argv[2:])
