"""The scenario of two posts by AWS on Flink under backpressure: a peak of input before a throttled sink.

The posts are "Optimize checkpointing in your Amazon Managed Service for Apache Flink applications with
buffer debloating and unaligned checkpoints", parts 1 and 2. They show no numbers; the rates here are
made for two cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.api.environment import Environment
from minirt.functions import KeyedContext, KeyedProcess
from minirt.laboratory.measured import Series, Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import (
    KEY,
    MADE,
    Course,
    NumberedSink,
    NumberedSource,
    Pace,
    Quota,
    source_lag,
    steps,
    verify_numbers,
)
from minirt.state.handles import ValueState


@dataclass(frozen=True, slots=True)
class AwsPeak(Workload):
    """source > parse > key_by > count > rebalance > quota > sink in two phases.

    `normal_rate` records a second, for `peak_s` seconds `peak_rate`, and then normal again. The sink
    takes `quota` a second: in the peak the queues fill, backpressure reaches the source, the source
    lags, and checkpoints take their time; after it, all catches up. `checkpointing.timeout=3s` shows
    the vicious cycle: no aligned checkpoint completes, and a restart has everything to do again.
    """

    latency_from: ClassVar = str(MADE)
    defaults: ClassVar = Defaults(
        factors=(("debloat", ("off", "1s")),),
        seconds=60.0,
        warm_up_s=0.0,
        repeat=1,
        options={"checkpointing.interval": "1s"},
    )

    before_s: float = 12.0
    peak_s: float = 12.0
    normal_rate: float = 400.0
    peak_rate: float = 2500.0
    quota: float = 1000.0
    payload_chars: int = 100
    keys: int = 1000

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("aws-peak", parallelism=parallelism)
        source = NumberedSource(place, self.keys, self._pace, self.payload_chars)
        (
            env.source(source, uid="events")
            .map(_parse, uid="parse")
            .key_by(lambda record: record[KEY])
            .process(_Count(), uid="count")
            .rebalance()
            .process(Quota(place, self.quota / parallelism), uid="quota")
            .sink(NumberedSink(place), uid="topic")
        )
        return env

    def verify(self, place: Place) -> Verification:
        return verify_numbers(place)

    def series(self, place: Place, began: float) -> tuple[Series, ...]:
        return (source_lag(place, self._pace, began),)

    @property
    def course(self) -> Course:
        """How fast records come, over time."""
        before, peak = (self.before_s, self.normal_rate), (self.peak_s, self.peak_rate)
        return before, peak, (1.0, self.normal_rate)

    @property
    def _pace(self) -> Pace:
        return steps(*self.course)


def _parse(record: Any) -> Any:
    """The text is what a parser would have to look at."""
    id, key, made, text = record
    return id, key, made, text.strip()


class _Count(KeyedProcess):
    """How many records of its key there were."""

    seen = ValueState(default=0)

    def process(self, record: Any, ctx: KeyedContext) -> list[Any]:
        self.seen.value += 1
        return [(*record, self.seen.value)]
