"""A source of numbered records, each stamped with its event time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.sources import NumberedSource, event_time, numbered
from minirt.testing.conformance.stages.base import CutOf, Record, Records, Site, StageKind
from minirt.testing.conformance.watermarks import WATERMARKS


def stamp(record: tuple[str, int, int]) -> Record:
    return (record, event_time(record), ())


def all_records(uid: str, plan: Plan) -> Records:
    """What a source gives out."""
    return Counter(
        (record, event_time(record)) for record in numbered(uid, plan.splits, plan.count)
    )


class SourceStage(StageKind):
    name: ClassVar = "source"
    words: ClassVar = "source"
    weight: ClassVar = 0
    """It is drawn by itself."""
    streams: ClassVar = 0
    inputs: ClassVar = 0

    def begin(self, env: rt.Environment, site: Site) -> rt.Stream:
        plan, uid = site.plan, site.uid
        drift = None if plan.max_drift_ms is None else plan.max_drift_ms / 1000
        marks = WATERMARKS[plan.watermarks](plan.watermark_bound_ms, drift)
        source = NumberedSource(uid, plan.splits, plan.count)
        read = env.source(source, uid=uid, watermarks=marks, parallelism=site.width)
        return read.map(stamp, uid=f"{uid}-stamp", parallelism=site.width)

    def add(self, site: Site) -> rt.Stream:
        raise AssertionError("a source has no streams in front of it")

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        raise AssertionError("what a source gives out depends on the plan")

    def at_cut(self, cut: CutOf) -> Records:
        """The records before its stored positions."""
        positions, count = cut.stored.positions(cut.uid), cut.plan.count
        read = {split: count if n is None else n for split, n in positions.items()}
        return Counter(
            {
                (record, time): n
                for (record, time), n in all_records(cut.uid, cut.plan).items()
                if record[2] < read.get(f"{cut.uid}-{record[1]}", count)
            }
        )
