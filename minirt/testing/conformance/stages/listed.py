"""A function without keys that keeps lists: one that is dealt in turn, and one that all get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import CutOf, Path, Record, Records, Site, StageKind


class ListedStage(StageKind):
    """Gives records on as they are, and lists them twice."""

    name: ClassVar = "listed"
    words: ClassVar = "lists without keys"

    def add(self, site: Site) -> rt.Stream:
        return site.dealt[0].process(Listing(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return consumed[0]

    def at_cut(self, cut: CutOf) -> Records:
        """Together the subtasks list each record once in turns, and at least once for all."""
        wanted: Counter[Path] = Counter()
        for (path, _), n in cut.consumed[0].items():
            wanted[path] += n
        dealt = Counter(path for _, paths in cut.stored.state(cut.uid, "dealt") for path in paths)
        cut.compare(f"the lists of {cut.uid}", dealt, wanted)
        known = {path for _, paths in cut.stored.state(cut.uid, "known") for path in paths}
        cut.compare(f"what {cut.uid} knows", Counter(known), Counter(wanted.keys()))
        return super().at_cut(cut)


class Listing(rt.Process):
    dealt = rt.ListState()
    known = rt.ListState(redistribution="union")

    def open(self) -> None:
        """What all subtasks have known comes together, and would grow with each restore."""
        held, known = self.dealt.get(), set(self.known.get())
        if not {*held} <= known:
            raise AssertionError(f"{held} was dealt to a subtask that knows only {known}")
        self.known.set(sorted(known, key=repr))

    def process(self, record: Record, ctx: rt.ProcessContext) -> Iterable[Record]:
        path = tuple(record[0])
        self.dealt.add(path)
        self.known.add(path)
        yield record
