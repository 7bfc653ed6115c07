"""PyFlink with Flink's Kafka connector, exactly once; Python parses each record and writes it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import FlatMapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from benchmarks.kafka_work import FIRST_ID, RUN, KafkaWork, record
from benchmarks.peers.pyflink_settings import configuration
from benchmarks.workload import Tally, announce, report

_JARS = Path(__file__).parents[2] / ".bench" / "flink-kafka"


class _Parse(FlatMapFunction):
    """Text to a record and to text again. No end of input is announced to it: it reports as it goes."""

    def __init__(self, makes: bool, counts: bool) -> None:
        self._makes = makes
        self._counts = counts
        self._announced = False
        self._tally = Tally()

    def flat_map(self, value: Any) -> Iterator[str]:
        if not self._announced:
            self._announced = True
            announce()
        row = record(FIRST_ID + value) if self._makes else json.loads(value)
        if not self._counts:
            yield json.dumps(row)
            return
        self._tally.add(1, row["id"])
        if self._tally.count == RUN:
            report(self._tally, time.monotonic())
            self._tally = Tally()


def main() -> None:
    work = KafkaWork.parse(sys.argv[1:])
    settings = configuration(work.storage)
    jars = ";".join(f"file://{jar}" for jar in sorted(_JARS.glob("*.jar")))
    settings.set_string("pipeline.jars", jars)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(work.parallelism)
    env.enable_checkpointing(work.checkpoint_ms)
    marks = WatermarkStrategy.no_watermarks()
    makes = work.work == "sink"
    if makes:
        numbers = NumberSequenceSource(0, work.records - 1)
        stream = env.from_source(numbers, marks, "numbers", Types.LONG())
    else:
        source = (
            KafkaSource.builder()
            .set_bootstrap_servers(work.bootstrap)
            .set_topics(work.topic)
            .set_starting_offsets(KafkaOffsetsInitializer.earliest())
            .set_bounded(KafkaOffsetsInitializer.latest())
            .set_value_only_deserializer(SimpleStringSchema())
            .build()
        )
        stream = env.from_source(source, marks, "in")
    texts = stream.flat_map(_Parse(makes, work.work == "source"), Types.STRING())
    if work.work == "source":
        texts.print()
    else:
        serializer = (
            KafkaRecordSerializationSchema.builder()
            .set_topic(work.results)
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        texts.sink_to(
            KafkaSink.builder()
            .set_bootstrap_servers(work.bootstrap)
            .set_record_serializer(serializer)
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix(work.results)
            .set_property("transaction.timeout.ms", "300000")
            .build()
        )
    env.execute(work.work)
    if work.work != "source":
        report(Tally(), time.monotonic())


if __name__ == "__main__":
    main()
