"""When state expires: what the user asked for, the clocks that it goes by, and when to look at what.

Time only goes forward for state. The *processing* clock is the monotonic one within a run, so that nobody
can set it, and the wall clock between two runs; where that is behind what the checkpoint has seen, time
goes on from there. The *event* clock of a key is its watermark, or the time of its record or timer if that
is further.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from minirt.errors import ConfigurationError
from minirt.functions import TimeDomain
from minirt.units import Duration, milliseconds

Refresh = Literal["write", "read"]

BUCKETS = 64
"""Into how many buckets the entries of one time to live are put: a 64th of it later at most, they are
removed."""


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """How long an entry lives after it was last touched, and by which clock."""

    ms: int
    refresh: Refresh
    clock: TimeDomain


def time_to_live(
    ttl: Duration | None, refresh: Refresh | None, clock: TimeDomain | None, what: str
) -> TimeToLive | None:
    """What the user asked for; None if nothing expires. Raises ConfigurationError."""
    given = {"refresh": (refresh, get_args(Refresh)), "clock": (clock, get_args(TimeDomain))}
    for option, (value, known) in given.items():
        if value is None:
            continue
        if ttl is None:
            raise ConfigurationError(
                f"{what}: {option} has no effect without ttl; say ttl='1h', or leave {option} out"
            )
        if value not in known:
            raise ConfigurationError(
                f"{what}: {option} is {' or '.join(map(repr, known))}, not {value!r}"
            )
    if ttl is None:
        return None
    ms = milliseconds(ttl, f"{what}: ttl")
    if ms < 1:
        raise ConfigurationError(f"{what}: a ttl must be at least 1ms, got {ttl!r}")
    return TimeToLive(ms, refresh or "write", clock or "processing")


class StateClock(Protocol):
    """Tells the time, in milliseconds, to state that expires."""

    def now(self) -> int:
        """For the current key."""

    def for_all(self) -> int | None:
        """What has passed for all keys of the subtask; None if that is not known yet."""

    def due_at(self, ms: int) -> float | None:
        """When it is `ms` for all keys, by the monotonic clock; None if something else will tell."""


class ProcessingClock:
    """Counts on from the wall clock of the beginning. Call `tick` once for each batch of records."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ahead_s = wall() - monotonic()
        self._now = int(wall() * 1000)

    def restore(self, seen: int) -> None:
        """An old subtask has seen this time."""
        self._ahead_s = max(self._ahead_s, seen / 1000 - self._monotonic())
        self._now = max(self._now, seen)

    def tick(self) -> int:
        """Look at the clock."""
        self._now = max(self._now, int((self._monotonic() + self._ahead_s) * 1000))
        return self._now

    def now(self) -> int:
        return self._now

    def for_all(self) -> int | None:
        return self.tick()

    def due_at(self, ms: int) -> float | None:
        return ms / 1000 - self._ahead_s


class EventClock:
    """Asks the operator how far event time has come."""

    def __init__(self, of_key: Callable[[], int], of_all: Callable[[], int | None]) -> None:
        self.now = of_key
        self.for_all = of_all

    def due_at(self, ms: int) -> float | None:
        seen = self.for_all()
        return None if seen is None or seen < ms else 0.0


_ENDED = object()


class Turns:
    """Work in pieces, with pauses between them in which records are processed."""

    def __init__(self, monotonic: Callable[[], float], share: float) -> None:
        """A piece is followed by `share` times as long without one."""
        self._monotonic = monotonic
        self._share = share
        self._work: Iterator[None] | None = None
        self.not_before = monotonic()
        """When the next piece has its turn, by the monotonic clock."""

    @property
    def under_way(self) -> bool:
        """Whether work of several steps was begun and goes on."""
        return self._work is not None

    def step(self, begin: Callable[[], Iterator[None]]) -> None:
        """Take one step of the work that is under way; if none is, of what `begin` gives."""
        with self.piece():
            if self._work is None:
                self._work = begin()
            if next(self._work, _ENDED) is _ENDED:
                self._work = None

    @contextmanager
    def piece(self) -> Iterator[None]:
        """A piece of work."""
        began = self._monotonic()
        yield
        ended = self._monotonic()
        self.not_before = ended + self._share * (ended - began)


class Agenda:
    """Says which entries of a state to look at, when they may have expired.

    It knows each entry once, in the bucket of the time at which the entry was to expire when it came in.
    What has been touched since is put into a later bucket when its bucket is looked at: so to touch an
    entry costs nothing here.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._width = max(1, ttl_ms // BUCKETS)
        self._buckets: dict[int, list[Any]] = {}
        self._order: list[int] = []
        """The numbers of the buckets, as a heap."""
        self._restored: list[Any] = []
        self._without_time: set[Any] = set()
        """Known entries that have no time: they were cleared, or restored from state without a ttl."""

    def begin(self, entries: list[Any], without_time: Set[Any]) -> None:
        """These entries were restored: look at them as soon as there is a clock."""
        self._restored, self._without_time = entries, set(without_time)

    def enter(self, entry: Any, expires_at: int) -> None:
        """An entry that had no time has got one."""
        if entry in self._without_time:
            self._without_time.remove(entry)
        else:
            self.put(entry, expires_at)

    def leave(self, entry: Any) -> None:
        """An entry that had a time was cleared."""
        self._without_time.add(entry)

    def forget(self, entry: Any) -> None:
        """An entry that `take` gave out, and that has no time, is to be known no longer."""
        self._without_time.discard(entry)

    def put(self, entry: Any, expires_at: int) -> None:
        """Look at an entry, which `take` gave out, again."""
        number = expires_at // self._width
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            heapq.heappush(self._order, number)
        bucket.append(entry)

    @property
    def next_at(self) -> int | None:
        """When to look at something, in milliseconds; None if never."""
        if self._restored:
            return -(2**63) + 1
        return (self._order[0] + 1) * self._width if self._order else None

    def take(self, now: int, count: int) -> list[Any]:
        """Take out entries that it is time to look at, at most so many."""
        if self._restored:
            return _cut(self._restored, count)
        taken: list[Any] = []
        while self._order and (self._order[0] + 1) * self._width <= now and len(taken) < count:
            bucket = self._buckets[self._order[0]]
            taken += _cut(bucket, count - len(taken))
            if not bucket:
                del self._buckets[heapq.heappop(self._order)]
        return taken


def _cut(entries: list[Any], count: int) -> list[Any]:
    taken = entries[-count:]
    del entries[-count:]
    return taken
