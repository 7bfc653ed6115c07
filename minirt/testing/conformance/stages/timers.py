"""Timers of event time by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.stages.base import CutOf, Record, Site, span_end
from minirt.testing.conformance.stages.spans import Span, SpanStage


class TimersStage(SpanStage):
    name: ClassVar = "timers"
    words: ClassVar = "timers of event time by key"
    weight: ClassVar = 2

    def add(self, site: Site) -> rt.Stream:
        return site.keyed[0].process(Timers(site.uid), **site.settings)

    def open_spans(self, cut: CutOf) -> Counter[Span]:
        return Counter(
            {
                (key, end): count
                for key, counts in cut.stored.state(cut.uid, "spans")
                for end, count in counts.items()
            }
        )


class Timers(rt.KeyedProcess):
    """Collects the records of a key and a span of event time, and counts them when it is over."""

    spans = rt.MapState()

    def __init__(self, uid: str) -> None:
        self.uid = uid

    def process(self, record: Record, ctx: rt.KeyedContext) -> None:
        end = span_end(record[1])
        self.spans[end] = self.spans.get(end, 0) + 1
        ctx.set_timer(end)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Record]:
        count = self.spans.pop(timestamp)
        note = ("timers", self.uid, ctx.key, timestamp, count)
        yield (("timers", self.uid, ctx.key, timestamp), timestamp, (note,))
