"""How long latency markers took from a source to here: a histogram with buckets that grow evenly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import log2

from minirt.monitoring.buckets import STEPS, UNIT_S, added_up, bucket_of, share_s

RECENT_S = 5.0
"""What came within this time counts as recent; up to twice of it, as time goes on in such steps."""

BOUNDS_S = tuple(UNIT_S * 2**power for power in range(5, 25))
"""What Prometheus is told: from a quarter of a millisecond to 131 seconds, each the double of the last."""


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """How many markers took how long. It never changes, so that other threads may read it."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """By bucket; those without any are not there."""
    sum_s: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def noted(self, latency_s: float) -> LatencyHistogram:
        """With one more. Below 0, as the clocks of two processes are only about known, it counts as 0."""
        latency_s = max(0.0, latency_s)
        return self.plus(LatencyHistogram({bucket_of(latency_s): 1}, latency_s))

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """Both together."""
        return LatencyHistogram(added_up((self.counts, other.counts)), self.sum_s + other.sum_s)

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram:
        """What came after an earlier state of the same histogram."""
        counts = {
            at: more
            for at, count in self.counts.items()
            if (more := count - earlier.counts.get(at, 0)) > 0
        }
        return LatencyHistogram(counts, max(0.0, self.sum_s - earlier.sum_s))

    def share_s(self, share: float) -> float | None:
        """The latency that this share does not exceed, within 2 %; None if nothing was noted."""
        return share_s(self.counts, share) if self.counts else None

    def to_plain(self) -> dict[str, float | None]:
        """What a person wants to know of it."""
        return {
            "markers": self.count,
            "p50_s": self.share_s(0.5),
            "p99_s": self.share_s(0.99),
            "p999_s": self.share_s(0.999),
        }

    def below(self, bound_s: float) -> int:
        """How many are in buckets below one of `BOUNDS_S`, which all are bounds of buckets."""
        first = round(log2(bound_s / UNIT_S) * STEPS)
        return sum(count for at, count in self.counts.items() if at < first)


NO_LATENCIES = LatencyHistogram()


def together(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """All in one."""
    return reduce(LatencyHistogram.plus, histograms, NO_LATENCIES)


class RecentLatencies:
    """What came to a histogram in the last seconds, from 5 to 10. Times are of any clock, in seconds."""

    def __init__(self) -> None:
        self._older = self._newer = NO_LATENCIES
        self._turned_at: float | None = None

    def after(self, at: float, whole: LatencyHistogram) -> LatencyHistogram:
        """What is recent at a time at which the histogram holds this."""
        if self._turned_at is None or at < self._turned_at:  # Its process is another one.
            self._older = self._newer = NO_LATENCIES
            self._turned_at = at
        elif at - self._turned_at >= RECENT_S:
            self._older, self._newer, self._turned_at = self._newer, whole, at
        return whole.since(self._older)
