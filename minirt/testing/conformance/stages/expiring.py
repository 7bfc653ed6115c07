"""State that expires by event time, beside a plain account of what must be left of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import Record, Records, Site, StageKind

TTL_MS = 7


class ExpiringStage(StageKind):
    """Gives records on as they are, if state holds what it must."""

    name: ClassVar = "expiring"
    words: ClassVar = "state that expires by key"
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        return site.keyed[0].process(Expiring(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return consumed[0]


class Expiring(rt.KeyedProcess):
    """Writes what expires and, beside it, when it was written; looks at both at every record."""

    value = rt.ValueState(ttl=f"{TTL_MS}ms", clock="event")
    elements = rt.ListState(ttl=f"{TTL_MS}ms", clock="event")
    fields = rt.MapState(ttl=f"{TTL_MS}ms", clock="event", refresh="read")
    account = rt.ValueState()

    def process(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        now, field = max(record[1], ctx.watermark or 0), record[1] % 3
        value, elements, fields = self.account.get() or [[], [], {}]
        alive = [time for time in elements if now - time < TTL_MS]
        if [time for time in value if now - time < TTL_MS] != _listed(self.value.get()):
            raise AssertionError(f"a value is {self.value.get()} at {now}, after {value}")
        if alive != self.elements.get():
            raise AssertionError(f"elements are {self.elements.get()} at {now}, of {elements}")
        if (now - fields.get(field, now - TTL_MS) < TTL_MS) != (field in self.fields):
            raise AssertionError(f"a field is {self.fields.get(field)} at {now}, of {fields}")
        # What expires must be removed by itself, too: so some records only look.
        if record[1] % 4 == 1:
            value, alive = [now], [*alive, now]
            self.value.set(now)
            self.elements.add(now)
            self.fields[field] = now
            fields[field] = now
        elif field in self.fields:
            fields[field] = now if self.fields[field] is not None else None
        self.account.set([value, alive, fields])
        yield record


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value]
