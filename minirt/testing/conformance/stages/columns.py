"""Expressions on columns, dealt by a key of one of them or as any other stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow.compute as pc

import minirt as rt
from minirt.testing.conformance.edges import EDGES, EdgeKind
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    Records,
    Site,
    StageKind,
    pick_up,
    renamed,
)
from minirt.testing.conformance.stages.laid_out import laid_out


class ColumnsStage(StageKind):
    name: ClassVar = "columns"
    words: ClassVar = "columns by key"

    def add(self, site: Site) -> rt.Stream:
        uid, width = site.uid, site.width
        dealt = site.dealt_by_column(laid_out(site, "record", "key"), "key")
        marked = dealt.with_column("via", pc.scalar(uid), **site.settings)
        kept = marked.filter(pc.field("key") >= 0, uid=f"{uid}-filter", parallelism=width)
        return kept.map(pick_up, uid=f"{uid}{BACK}", parallelism=width)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return renamed(consumed[0], lambda path: (*path, uid))

    def dealt_by(self, stage: Stage, edge: str) -> int | None:
        return stage.keys if edge == "plain" or EDGES[edge].by_key else None

    def takes(self, edge: EdgeKind) -> bool:
        return not edge.copies  # What is in flight before it is not copied yet.
