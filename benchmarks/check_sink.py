"""A sink that is too cheap to be measured itself, and still lets the benchmark check the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import minirt as rt
from benchmarks.workload import Tally
from minirt.data.batch import Batch

See = Callable[[Batch, Tally], None]


class CheckSink(rt.Sink):
    """Has `see` look at every batch. At the end, `tally` is what it counted; the last came `ended_at`."""

    def __init__(self, see: See) -> None:
        self._see = see
        self._counted: dict[tuple[int, int], Tally] = {}
        self.ended_at = 0.0

    @property
    def tally(self) -> Tally:
        whole = Tally()
        for part in self._counted.values():
            whole.add(part.count, part.checksum)
            whole.add_latencies(part.latencies)
        return whole

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _Writer(self._see, context.subtask)

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        for handle in handles:
            counted = Tally(handle["count"], handle["checksum"], dict(handle["latencies"]))
            self._counted[handle["subtask"], handle["checkpoint"]] = counted
            self.ended_at = max(self.ended_at, handle["ended_at"])


class _Writer(rt.SinkWriter):
    def __init__(self, see: See, subtask: int) -> None:
        self._see = see
        self._subtask = subtask
        self._tally = Tally()
        self._written_at = 0.0

    def write(self, batch: Batch) -> None:
        self._see(batch, self._tally)
        self._written_at = time.monotonic()

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        tally, self._tally = self._tally, Tally()
        handle = {
            "subtask": self._subtask,
            "checkpoint": checkpoint_id,
            "count": tally.count,
            "checksum": tally.checksum,
            "latencies": list(tally.latencies.items()),
            "ended_at": self._written_at,
        }
        return rt.Prepared([handle])
