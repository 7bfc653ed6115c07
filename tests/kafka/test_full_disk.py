"""The disk of a broker is full: it ends itself, and the job waits for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt_connectors.kafka import KafkaSink
from tests.disks import grow, small_disk
from tests.kafka.broker import Broker, Cluster, classes, ids
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.processes, pytest.mark.soak]

RECORDS = 12_000


def large(number: int) -> dict[str, Any]:
    time.sleep(0.0005)
    return {"id": number, "noise": os.urandom(1500).hex()}


@pytest.mark.parametrize("delivery", ["exactly_once", "direct"])
def test_nothing_is_lost_or_repeated(cluster: Cluster, tmp_path: Path, delivery: Any) -> None:
    """`cluster` says whether there is a broker to be had."""
    class_path = classes()
    if class_path is None:
        pytest.skip("a broker of the tests is needed")
    with small_disk("24m") as disk:
        broker = Broker(disk, class_path)
        topic = broker.topic(**{"segment.bytes": "2097152"})
        env = rt.Environment("large", parallelism=1)
        numbers = env.source(rt.SequenceSource(RECORDS), uid="numbers").map(large, uid="large")
        numbers.sink(KafkaSink(broker.bootstrap, topic, delivery=delivery), uid="out")
        job = env.start(
            checkpointing=rt.Checkpointing(tmp_path, interval="200ms", tolerable_failures=1000),
            restart=rt.Restart.fixed_delay(None, "100ms"),
        )
        try:
            wait_until(lambda: broker.has_ended, "the broker ends", 60)
            grow(disk)
            broker.start()
            job.wait(120)
            assert ids(broker, topic) == list(range(RECORDS))
        finally:
            job.cancel()
            job.wait_for_end()
            broker.stop()
