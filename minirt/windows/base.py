"""What every kind of window says of itself: a value that a job carries, without any state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from minirt.errors import ConfigurationError
from minirt.units import Duration, milliseconds, seconds

Clock = Literal["event", "processing"]


class Window(ABC):
    """Which records count together. Subclasses are frozen dataclasses; `allowed_lateness_ms` is a field."""

    allowed_lateness_ms: int

    @property
    @abstractmethod
    def shape(self) -> str:
        """Which records count together, exactly and in words: state of one shape is nothing to another."""

    @property
    def words(self) -> str:
        """What the plan says of it."""
        return self.shape

    @property
    def in_event_time(self) -> bool:
        """Whether its results wait for watermarks."""
        return True

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of its results that tell the window, as times."""
        return (WINDOW_START, WINDOW_END)

    @property
    def has_early_results(self) -> bool:
        """Whether results may be given out before it is over."""
        return True

    @property
    def takes_results_back(self) -> bool:
        """Whether a window whose result was given out may become another one."""
        return False


def shown_s(milliseconds: int) -> str:
    """Exactly, in seconds."""
    return f"{milliseconds / 1000:.15g} s"


WINDOW_START, WINDOW_END = "window_start", "window_end"
"""The columns for the bounds of a window in its results; the end is the start of the next window."""


@dataclass(frozen=True, slots=True)
class Emission:
    """When results are given out besides the time when a window is over."""

    when: Literal["end", "updates", "interval"]
    interval_s: float = 0.0
    clock: Clock = "processing"

    @classmethod
    def parse(cls, emit: Literal["end", "updates"] | Duration, clock: Clock) -> Emission:
        """As users write it. Raises ConfigurationError."""
        if clock not in ("event", "processing"):
            raise ConfigurationError(f"clock is 'event' or 'processing', not {clock!r}")
        if emit in ("end", "updates"):
            if clock != "processing":
                raise ConfigurationError(
                    f"clock={clock!r} has no effect with emit={emit!r}: it is for an interval"
                )
            return cls("end" if emit == "end" else "updates")
        interval = seconds(emit, 'emit, which is "end", "updates" or a duration,')
        if interval < 0.001:
            raise ConfigurationError(f"emit: an interval must be at least 1ms, got {emit!r}")
        return cls("interval", interval, clock)

    @property
    def early(self) -> bool:
        return self.when != "end"

    @property
    def interval_ms(self) -> int:
        return round(self.interval_s * 1000)


AT_THE_END = Emission("end")


def duration_ms(value: Duration, what: str) -> int:
    """A duration of 1 ms to 100,000 days. Raises ConfigurationError."""
    found = milliseconds(value, what)
    if found < 1:
        raise ConfigurationError(f"{what} must be at least 1ms, got {value!r}")
    return found


def lateness_ms(value: Duration) -> int:
    """Raises ConfigurationError."""
    return milliseconds(value, "allowed_lateness")
