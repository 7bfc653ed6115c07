"""State that expires by event time, beside a plain account of what must be left of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import Record, Records, Site, StageKind

TTL_MS = 7

Entry = dict[str, int]
"""A value and the time it counts from; empty without one."""
Account = tuple[Entry, list[int], dict[int, Entry]]
"""What must be left of a value, of the elements of a list and of the fields of a map."""


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
        account: Account = self.account.get() or ({}, [], {})
        value, elements, fields = account
        # What is found expired is gone, also for an older record that comes behind.
        value, fields[field] = _alive(value, now), _alive(fields.get(field, {}), now)
        elements = [time for time in elements if now - time < TTL_MS]
        found = self.value.get(), self.elements.get(), self.fields.get(field)
        if found != (value.get("value"), elements, fields[field].get("value")):
            raise AssertionError(f"at {now} there is {found}, not {(value, elements, fields)}")
        if fields[field]:
            fields[field]["time"] = max(now, fields[field]["time"])
        # What expires must be removed by itself, too: so some records only look.
        if record[1] % 4 == 1:
            self.value.set(record[1])
            self.elements.add(now)
            self.fields[field] = record[1]
            elements.append(now)
            value = _written(value, record[1], now)
            fields[field] = _written(fields[field], record[1], now)
        self.account.set((value, elements, fields))
        yield record


def _alive(entry: Entry, now: int) -> Entry:
    return entry if entry and now - entry["time"] < TTL_MS else {}


def _written(entry: Entry, value: int, now: int) -> Entry:
    return {"value": value, "time": max(now, entry.get("time", now))}
