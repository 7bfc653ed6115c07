"""The stateful step of the demo: hourly statistics by event time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minirt.functions import KeyedContext, KeyedProcess
from minirt.state.handles import MapState
from minirt_connectors.flights.hourly import EMPTY, HOUR_MS, add_flight, hour_of, result_row


class HourlyStats(KeyedProcess):
    """One result for every hour of a key (origin, carrier), once event time has left the hour.

    A flight that came later than its hour's result would begin a second result for that hour:
    nothing is dropped silently, and a verification sees it.
    """

    hours = MapState()
    """The statistics of hours that are not over yet, by the start of the hour."""

    def process(self, record: Mapping[str, Any], ctx: KeyedContext) -> None:
        assert ctx.timestamp is not None, "the source has watermarks, so all records have a time"
        hour = hour_of(ctx.timestamp)
        stats = self.hours.get(hour)
        if stats is None:
            stats = EMPTY
            ctx.set_timer(_last_moment(hour))
        self.hours[hour] = add_flight(stats, record)

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[dict[str, Any]]:
        hour = hour_of(timestamp)
        origin, carrier = ctx.key
        yield result_row(origin, carrier, hour, self.hours.pop(hour))


def _last_moment(hour: int) -> int:
    return hour + HOUR_MS - 1
