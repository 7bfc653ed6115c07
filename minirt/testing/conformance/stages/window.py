"""Aggregates of columns by key in windows of event time."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.stages.base import BACK, BUCKET_MS, CutOf, Record, Site
from minirt.testing.conformance.stages.laid_out import laid_out
from minirt.testing.conformance.stages.spans import Span, SpanStage

_STATE = "window/"
"""What stored windows are called, before their beginning."""
_KEY, _COUNT = "key key", "n = Count()\x1f0"
"""Columns of a stored window."""


class WindowStage(SpanStage):
    name: ClassVar = "window"
    words: ClassVar = "windows by key"

    def add(self, site: Site) -> rt.Stream:
        keyed = laid_out(site, "record", "key").key_by("key")
        windows = keyed.window(rt.Tumbling(f"{BUCKET_MS}ms"))
        counts = windows.aggregate(rt.Count("n"), **site.settings)
        return counts.map(Report(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def open_spans(self, cut: CutOf) -> Counter[Span]:
        return Counter(
            {
                (row[_KEY], int(name.removeprefix(_STATE)) + BUCKET_MS - 1): row[_COUNT]
                for name, row in cut.stored.arrays(cut.uid, _STATE, key=_KEY)
                if row["pending"]
            }
        )


class Report:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: dict[str, Any]) -> Record:
        end = round(row["window_end"].timestamp() * 1000) - 1
        span = "window", self._uid, row["key"], end
        return (span, end, ((*span, row["n"]),))
