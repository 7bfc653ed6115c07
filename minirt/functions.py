"""What users subclass and hand to operators: process functions, and their context."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol

from minirt.errors import ConfigurationError
from minirt.generics import K_co, K_contra, L_contra, R_contra, T, T_contra, U_co
from minirt.units import Duration, positive, seconds

TimeDomain = Literal["event", "processing"]
WindowPane = Literal["early", "on_time", "late", "retracted"]


class ProcessContext(Protocol):
    """What a process function can read and call while it handles a record or a timer."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the record, or of the timer, in milliseconds; None without event time."""

    @property
    def watermark(self) -> int | None:
        """Every later record is expected to be newer than this; None before the first watermark."""

    @property
    def processing_time(self) -> int:
        """The clock, in milliseconds since 1970 UTC."""

    @property
    def subtask(self) -> int:
        """Index of the running subtask."""

    def side(self, tag: str, record: Any) -> None:
        """Emit a record to the side output `tag` instead of the main one."""


class KeyedContext(ProcessContext, Protocol[K_co]):
    """As ProcessContext, with the current key and its timers."""

    @property
    def key(self) -> K_co:
        """The key of the record or of the timer."""

    @property
    def domain(self) -> TimeDomain:
        """Which clock the running timer belongs to; "event" while a record is processed."""

    def set_timer(self, at: int | dt.datetime) -> None:
        """Call `on_timer` for this key once the watermark passes `at`. Setting it twice is once."""

    def set_processing_timer(self, at: int | dt.datetime) -> None:
        """Call `on_timer` for this key once the clock passes `at`."""

    def delete_timer(self, at: int | dt.datetime) -> None:
        """Take back what `set_timer` has set for this key at `at`; nothing if there is none."""

    def delete_processing_timer(self, at: int | dt.datetime) -> None:
        """Take back what `set_processing_timer` has set for this key at `at`; nothing if there is none."""


class Process(ABC, Generic[T_contra, U_co]):
    """A function over single records with a context; keeps no state of its own over restarts.

    To annotate: `Process[record, result]`.
    """

    def open(self) -> None:
        """Called once in the worker before the first record."""

    def close(self) -> None:
        """Called once when the subtask ends in an orderly way."""

    @abstractmethod
    def process(self, record: T_contra, ctx: ProcessContext) -> Iterable[U_co] | None:
        """Handle one record; what is returned or yielded is emitted."""


class _Keyed(ABC, Generic[K_contra, U_co]):
    def open(self) -> None:
        """Called once in the worker, after state is restored and before the first record."""

    def close(self) -> None:
        """Called once when the subtask ends in an orderly way."""

    def on_timer(self, timestamp: int, ctx: KeyedContext[K_contra]) -> Iterable[U_co] | None:
        """Handle a timer that was set for `timestamp`; what is returned or yielded is emitted."""
        return None


class KeyedProcess(_Keyed[K_contra, U_co], Generic[K_contra, T_contra, U_co]):
    """A function over the records of one key, with state and timers.

    To annotate: `KeyedProcess[key, record, result]`.

    State is declared as class attributes (`total = ValueState(default=0)`) and always that of the
    current key. Timers that are still pending when all input has ended fire at the end, in order. What
    these set in event time fires, too; what is set after that, or in processing time, does not.
    """

    @abstractmethod
    def process(self, record: T_contra, ctx: KeyedContext[K_contra]) -> Iterable[U_co] | None:
        """Handle one record; what is returned or yielded is emitted."""


class KeyedCoProcess(_Keyed[K_contra, U_co], Generic[K_contra, L_contra, R_contra, U_co]):
    """As KeyedProcess, over two streams keyed alike: they share state and timers.

    To annotate: `KeyedCoProcess[key, left, right, result]`.
    """

    @abstractmethod
    def process_left(self, record: L_contra, ctx: KeyedContext[K_contra]) -> Iterable[U_co] | None:
        """Handle one record of the stream that `connect` was called on; what is returned is emitted."""

    @abstractmethod
    def process_right(self, record: R_contra, ctx: KeyedContext[K_contra]) -> Iterable[U_co] | None:
        """Handle one record of the stream that `connect` was given; what is returned is emitted."""


class BroadcastProcess(_Keyed[K_contra, U_co], Generic[K_contra, L_contra, R_contra, U_co]):
    """As KeyedProcess, and each subtask sees all records of a broadcast stream as well.

    To annotate: `BroadcastProcess[key, record, broadcast record, result]`.

    What these say is kept in `BroadcastState`, declared as a class attribute (`rules = BroadcastState()`).
    Subtasks see the broadcast records of one sender in one order, those of several in any: what is made
    of them must not depend on it, unless the stream has parallelism 1.
    """

    @abstractmethod
    def process(self, record: L_contra, ctx: KeyedContext[K_contra]) -> Iterable[U_co] | None:
        """Handle one record of the keyed stream, with state of its key; broadcast state is read-only."""

    @abstractmethod
    def process_broadcast(self, record: R_contra, ctx: ProcessContext) -> Iterable[U_co] | None:
        """Handle one broadcast record, in each subtask: broadcast state can be written, there is no key.

        What is returned or yielded is emitted by every subtask.
        """


