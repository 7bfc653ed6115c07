"""What all queries have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import minirt as rt
from benchmarks.nexmark.events import Events

KEPT = "365d"
"""How long joins without bounds of time keep records, by the clock: longer than any run lasts."""

TIME = pc.field("dateTime")
DAY = TIME.cast(pa.date32())
MINUTE = pc.utf8_slice_codeunits(TIME.cast(pa.string()), 11, 16)
"""The hour and minute of the day, such as 23:59; `strftime` takes twice as long."""


@dataclass(frozen=True, slots=True)
class Query:
    """A stream over the events, and what whoever reads its results must know."""

    stream: Callable[[Events], rt.Stream]
    replaced_by: tuple[str, ...] = ()
    """A result replaces the one before it that is equal in these columns. Without any, all count."""
    folders: tuple[str, ...] = ()
    """The columns by which the results are dealt to folders of files."""
    not_in_flink: str | None = None
    """Why Flink SQL does not run it."""

    @property
    def name(self) -> str:
        return self.stream.__name__

    @property
    def summary(self) -> str:
        return (self.stream.__doc__ or "").splitlines()[0]
