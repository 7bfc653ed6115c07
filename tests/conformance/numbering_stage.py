"""How another package has its own operator drawn into random jobs: the stage of `Numbering`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    CutOf,
    Record,
    Records,
    Site,
    StageKind,
    per_key,
)
from tests.operators.numbering import Numbering


class NumberingStage(StageKind):
    """Every third record of a key takes the way through the side output."""

    name: ClassVar = "numbering"
    words: ClassVar = "numbering of two inputs by key"
    weight: ClassVar = 8
    streams: ClassVar = 2
    inputs: ClassVar = 2
    keyed: ClassVar = True
    numbers: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        left, right = site.keyed
        numbered = left.connect(right).apply(Numbering(nth=3), **site.settings)
        both = numbered.union(numbered.side_output("nth"))
        return both.map(Noted(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return sum(consumed, Records())

    def captured(self, record: Any) -> Record:
        """In front of `Noted` it is a key, a number and the record."""
        return record[2] if isinstance(record[0], int) else super().captured(record)

    def at_cut(self, cut: CutOf) -> Records:
        passed = super().at_cut(cut)
        counts = Records(dict(cut.stored.state(cut.uid, "count")))
        cut.compare(f"the state of {cut.uid}", counts, per_key(cut.stage, passed))
        return passed


class Noted:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, numbered: tuple[int, int, Record]) -> Record:
        key, number, (path, time, notes) = numbered
        return (path, time, (*notes, ("numbering", self._uid, key, number, path)))
