"""The events of NexMark as a source of a workload: at a pace, until the time of the run is up.

An event happens when it is due: its event time is the wall clock of the run, so it also says when the
record was made. Split i of n has every n-th block of events, beginning with the i-th.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from minirt.clock import SYSTEM_CLOCK
from minirt.io.base import Offset, Source, Split, SplitReader
from minirt.laboratory.nexmark.generator import generator
from minirt.laboratory.nexmark.schemas import SCHEMAS, Kind
from minirt.laboratory.nexmark.workload import Workload
from minirt.laboratory.notes import Notebook
from minirt.laboratory.workload import Place, TimeIsUp
from minirt.laboratory.workloads.parts import END, ends_of_readers

BLOCK_EVENTS = 1000


class PacedEvents(Source):
    """Those of one kind, of so many events of all kinds a second."""

    bounded = False

    def __init__(self, place: Place, kind: Kind, events_per_s: float) -> None:
        self.place = place
        self.kind = kind
        self._events_per_s = events_per_s

    def schema(self) -> pa.Schema:
        return SCHEMAS[self.kind]

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        began = {"monotonic": time.monotonic(), "wall_ms": int(SYSTEM_CLOCK.now() * 1000)}
        rate = self._events_per_s
        return [
            Split(f"{first}", {"first": first, "count": parallelism, "rate": rate, **began})
            for first in range(parallelism)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _PacedReader(self, split, offset)


class _PacedReader(SplitReader):
    """Its offset is the number of the next event."""

    def __init__(self, source: PacedEvents, split: Split, offset: Offset) -> None:
        info = split.info
        self._kind = source.kind
        self._events = generator(events_of(info))
        self._began: float = info["monotonic"]
        self._rate: float = info["rate"]
        self._stride: int = info["count"] * BLOCK_EVENTS
        self._time_is_up = TimeIsUp(source.place)
        self.offset: int = info["first"] * BLOCK_EVENTS if offset is None else offset
        # The notes say which events there were, by what is in their name.
        who = f"source-{source.kind}-{info['wall_ms']}-{info['rate']:g}-{info['count']}-{info['first']}"
        self._notes = Notebook(str(source.place.notes), who, time.monotonic_ns())
        self._notes.reach(self.offset)

    def read(self) -> pa.RecordBatch | None:
        if self._time_is_up():
            self._notes.mark(END)
            return None
        due = int((time.monotonic() - self._began) * self._rate)
        start = self.offset
        begin = start - start % BLOCK_EVENTS
        stop = min(begin + BLOCK_EVENTS, due)
        if stop <= start:
            return self._events.events(self._kind, 0, 0)
        self.offset = stop if stop < begin + BLOCK_EVENTS else begin + self._stride
        self._notes.reach(self.offset)
        return self._events.events(self._kind, start, stop)

    def close(self) -> None:
        self._notes.close()


def events_of(info: Mapping[str, float]) -> Workload:
    """What the events of a split are like."""
    return Workload(rate=info["rate"], base_time_ms=int(info["wall_ms"]))


def given_out(place: Place, kind: Kind) -> Iterator[pa.RecordBatch] | None:
    """All events of a kind that its sources gave out; None if one did not come to its end."""
    ends = {
        who: end for who, end in ends_of_readers(place).items() if who.startswith(f"source-{kind}-")
    }
    if not ends or None in ends.values():
        return None
    return _made_again(kind, {who: end for who, end in ends.items() if end is not None})


def _made_again(kind: Kind, ends: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    for who, end in ends.items():
        wall_ms, rate, count, first = who.split("-")[2:]
        events = generator(events_of({"wall_ms": int(wall_ms), "rate": float(rate)}))
        for start in range(int(first) * BLOCK_EVENTS, end, int(count) * BLOCK_EVENTS):
            yield events.events(kind, start, min(start + BLOCK_EVENTS, end))
