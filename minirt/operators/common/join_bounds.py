"""Which times the partners of a record have: what tells one join from another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
LEFT, RIGHT = 0, 1


class JoinBounds(ABC):
    """The stretch of time in which a record has its partners.

    A record of one side must be a partner of one of the other if that is one of it. Once the watermark has
    passed the end of the stretch, nothing waits for more.
    """

    @abstractmethod
    def partners(self, side: int, times: Times) -> tuple[Times, Times]:
        """For records of a side, the first and the last time of their partners."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What the plan says."""


@dataclass(frozen=True, slots=True)
class Within(JoinBounds):
    """A record of the right is at least `first_ms` and at most `last_ms` newer than its partner."""

    first_ms: int
    last_ms: int

    def partners(self, side: int, times: Times) -> tuple[Times, Times]:
        if side == LEFT:
            return times + self.first_ms, times + self.last_ms
        return times - self.last_ms, times - self.first_ms

    @property
    def text(self) -> str:
        return f"{self.first_ms / 1000:.15g} s to {self.last_ms / 1000:.15g} s later"


@dataclass(frozen=True, slots=True)
class SameWindow(JoinBounds):
    """Both are in one window of fixed length."""

    size_ms: int
    offset_ms: int

    def partners(self, side: int, times: Times) -> tuple[Times, Times]:
        starts = times - (times - self.offset_ms) % self.size_ms
        return starts, starts + (self.size_ms - 1)

    @property
    def text(self) -> str:
        begins = f" from {self.offset_ms / 1000:.15g} s on" if self.offset_ms else ""
        return f"in the same window of {self.size_ms / 1000:.15g} s{begins}"


FIRST_TIME, LAST_TIME = -(1 << 61), 1 << 61
"""All event times lie between these, and no difference of two of them is too large for 64 bits."""


@dataclass(frozen=True, slots=True)
class Lasting(JoinBounds):
    """Whatever the event time of both: a record is kept for so long, by the clock, after it has come."""

    ttl_ms: int

    def partners(self, side: int, times: Times) -> tuple[Times, Times]:
        return np.full(len(times), FIRST_TIME), np.full(len(times), LAST_TIME)

    @property
    def text(self) -> str:
        return f"kept for {self.ttl_ms / 1000:.15g} s"
