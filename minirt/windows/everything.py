"""One window of all records of a key, and the triggers that say when it gives out its result."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.errors import ConfigurationError
from minirt.units import Duration, positive
from minirt.windows.base import Clock, Window, duration_ms


@dataclass(frozen=True, slots=True, init=False)
class AfterCount:
    """A result after every `count` records of a key."""

    count: int

    def __init__(self, count: int) -> None:
        """Raises ConfigurationError."""
        object.__setattr__(self, "count", positive("the count of a trigger", count))


@dataclass(frozen=True, slots=True, init=False)
class AfterTime:
    """Results of the keys that have changed, whenever `interval` has passed by a clock.

    By that of event time, whenever the watermark passes a multiple of the interval.
    """

    interval_ms: int
    clock: Clock

    def __init__(self, interval: Duration, *, clock: Clock = "event") -> None:
        """Raises ConfigurationError."""
        if clock not in ("event", "processing"):
            raise ConfigurationError(
                f"the clock of a trigger is 'event' or 'processing', not {clock!r}"
            )
        object.__setattr__(self, "interval_ms", duration_ms(interval, "the interval of a trigger"))
        object.__setattr__(self, "clock", clock)


Trigger = AfterCount | AfterTime


@dataclass(frozen=True, slots=True, init=False)
class GlobalWindow(Window):
    """All records of a key. The trigger says when its result is given out.

    With `purge`, records count for one result only: the key begins anew after it, and takes no memory until
    then. At the end of input a trigger of time gives out what has changed since.
    """

    trigger: Trigger
    purge: bool

    def __init__(self, trigger: Trigger, *, purge: bool = False) -> None:
        """Raises ConfigurationError."""
        if not isinstance(trigger, AfterCount | AfterTime):
            raise ConfigurationError(
                f"a global window never ends: give it a trigger, AfterCount or AfterTime, not {trigger!r}"
            )
        if not isinstance(purge, bool):
            raise ConfigurationError(f"purge is True or False, not {purge!r}")
        object.__setattr__(self, "trigger", trigger)
        object.__setattr__(self, "purge", purge)

    @property
    def allowed_lateness_ms(self) -> int:  # type: ignore[override]
        return 0

    @property
    def shape(self) -> str:
        return "all records"

    @property
    def words(self) -> str:
        match self.trigger:
            case AfterCount(count=count):
                when = f"every {count} records"
            case AfterTime(interval_ms=interval, clock=clock):
                when = f"every {interval / 1000:g} s of {clock} time"
        return f"{self.shape}, results {when}{', then anew' if self.purge else ''}"

    @property
    def in_event_time(self) -> bool:
        return isinstance(self.trigger, AfterTime) and self.trigger.clock == "event"

    @property
    def bounds(self) -> tuple[str, ...]:
        return ()

    @property
    def has_early_results(self) -> bool:
        return False
