"""A job whose source waits for a slow operator behind a shuffle: what the modes differ in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from minirt.api.environment import Environment
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Defaults, Place, Workload
from minirt.laboratory.workloads.parts import (
    KEY,
    MADE,
    NumberedSink,
    NumberedSource,
    Slow,
    verify_numbers,
)

HOT_SHARE = 0.8
"""Of a skewed input: the share of the records that have the hot key."""

Shape = Literal["steady", "bursty", "skewed", "one_slow", "slow_then_fast"]


@dataclass(frozen=True, slots=True)
class Throttled(Workload):
    """source > key_by > slow > sink; the source gives all that there is room for.

    All queues up to the slow operator are full, so an aligned barrier waits behind them, and an
    unaligned one takes them along. Shapes: `steady`; `bursty`, slow for `period_s` seconds and fast for
    as many; `skewed`, most records have one key; `one_slow`, the first subtask is ten times as slow
    as the others; `slow_then_fast`, slow for `period_s` seconds only.
    """

    latency_from: ClassVar = str(MADE)
    defaults: ClassVar = Defaults()

    record_ms: float = 1.0
    shape: Shape = "steady"
    period_s: float = 4.0
    keys: int = 1000
    payload_chars: int = 100

    def environment(self, parallelism: int, place: Place) -> Environment:
        env = Environment("throttled", parallelism=parallelism)
        hot_share = HOT_SHARE if self.shape == "skewed" else 0.0
        source = NumberedSource(
            place, self.keys, payload_chars=self.payload_chars, hot_share=hot_share
        )
        (
            env.source(source, uid="numbers")
            .key_by(lambda record: record[KEY])
            .process(Slow(place, self.record_ms, self._when), uid="slow")
            .sink(NumberedSink(place), uid="out")
        )
        return env

    def _when(self, subtask: int, passed: float) -> float:
        """How many times slower than fast a subtask is at a moment: 0 is fast, 1 is slow."""
        if self.shape == "bursty":
            return float(passed // self.period_s % 2 == 0) if self.period_s else 1.0
        if self.shape == "one_slow":
            return 10.0 if subtask == 0 else 1.0
        if self.shape == "slow_then_fast":
            return float(passed < self.period_s)
        return 1.0

    def verify(self, place: Place) -> Verification:
        return verify_numbers(place)
