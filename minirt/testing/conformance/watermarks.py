"""The kinds of watermarks of random jobs. All promise the same: no record is later than a bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt

import minirt as rt
from minirt.testing.conformance.sources import event_time


class ByRecords(rt.WatermarkGenerator):
    """Goes by the newest record; every now and then it says nothing, or goes back."""

    def __init__(self, bound_ms: int) -> None:
        self._bound_ms = bound_ms
        self._newest: int | None = None
        self._asked = 0

    def on_event(self, record: Any, timestamp: int) -> None:
        if timestamp != event_time(record):
            raise AssertionError(f"{record} has the event time {timestamp}")
        self._newest = timestamp if self._newest is None else max(self._newest, timestamp)

    def watermark(self) -> int | None:
        self._asked += 1
        if self._newest is None or self._asked % 3 == 1:
            return None
        return self._newest - self._bound_ms - (100 if self._asked % 3 == 2 else 1)


class ByBatches(ByRecords):
    """Gets all records that come at once."""

    def on_batch(self, records: Sequence[Any], timestamps: npt.NDArray[Any]) -> None:
        for record, timestamp in zip(records, timestamps.tolist(), strict=True):
            self.on_event(record, timestamp)


def _bounded(bound_ms: int, drift: float | None, **options: Any) -> rt.Watermarks:
    bound = bound_ms / 1000
    return rt.Watermarks.bounded(bound, timestamp=event_time, max_drift=drift, **options)


def _generated(
    kind: Callable[[int], ByRecords], bound_ms: int, drift: float | None, **options: Any
) -> rt.Watermarks:
    make = partial(kind, bound_ms)
    return rt.Watermarks.generated(make, timestamp=event_time, max_drift=drift, **options)


WATERMARKS: Mapping[str, Callable[[int, float | None], rt.Watermarks]] = {
    "bounded": _bounded,
    "bounded, per record": partial(_bounded, emit="per record"),
    "generated": partial(_generated, ByBatches),
    "generated, per record": partial(_generated, ByRecords, emit="per record"),
}
"""Makes them of the bound in milliseconds and of what `max_drift` is, in seconds."""
