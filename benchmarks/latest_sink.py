"""A sink that is too cheap to be measured itself, and still lets the benchmark check the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minirt as rt
from minirt.data.batch import Batch


class LatestSink(rt.Sink):
    """Keeps the newest value of each key; records are pairs. Results are in `latest` at the end."""

    def __init__(self) -> None:
        self.latest: dict[Any, Any] = {}

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _LatestWriter()

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        for handle in handles:
            self.latest.update(handle["pairs"])


class _LatestWriter(rt.SinkWriter):
    def __init__(self) -> None:
        self._latest: dict[Any, Any] = {}

    def write(self, batch: Batch) -> None:
        self._latest.update(batch.rows().records)

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        pairs = [list(pair) for pair in self._latest.items()]
        self._latest.clear()
        return rt.Prepared([{"pairs": pairs}] if pairs else [])
