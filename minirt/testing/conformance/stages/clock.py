"""Timers of the clock by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.stages.base import (
    ByChance,
    CutOf,
    Output,
    Record,
    Records,
    Site,
    Verdict,
    per_key,
)


class ClockStage(ByChance):
    name: ClassVar = "clock"
    words: ClassVar = "timers of the clock by key"
    weight: ClassVar = 2
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        return site.keyed[0].process(Clock(site.uid, 3 * site.number), **site.settings)

    def at_cut(self, cut: CutOf) -> Records:
        """The records of each key wait in state, or were counted in what was emitted."""
        counted: Counter[int] = Counter()
        for key, count in cut.stored.state(cut.uid, "waiting"):
            counted[key] += count
        for _, _, notes in cut.put_out():
            [(_, _, key, count)] = notes
            counted[key] += count
        wanted = per_key(cut.stage, cut.consumed[0])
        cut.compare(f"what {cut.uid} has counted by key", +counted, wanted)
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        counted: Counter[int] = Counter()
        for _, _, key, count in output.notes:
            counted[key] += count
        for key, wanted in per_key(output.stage, output.consumed).items():
            verdict.lost += max(0, wanted - counted[key])
            verdict.duplicated += max(0, counted[key] - wanted)
            if counted[key] < wanted or (output.exactly_once and counted[key] > wanted):
                where = output.uid, key
                verdict.wrong.append(f"clock {where} counted {counted[key]} records, not {wanted}")


class Clock(rt.KeyedProcess):
    """Counts the records of a key until the clock says so, and again."""

    waiting = rt.ValueState(0)

    def __init__(self, uid: str, delay_ms: int) -> None:
        self.uid = uid
        self.delay_ms = delay_ms

    def process(self, record: Record, ctx: rt.KeyedContext) -> None:
        if not self.waiting.value:
            ctx.set_processing_timer(ctx.processing_time + self.delay_ms)
        self.waiting.value += 1

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        count, self.waiting.value = self.waiting.value, 0
        yield (("clock", self.uid, ctx.key), 0, (("clock", self.uid, ctx.key, count),))