class AsyncFunction(ABC, Generic[T_contra, U_co]):
    """What `map_async` calls for each record, where it needs a client that is opened and closed.

    One object serves all requests of a subtask, in one event loop: so it may hold an `httpx.AsyncClient`.
    A plain `async def` function will do where there is nothing to open.
    """

    async def open(self) -> None:
        """Awaited once in the event loop, before the first request."""

    async def close(self) -> None:
        """Awaited once when the subtask ends in an orderly way; no request is under way any more."""

    @abstractmethod
    async def __call__(self, record: T_contra) -> U_co:
        """The answer for a record. May be cancelled when it takes longer than the timeout."""


_SPREAD = 0.6180339887
"""The golden ratio: multiples of it are spread evenly over the remainders of 1."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When a request that failed is sent again, at most `attempts` times, and what after.

    Only for errors of the classes in `on`. The timeout of `map_async` counts from the first attempt. The
    delay before attempt n is `initial_s * multiplier ** (n - 1)`, at most `max_s`; each request waits for
    half to all of it, so that those which failed together do not come again together.
    """

    attempts: int
    initial_s: float
    multiplier: float
    max_s: float
    on: tuple[type[Exception], ...]

    @classmethod
    def fixed_delay(
        cls,
        attempts: int = 3,
        delay: Duration = "1s",
        *,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> Retry:
        """The same delay before each attempt."""
        delay_s = seconds(delay, "delay")
        return cls(positive("attempts", attempts), delay_s, 1.0, delay_s, _errors(on))

    @classmethod
    def exponential_delay(
        cls,
        attempts: int = 3,
        initial: Duration = "100ms",
        max: Duration = "10s",
        multiplier: float = 2.0,
        *,
        on: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> Retry:
        """Delays grow from `initial` to `max` by `multiplier` from attempt to attempt."""
        first, most = seconds(initial, "initial"), seconds(max, "max")
        if first == 0:
            raise ConfigurationError(f"initial must be positive, got {initial!r}")
        if most < first:
            raise ConfigurationError(f"max must be at least initial: {max!r} is below {initial!r}")
        is_number = isinstance(multiplier, int | float) and not isinstance(multiplier, bool)
        if not is_number or not 1 <= multiplier < float("inf"):
            raise ConfigurationError(
                f"multiplier must be a finite number of at least 1, got {multiplier!r}"
            )
        return cls(positive("attempts", attempts), first, float(multiplier), most, _errors(on))

    def again(self, failed: int, error: BaseException) -> bool:
        """Whether a request is sent again that has failed so many times, now with `error`."""
        return failed <= self.attempts and isinstance(error, self.on)

    def delay_s(self, failed: int, number: int) -> float:
        """How long request `number` waits after its failure number `failed`, in seconds."""
        try:
            longest = min(self.max_s, self.initial_s * self.multiplier ** (failed - 1))
        except OverflowError:
            longest = self.max_s
        return longest * (1.0 - 0.5 * (number * _SPREAD % 1.0))


def _errors(on: Any) -> tuple[type[Exception], ...]:
    kinds = on if isinstance(on, tuple) else (on,)
    if not kinds or not all(
        isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds
    ):
        raise ConfigurationError(f"on is a class of exceptions or a tuple of them, not {on!r}")
    return kinds


class WindowContext(ProcessContext, Protocol[K_co]):
    """As ProcessContext, with the window whose records are handled.

    Its `timestamp` is the last millisecond of the window, or where windows have no bounds the time of
    their newest record.
    """

    @property
    def key(self) -> K_co:
        """The key of the window; None without keys."""

    @property
    def start(self) -> int | None:
        """When the window begins, in milliseconds; None for windows that are no stretch of time."""

    @property
    def end(self) -> int | None:
        """When the next window may begin, in milliseconds."""

    @property
    def pane(self) -> WindowPane:
        """Which result of the window this is; "retracted" in `retract`."""


class WindowProcess(ABC, Generic[K_contra, T, U_co]):
    """A function over all records of a window, with state for each window.

    To annotate: `WindowProcess[key, record, result]`.

    State is declared as class attributes (`shown = ValueState()`). It is for windows that give several
    results, early or late ones, and is gone with its window.
    """

    def open(self) -> None:
        """Called once in the worker, after state is restored and before the first window."""

    def close(self) -> None:
        """Called once when the subtask ends in an orderly way."""

    @abstractmethod
    def process(self, records: list[T], ctx: WindowContext[K_contra]) -> Iterable[U_co] | None:
        """Handle the records of a window, or the one value that `reduce` has made of them."""

    def retract(self, ctx: WindowContext[K_contra]) -> Iterable[U_co] | None:
        """A session whose result was given out is part of a larger one: what says so is emitted."""
        return None

    def merge(self, other: Mapping[str, Any], ctx: WindowContext[K_contra]) -> None:
        """Take in the state of another session that is part of this one now, by the names of states."""
