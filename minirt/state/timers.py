"""Timers of keys, in event time and in processing time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from itertools import compress
from typing import Any

from minirt.data.errors import MalformedDataError
from minirt.data.keys import distinct_keys
from minirt.functions import TimeDomain
from minirt.state.keyed import owned
from minirt.state.sections import pack_section, unpack_section
from minirt.state.stored import TIMER_TABLE

_STALE_MAX = 1024


_ROUNDS_AT_END: dict[TimeDomain, int] = {"event": 1, "processing": 0}
"""The last round that fires at the end of input, so that timers which renew themselves come to an end."""


class Timers:
    """The pending timers of one subtask, for keys whose key group lies in `groups`. Times in ms.

    The end of input fires timers in rounds: those that were pending are round 0; what a timer of one
    round sets is of the next. Rounds are stored, so that a restore in the middle of the end changes
    nothing.
    """

    def __init__(self, max_parallelism: int, groups: range) -> None:
        self._max_parallelism = max_parallelism
        self._groups = groups
        self._queues: dict[TimeDomain, _Queue] = {"event": _Queue(), "processing": _Queue()}
        self._round = 0
        """The round of timers that are set at this moment."""

    def __len__(self) -> int:
        return sum(len(queue.live) for queue in self._queues.values())

    def set(self, domain: TimeDomain, at: int, key: Any) -> None:
        """Add a timer; one that is already set stays where it is in the order."""
        self._queues[domain].add(at, key, self._round)

    def goes_on(self, keys: Collection[Any]) -> None:
        """These keys have records: their input has not ended, and all their timers are of round 0."""
        for queue in self._queues.values():
            if queue.rounds:
                queue.forget_rounds(frozenset(keys))

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
        self._round = 0
        return None if at is None or at > now else queue.pop()

    def pop_at_end(self, domain: TimeDomain) -> tuple[int, Any] | None:
        """Take out the earliest timer that fires at the end of input; the others stay set."""
        queue = self._queues[domain]
        while queue.earliest() is not None:
            fired = queue.round_of_earliest()
            if fired <= _ROUNDS_AT_END[domain]:
                self._round = fired + 1
                return queue.pop()
            queue.pass_over()
        self._round = 0
        return None

    def snapshot(self) -> dict[str, bytes]:
        """All timers as bytes: one section for each domain and round that has any."""
        sections = {}
        for domain, queue in self._queues.items():
            for number, timers in queue.by_round().items():
                sections[f"{domain}/{number}" if number else domain] = pack_section(
                    TIMER_TABLE, [at for at, _ in timers], [key for _, key in timers]
                )
        return sections

    def restore(self, sections: Mapping[str, bytes], *, filter_groups: bool) -> None:
        """Merge a snapshot, of this or of another subtask, behind timers of equal time.

        `filter_groups` keeps only what lies in the own key groups; without it all is known to.
        Raises MalformedDataError.
        """
        for name, section in sections.items():
            queue, number = self._place_of(name)
            for times, stored in unpack_section(TIMER_TABLE, section):
                keys = distinct_keys(stored)
                timers = zip(times, keys, strict=True)
                own = (
                    compress(timers, owned(keys, self._max_parallelism, self._groups))
                    if filter_groups
                    else timers
                )
                for at, key in own:
                    queue.add(at, key, number)

    def _place_of(self, section: str) -> tuple[_Queue, int]:
        domain, _, number = section.partition("/")
        for known, queue in self._queues.items():
            if known == domain and (number.isdecimal() or not number):
                return queue, int(number or 0)
        raise MalformedDataError(f"timers of an unknown time domain {section!r}")


class _Queue:
    """A heap of (time, number, key), and the number of every timer that is really set.

    Entries of the heap whose number is not the one of a set timer are stale and skipped.
    """

    __slots__ = ("_count", "_heap", "live", "rounds")

    def __init__(self) -> None:
        self.live: dict[tuple[int, Any], int] = {}
        self.rounds: dict[tuple[int, Any], int] = {}
        """The rounds of the timers that are not of round 0."""
        self._heap: list[tuple[int, int, Any]] = []
        self._count = 0

    def add(self, at: int, key: Any, number: int) -> None:
        """The timer, in this round or in an earlier one that it is in already."""
        timer = (at, key)
        if timer not in self.live:
            self._count += 1
            self.live[timer] = self._count
            heapq.heappush(self._heap, (at, self._count, key))
            if number:
                self.rounds[timer] = number
        elif number < self.rounds.get(timer, 0):
            self.rounds[timer] = number

    def forget_rounds(self, keys: frozenset[Any]) -> None:
        for timer in [timer for timer in self.rounds if timer[1] in keys]:
            del self.rounds[timer]

    def remove(self, at: int, key: Any) -> None:
        if self.live.pop((at, key), None) is None:
            return
        self.rounds.pop((at, key), None)
        if len(self._heap) > 2 * len(self.live) + _STALE_MAX:
            self._heap = [(at, count, key) for (at, key), count in self.live.items()]
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
        """Take out the timer that `earliest` has just found."""
        at, _, key = heapq.heappop(self._heap)
        del self.live[at, key]
        self.rounds.pop((at, key), None)
        return at, key

    def round_of_earliest(self) -> int:
        at, _, key = self._heap[0]
        return self.rounds.get((at, key), 0)

    def pass_over(self) -> None:
        """Leave the timer set that `earliest` has just found, and do not find it again."""
        heapq.heappop(self._heap)

    def by_round(self) -> dict[int, list[tuple[int, Any]]]:
        """All timers, in order, by the rounds that there are."""
        ordered = sorted((at, number, key) for (at, key), number in self.live.items())
        found: dict[int, list[tuple[int, Any]]] = {}
        for at, _, key in ordered:
            found.setdefault(self.rounds.get((at, key), 0), []).append((at, key))
        return found
