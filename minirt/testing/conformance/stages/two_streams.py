"""Stages of two streams that keep nothing: unions, and functions of two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.scribblers import Copy, Rename
from minirt.testing.conformance.stages.base import Records, Site, StageKind, renamed
from minirt.testing.conformance.stages.elements import MapStage, copied


class UnionStage(MapStage):
    name: ClassVar = "union"
    words: ClassVar = "union"
    streams: ClassVar = 2
    needs_uid: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        left, right = site.dealt
        return left.union(right).map(Rename(site.uid), **site.settings)


class TwiceStage(MapStage):
    name: ClassVar = "twice"
    words: ClassVar = "union of a stream with itself"
    copies: ClassVar = 2
    needs_uid: ClassVar = True
    keeps_order: ClassVar = False

    def add(self, site: Site) -> rt.Stream:
        [first] = site.dealt
        return first.union(first).map(Rename(site.uid), **site.settings)


class PairStage(StageKind):
    name: ClassVar = "pair"
    words: ClassVar = "map of two inputs"
    streams: ClassVar = 2
    inputs: ClassVar = 2

    def add(self, site: Site) -> rt.Stream:
        left, right = site.dealt
        renames = Rename(site.uid, "left"), Rename(site.uid, "right")
        return left.connect(right).map(*renames, **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        left, right = consumed
        return renamed(left, lambda path: (*path, uid, "left")) + renamed(
            right, lambda path: (*path, uid, "right")
        )


class FlatPairStage(StageKind):
    name: ClassVar = "flatpair"
    words: ClassVar = "flat_map of two inputs"
    streams: ClassVar = 2
    inputs: ClassVar = 2

    def add(self, site: Site) -> rt.Stream:
        left, right = site.dealt
        return left.connect(right).flat_map(Copy(), Copy(), **site.settings)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return copied(sum(consumed, Records()))
