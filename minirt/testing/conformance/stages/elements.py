"""Stages of functions that are called record by record or batch by batch, and keep nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.scribblers import Copy, Regather, Rename, Sieve, use_up
from minirt.testing.conformance.stages.base import (
    Path,
    Record,
    Records,
    Site,
    StageKind,
    key_of,
    renamed,
)


class MapStage(StageKind):
    name: ClassVar = "map"
    words: ClassVar = "map"
    needs_uid: ClassVar = False

    def add(self, site: Site) -> rt.Stream:
        # The name that functions without one give: so uids shift when one more of them is there.
        name = None if site.stage.named else "map"
        return site.dealt[0].map(Rename(site.uid), name=name, **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return renamed(consumed[0], lambda path: (*path, uid))


class FilterStage(StageKind):
    name: ClassVar = "filter"
    words: ClassVar = "filter"

    def add(self, site: Site) -> rt.Stream:
        return site.dealt[0].filter(Sieve(keep), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return Counter({record: n for record, n in consumed[0].items() if keep(record[0])})


def keep(path: Path) -> bool:
    return key_of(path, 4) != 1


class FlatStage(StageKind):
    name: ClassVar = "flat"
    words: ClassVar = "flat_map"

    def add(self, site: Site) -> rt.Stream:
        return site.dealt[0].flat_map(Copy(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return copied(consumed[0])


def copied(records: Records) -> Records:
    """What `Copy` makes of records."""
    return renamed(records, lambda path: (*path, 0)) + renamed(records, lambda path: (*path, 1))


class BatchesStage(StageKind):
    name: ClassVar = "batches"
    words: ClassVar = "map_batches"

    def add(self, site: Site) -> rt.Stream:
        return site.dealt[0].map_batches(Regather(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return consumed[0]


class SplitStage(StageKind):
    """Odd records to the side output, which only a sink takes."""

    name: ClassVar = "split"
    words: ClassVar = "process with a side output"

    def add(self, site: Site) -> rt.Stream:
        return site.dealt[0].process(Splitter(), **site.settings)

    def for_sink(self, stream: rt.Stream) -> rt.Stream:
        return stream.union(stream.side_output("odd"))

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return Counter({record: n for record, n in consumed[0].items() if not is_odd(record[0])})

    def to_sink(self, consumed: Sequence[Records], emitted: Records) -> Records:
        return consumed[0]


class Splitter(rt.Process):
    """Odd records to the side output; nothing may come after a watermark that promised it was over."""

    def process(self, record: Record, ctx: rt.ProcessContext) -> Iterable[Record]:
        if ctx.timestamp != record[1]:
            raise AssertionError(f"a record of {record[1]} has the event time {ctx.timestamp}")
        if ctx.watermark is not None and ctx.watermark >= record[1]:
            raise AssertionError("a watermark passed a record")
        if is_odd(record[0]):
            ctx.side("odd", record)
        else:
            yield record
        use_up(record)


def is_odd(path: Path) -> bool:
    return key_of(path, 2) == 1
