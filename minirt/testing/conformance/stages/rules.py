"""A keyed stream beside a broadcast one, whose records are counted in each subtask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.edges import EdgeKind
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import CutOf, Path, Record, Records, Site, StageKind


class RulesStage(StageKind):
    """Gives the records of the left on as they are. Counts those of the right: to see one of them twice, or
    not at all, shows in the state of the subtask."""

    name: ClassVar = "rules"
    words: ClassVar = "broadcast state beside state by key"
    streams: ClassVar = 2
    inputs: ClassVar = 2
    keyed: ClassVar = True
    instead: ClassVar = "join"

    def takes(self, edge: EdgeKind) -> bool:
        """How the right is dealt is its own matter."""
        return super().takes(edge) and not edge.copies

    def add(self, site: Site) -> rt.Stream:
        keyed, right = site.keyed[0], site.streams[1].broadcast()
        return keyed.connect(right).process(Rules(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return consumed[0]

    def at_cut(self, cut: CutOf) -> Records:
        wanted: Counter[Path] = Counter()
        for (path, _), n in cut.consumed[1].items():
            wanted[path] += n
        for place, held in enumerate(cut.stored.broadcast(cut.uid, "counts")):
            cut.compare(f"broadcast state {place} of {cut.uid}", Counter(held), wanted)
        return super().at_cut(cut)


class Rules(rt.BroadcastProcess):
    counts = rt.BroadcastState()
    total = rt.BroadcastState()
    count = rt.ValueState(0)

    def process(self, record: Record, ctx: rt.KeyedContext) -> Iterable[Record]:
        found = sum(self.counts.values())
        if found != self.total.get("n", 0):
            raise AssertionError(f"broadcast states are not of one moment: {found}, {self.total}")
        self.count.value += 1
        yield record

    def process_broadcast(self, record: Record, ctx: rt.ProcessContext) -> None:
        path = tuple(record[0])
        self.counts[path] = self.counts.get(path, 0) + 1
        self.total["n"] = self.total.get("n", 0) + 1
