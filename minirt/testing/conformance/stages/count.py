"""Counts by key: one input, and two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.scribblers import Scribbler, use_up
from minirt.testing.conformance.stages.base import CutOf, Path, Record, Records, Site, StageKind


class CountStage(StageKind):
    name: ClassVar = "count"
    words: ClassVar = "count by key"
    weight: ClassVar = 2
    keyed: ClassVar = True
    numbers: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        return site.keyed[0].process(Count(site.uid), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return sum(consumed, Records())

    def at_cut(self, cut: CutOf) -> Records:
        passed = super().at_cut(cut)
        seen = Counter(path for _, paths in cut.stored.state(cut.uid, "seen") for path in paths)
        wanted: Counter[Any] = Counter()
        for (path, _), n in passed.items():
            wanted[path] += n
        cut.compare(f"the state of {cut.uid}", seen, wanted)
        return passed


class JoinStage(CountStage):
    name: ClassVar = "join"
    words: ClassVar = "count of two inputs by key"
    weight: ClassVar = 1
    streams: ClassVar = 2
    inputs: ClassVar = 2

    def add(self, site: Site) -> rt.Stream:
        left, right = site.keyed
        return left.connect(right).process(Join(site.uid), **site.settings)


class _Counting(Scribbler):
    """Numbers the records of a key; three kinds of state must agree, one of which is scribbled on."""

    count = rt.ValueState(0)
    held = rt.ValueState()
    seen = rt.ListState()
    by_source = rt.MapState()

    def number(self, record: Record, uid: str, key: int) -> Record:
        path, time, notes = record
        self.count.value += 1
        self.seen.add(path)
        self.by_source[path[0]] = self.by_source.get(path[0], 0) + 1
        count = self.count.value
        if not len(self.seen.get()) == count == sum(self.by_source.values()):
            raise AssertionError("the states of a key are not of one moment")
        self._hold(path)
        return self.write(path, time, (*notes, ("count", uid, key, count, path)))

    def _hold(self, path: Path) -> None:
        use_up((self.held.get() or {}).values())
        held = self.held.get() or {"paths": []}
        held["paths"].append(path)
        self.held.set(held)
        if held["paths"] != self.seen.get():
            raise AssertionError("state has changed by itself")
        use_up(held.values())


class Count(_Counting, rt.KeyedProcess):
    def __init__(self, uid: str) -> None:
        super().__init__()
        self.uid = uid

    def process(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)
        use_up(record)


class Join(_Counting, rt.KeyedCoProcess):
    def __init__(self, uid: str) -> None:
        super().__init__()
        self.uid = uid

    def process_left(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)

    def process_right(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        yield self.number(record, self.uid, ctx.key)
