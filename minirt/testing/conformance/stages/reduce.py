"""`reduce` by key: the value of a key is its newest record, which says how many there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    CutOf,
    Note,
    Record,
    Records,
    Site,
    StageKind,
    key_of,
    per_key,
)


class ReduceStage(StageKind):
    name: ClassVar = "reduce"
    words: ClassVar = "reduce by key"
    keyed: ClassVar = True
    numbers: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        return site.keyed[0].reduce(Newest(site.uid, site.stage.keys), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return consumed[0]

    def at_cut(self, cut: CutOf) -> Records:
        """The value of a key tells how many of its records were combined."""
        counts: Counter[Any] = Counter()
        for key, value in cut.stored.state(cut.uid, "value"):
            counts[key] += number_of(value, cut.uid)
        cut.compare(f"the state of {cut.uid}", counts, per_key(cut.stage, cut.consumed[0]))
        return super().at_cut(cut)


class Newest:
    """The newer record, with a note of its number; the first of a key comes without, as it is."""

    def __init__(self, uid: str, keys: int) -> None:
        self._uid = uid
        self._keys = keys

    def __call__(self, value: Record, record: Record) -> Record:
        path, time, notes = record
        number = number_of(value, self._uid) + 1
        note: Note = ("reduce", self._uid, key_of(path, self._keys), number, path)
        return (path, time, (*notes, note))


def number_of(record: Record, uid: str) -> int:
    """Which of its key a record is that a stage gave out."""
    own = [number for kind, by, *_, number, _ in record[2] if (kind, by) == ("reduce", uid)]
    return own[0] if own else 1
