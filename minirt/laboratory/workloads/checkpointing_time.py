"""The job by which Flink measures its own checkpoints: `CheckpointingTimeBenchmark` of flink-benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minirt.api.environment import Environment
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import (
    MADE,
    NumberedSink,
    NumberedSource,
    Slow,
    verify_numbers,
)


@dataclass(frozen=True, slots=True)
class CheckpointingTime(Workload):
    """source > rebalance > map > rebalance > slow sink, 1 ms a record, parallelism 4.

    Flink runs this graph to see that the time of a checkpoint does not depend on backpressure. Queues
    are made as small as Flink's, 1 MB in all, or an aligned checkpoint takes longer than a run.
    """

    latency_from: ClassVar = str(MADE)
    defaults: ClassVar = Defaults(
        parallelism=4,
        options={"limits.input_queue_bytes": "32KiB", "limits.output_queue_bytes": "16KiB"},
    )

    record_ms: float = 1.0
    payload_chars: int = 100

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("checkpointing-time", parallelism=parallelism)
        source = NumberedSource(place, keys=1000, payload_chars=self.payload_chars)
        (
            env.source(source, uid="numbers")
            .rebalance()
            .map(_same, uid="map")
            .rebalance()
            .process(Slow(place, self.record_ms), uid="slow")
            .sink(NumberedSink(place), uid="out")
        )
        return env

    def verify(self, place: Place) -> Verification:
        return verify_numbers(place)


def _same(record: object) -> object:
    return record
