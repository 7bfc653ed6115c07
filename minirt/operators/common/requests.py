"""Which requests are under way, and in which order their answers leave: decides, and sends nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

AHEAD_PART = 4
"""A queue takes up one record more than its capacity for each so many: they wait where answers come, and
are sent at once."""


class Request:
    """A record that an answer is wanted for. `result` and `error` count once it was `answered`."""

    __slots__ = ("answered", "error", "record", "result", "stretch", "time")

    def __init__(self, record: Any, time: int | None, stretch: _Stretch) -> None:
        self.record = record
        self.time = time
        self.stretch = stretch
        self.answered = False
        self.result: Any = None
        self.error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class TimeSignal:
    """Event time has advanced to `watermark`, or the input has become idle or active again."""

    watermark: int | None
    idle: bool | None

    def and_then(self, later: TimeSignal) -> TimeSignal:
        """Both at once, where nothing lies between them."""
        return TimeSignal(
            self.watermark if later.watermark is None else later.watermark,
            self.idle if later.idle is None else later.idle,
        )


class _Stretch(Protocol):
    """The requests up to the next signal of time, which none of their answers may fall behind."""

    signal: TimeSignal | None

    def add(self, request: Request) -> None: ...

    def on_answered(self, request: Request) -> None: ...

    def take(self, count: int) -> list[Request]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...


class _InOrder:
    """Answers leave in the order of the requests."""

    def __init__(self) -> None:
        self.signal: TimeSignal | None = None
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def on_answered(self, request: Request) -> None:
        """Its turn comes once all before it have left."""

    def take(self, count: int) -> list[Request]:
        taken: list[Request] = []
        requests = self._requests
        while requests and requests[0].answered and len(taken) < count:
            taken.append(requests.popleft())
        return taken

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class _AsTheyCome:
    """Answers leave in the order in which they come."""

    def __init__(self) -> None:
        self.signal: TimeSignal | None = None
        self._requests: dict[Request, None] = {}
        self._answered: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self._requests[request] = None

    def on_answered(self, request: Request) -> None:
        self._answered.append(request)

    def take(self, count: int) -> list[Request]:
        taken = [self._answered.popleft() for _ in range(min(count, len(self._answered)))]
        for request in taken:
            del self._requests[request]
        return taken

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)


class RequestQueue:
    """Records go in and answers come out; so do signals of time, each behind all that went in before it and
    ahead of all that went in after it. `capacity` says how many requests are under way at a time.
    """

    def __init__(self, capacity: int, *, ordered: bool) -> None:
        self._capacity = capacity
        self._size = capacity + capacity // AHEAD_PART
        self._new_stretch: type[_Stretch] = _InOrder if ordered else _AsTheyCome
        self._stretches: deque[_Stretch] = deque([self._new_stretch()])
        self._count = 0

    def __len__(self) -> int:
        """How many requests there are whose answer was not taken."""
        return self._count

    @property
    def empty(self) -> bool:
        """Whether there is neither a request nor a signal."""
        return not self._count and len(self._stretches) == 1 and self._stretches[0].signal is None

    @property
    def room(self) -> int:
        """How many more records it should be given; it tells none rather than very few."""
        room = self._size - self._count
        return room if room > 0 and 2 * room > self._size - self._capacity else 0

    def add(self, record: Any, time: int | None) -> Request:
        """Take up a record, whatever room there is; the request is to be sent."""
        stretch = self._stretches[-1]
        if stretch.signal is not None:
            stretch = self._new_stretch()
            self._stretches.append(stretch)
        request = Request(record, time, stretch)
        stretch.add(request)
        self._count += 1
        return request

    def signal(self, signal: TimeSignal) -> None:
        last = self._stretches[-1]
        last.signal = signal if last.signal is None else last.signal.and_then(signal)

    def on_answered(self, request: Request, result: Any, error: BaseException | None) -> None:
        request.answered, request.result, request.error = True, result, error
        request.stretch.on_answered(request)

    def take(self, count: int) -> list[Request] | TimeSignal | None:
        """What comes out next: up to `count` requests that were answered, or a signal. None if that has
        to wait for answers."""
        first = self._stretches[0]
        if taken := first.take(count):
            self._count -= len(taken)
            return taken
        if len(first) or first.signal is None:
            return None
        self._stretches.popleft()
        if not self._stretches:
            self._stretches.append(self._new_stretch())
        return first.signal

    def requests(self) -> Iterator[Request]:
        """All whose answer was not taken, in the order in which they went in."""
        for stretch in self._stretches:
            yield from stretch
