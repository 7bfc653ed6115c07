"""Latencies, counted in buckets that are each 2 % wider than the one before.

Markers, and records that say when they were made, are counted in the same ones: their figures compare.
Counts are by the number of the bucket; buckets that hold nothing are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor, log2

UNIT_S = 0.001 / 128
"""The lower bound of bucket 0, which also counts what is below it."""
STEPS = 32
"""Buckets from one power of two to the next."""
LAST = 30 * STEPS
"""The last bucket, for all that took longer than two hours."""


def bucket_of(latency_s: float) -> int:
    """The bucket that counts a latency."""
    units = latency_s / UNIT_S
    return 0 if units < 1 else min(LAST, floor(log2(units) * STEPS))


def added_up(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The counts of all parts together."""
    found: dict[int, int] = {}
    for counts in parts:
        for bucket, count in counts.items():
            found[bucket] = found.get(bucket, 0) + count
    return found


def share_s(counts: Mapping[int, int], share: float) -> float:
    """The latency that this share of all counted does not exceed, within 2 %: the middle of its bucket.

    Raises ValueError if nothing is counted.
    """
    return UNIT_S * float(2.0 ** ((_bucket_of_share(counts, share) + 0.5) / STEPS))


def _bucket_of_share(counts: Mapping[int, int], share: float) -> int:
    left = share * sum(counts.values())
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return bucket
    return max(counts)
