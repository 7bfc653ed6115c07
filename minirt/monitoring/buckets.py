"""How many of something, such as latencies, are in which bucket. Buckets are numbers that go up with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def added_up(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The counts of all parts together."""
    found: dict[int, int] = {}
    for counts in parts:
        for bucket, count in counts.items():
            found[bucket] = found.get(bucket, 0) + count
    return found


def bucket_of_share(counts: Mapping[int, int], share: float) -> int:
    """The bucket up to which this share of all that is counted lies. Raises ValueError if nothing is."""
    left = share * sum(counts.values())
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0:
            return bucket
    return max(counts)
