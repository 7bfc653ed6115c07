"""Bytewax with its own Kafka connector, whose sink writes at least once."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cluster_main
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

from benchmarks.kafka_work import KafkaWork, record
from benchmarks.peers.processes import in_processes
from benchmarks.workload import Tally, announce, report

_BATCH = 4096
_FIRST_PORT = 21960


class _Records(FixedPartitionedSource[dict[str, Any], int]):
    def __init__(self, work: KafkaWork) -> None:
        self._work = work

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self._work.parallelism)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Part:
        announce()
        return _Part(self._work.share(int(for_part)), resume_state or 0)


class _Part(StatefulSourcePartition[dict[str, Any], int]):
    def __init__(self, ids: range, place: int) -> None:
        self._ids = ids
        self._place = place

    def next_batch(self) -> list[dict[str, Any]]:
        if self._place == len(self._ids):
            raise StopIteration
        own = self._ids[self._place : self._place + _BATCH]
        self._place += len(own)
        return [record(id) for id in own]

    def snapshot(self) -> int:
        return self._place


class _Topic(KafkaSource):
    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Any:
        announce()
        return super().build_part(step_id, for_part, resume_state)


class _Check(DynamicSink[dict[str, Any]]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _CheckPart:
        return _CheckPart()


class _CheckPart(StatelessSinkPartition[dict[str, Any]]):
    def __init__(self) -> None:
        self._tally = Tally()
        self._written_at = time.monotonic()

    def write_batch(self, items: list[dict[str, Any]]) -> None:
        self._tally.add(len(items), sum(item["id"] for item in items))
        self._written_at = time.monotonic()

    def close(self) -> None:
        report(self._tally, self._written_at)


def _dataflow(work: KafkaWork) -> Dataflow:
    flow = Dataflow("benchmark")
    if work.work == "sink":
        records = op.input("records", flow, _Records(work))
    else:
        read = op.input("in", flow, _Topic([work.bootstrap], [work.topic], tail=False))
        records = op.map("parse", read, lambda message: json.loads(message.value))
    if work.work == "source":
        op.output("out", records, _Check())
    else:
        written = op.map(
            "write", records, lambda record: KafkaSinkMessage(None, json.dumps(record).encode())
        )
        op.output("out", written, KafkaSink([work.bootstrap], work.results))
    return flow


def _run(work: KafkaWork, process: int) -> None:
    addresses = [f"localhost:{_FIRST_PORT + number}" for number in range(work.parallelism)]
    every = timedelta(milliseconds=work.checkpoint_ms)
    recovery = RecoveryConfig(work.storage)
    cluster_main(
        _dataflow(work), addresses, process, epoch_interval=every, recovery_config=recovery
    )
    if work.work != "source":
        report(Tally(), time.monotonic())


def main() -> None:
    work = KafkaWork.parse(sys.argv[1:])
    init_db_dir(Path(work.storage), work.parallelism)
    in_processes(_run, work, work.parallelism)


if __name__ == "__main__":
    main()
