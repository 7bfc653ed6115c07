"""Timers of keys, in event time and in processing time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import compress
from typing import Any

from minirt.data.codec import MalformedDataError
from minirt.functions import TimeDomain
from minirt.state.keyed import owned
from minirt.state.sections import pack_section, unpack_section
from minirt.state.stored import TIMER_TABLE

_STALE_MAX = 1024


class Timers:
    """The pending timers of one subtask, for keys whose key group lies in `groups`. Times in ms."""

    def __init__(self, max_parallelism: int, groups: range) -> None:
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._queues: dict[str, _Queue] = {"event": _Queue(), "processing": _Queue()}

    def __len__(self) -> int:
        return sum(len(queue.live) for queue in self._queues.values())

    def set(self, domain: TimeDomain, at: int, key: Any) -> None:
        """Add a timer; one that is already set stays where it is in the order."""
        self._queues[domain].add(at, key)

    def delete(self, domain: TimeDomain, at: int, key: Any) -> None:
        """Remove a timer, if it is set."""
        self._queues[domain].remove(at, key)

    def next(self, domain: TimeDomain) -> int | None:
        """The time of the earliest timer."""
        return self._queues[domain].earliest()

    def pop_due(self, domain: TimeDomain, now: int) -> tuple[int, Any] | None:
        """Take out the earliest timer that is not after `now`; of equal times, the first one set."""
        queue = self._queues[domain]
        at = queue.earliest()
        return None if at is None or at > now else queue.pop()

    def snapshot(self) -> dict[str, bytes]:
        """All timers as bytes: one section a domain that holds any."""
        sections = {}
        for domain, queue in self._queues.items():
            if queue.live:
                timers = queue.in_order()
                sections[domain] = pack_section(
                    TIMER_TABLE, [at for at, _ in timers], [key for _, key in timers]
                )
        return sections

    def restore(self, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        """Merge a snapshot, of this or of another subtask, behind timers of equal time.

        `filter_groups` keeps only what lies in the own key groups; without it all is known to.
        Raises MalformedDataError.
        """
        for domain, section in sections.items():
            queue = self._queues.get(domain)
            if queue is None:
                raise MalformedDataError(f"timers of an unknown time domain {domain!r}")
            for times, keys in unpack_section(TIMER_TABLE, section):
                timers = zip(times, keys, strict=True)
                own = (
                    compress(timers, owned(keys, self._max_parallelism, self._groups))
                    if filter_groups
                    else timers
                )
                for at, key in own:
                    queue.add(at, key)


class _Queue:
    """A heap of (time, number, key), and the number of every timer that is really set.

    Entries of the heap whose number is not the one of a set timer are stale and skipped.
    """

    __slots__ = ("_count", "_heap", "live")

    def __init__(self) -> None:
        self.live: dict[tuple[int, Any], int] = {}
        self._heap: list[tuple[int, int, Any]] = []
        self._count = 0

    def add(self, at: int, key: Any) -> None:
        if (at, key) in self.live:
            return
        self._count += 1
        self.live[at, key] = self._count
        heapq.heappush(self._heap, (at, self._count, key))

    def remove(self, at: int, key: Any) -> None:
        if self.live.pop((at, key), None) is None:
            return
        if len(self._heap) > 2 * len(self.live) + _STALE_MAX:
            self._heap = [(at, number, key) for (at, key), number in self.live.items()]
            heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        heap, live = self._heap, self.live
        while heap:
            at, number, key = heap[0]
            if live.get((at, key)) == number:
                return at
            heapq.heappop(heap)
        return None

    def pop(self) -> tuple[int, Any]:
        """Take out what `earliest` has just found."""
        at, _, key = heapq.heappop(self._heap)
        del self.live[at, key]
        return at, key

    def in_order(self) -> list[tuple[int, Any]]:
        ordered = sorted((at, number, key) for (at, key), number in self.live.items())
        return [(at, key) for at, _, key in ordered]
