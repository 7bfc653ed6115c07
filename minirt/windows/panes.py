"""Windows of equal size, `Tumbling` and `Sliding`: event time is cut into panes, and a window is several of
them.

Panes are numbered. The size of a pane is the greatest common divisor of the size of windows and of the time
from one to the next, so each record lies in one pane, however many windows share it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from minirt.errors import ConfigurationError
from minirt.units import Duration, milliseconds
from minirt.windows.base import Window, duration_ms, lateness_ms, shown_s

Times = npt.NDArray[np.int64]

DAY_MS = 86_400_000
_PANES_MAX = 100_000
_CACHED_DAYS = 65_536
_EPOCH = dt.datetime(1970, 1, 1)
_UTC_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class PanedWindow(Window):
    """Window `w` is the panes from `w * step` on, `panes` of them."""

    size_ms: int
    every_ms: int
    offset_ms: int
    timezone: str | None

    @property
    def pane_ms(self) -> int:
        return gcd(self.size_ms, self.every_ms)

    @property
    def panes(self) -> int:
        """How many panes a window has."""
        return self.size_ms // self.pane_ms

    @property
    def step(self) -> int:
        """How many panes there are from the start of a window to that of the next."""
        return self.every_ms // self.pane_ms

    def panes_of(self, times: Times) -> Times:
        """The number of the pane in which each time lies."""
        numbers: Times = (times - self.offset_ms) // self.pane_ms
        if self.timezone is None or not len(times):
            return numbers
        # Local time is less than a day from UTC.
        near = np.unique(numbers)
        known = np.unique(np.concatenate([near + apart for apart in (-1, 0, 1, 2)]))
        starts = np.array([self.start_of(number) for number in known.tolist()], np.int64)
        return known[np.searchsorted(starts, times, side="right") - 1]

    def start_of(self, pane: int) -> int:
        """When a pane begins, which is when the one before it ends."""
        local = pane * self.pane_ms + self.offset_ms
        return local if self.timezone is None else _instant(self.timezone, local)

    def end_of(self, window: int) -> int:
        return self.start_of(window * self.step + self.panes)

    def first_window(self, pane: int) -> int:
        """The first of the windows that share a pane."""
        return -((self.panes - 1 - pane) // self.step)

    def last_window(self, pane: int) -> int:
        return pane // self.step

    @property
    def shape(self) -> str:
        slide = "" if self.every_ms == self.size_ms else f" every {shown_s(self.every_ms)}"
        offset = f" from {shown_s(self.offset_ms)} on" if self.offset_ms else ""
        zone = f" in {self.timezone}" if self.timezone else ""
        return f"windows of {shown_s(self.size_ms)}{slide}{offset}{zone}"

    @property
    def words(self) -> str:
        return f"{self.shape}, open for another {shown_s(self.allowed_lateness_ms)}"


@dataclass(frozen=True, slots=True, init=False)
class Tumbling(PanedWindow):
    """Windows of equal size that follow each other without gap or overlap.

    They begin at multiples of `size` since 1970 UTC, shifted by `offset`, which is less than `size`. A
    window's results are given out when the watermark reaches its end. Records that come up to
    `allowed_lateness` after that still count: then results are given out once more.

    With a `timezone`, such as "Europe/Berlin", windows are of whole days as people there count them: they
    begin at midnight by the clocks there, and a day has 23 or 25 hours when these are changed.
    """

    size_ms: int
    offset_ms: int
    allowed_lateness_ms: int
    timezone: str | None

    def __init__(
        self,
        size: Duration,
        *,
        offset: Duration = 0,
        allowed_lateness: Duration = 0,
        timezone: str | None = None,
    ) -> None:
        """Raises ConfigurationError."""
        size_ms = duration_ms(size, "the size of a window")
        offset_ms = milliseconds(offset, "the offset of windows")
        if offset_ms >= size_ms:
            raise ConfigurationError(
                f"the offset of windows must be less than their size, got {offset!r} and {size!r}"
            )
        _check_zone(timezone, size_ms)
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "offset_ms", offset_ms)
        object.__setattr__(self, "allowed_lateness_ms", lateness_ms(allowed_lateness))
        object.__setattr__(self, "timezone", timezone)

    @property
    def every_ms(self) -> int:  # type: ignore[override]
        return self.size_ms

    @property
    def pane_ms(self) -> int:
        return self.size_ms


@dataclass(frozen=True, slots=True, init=False)
class Sliding(PanedWindow):
    """Windows of equal size that overlap: a new one begins `every` so often.

    As `Tumbling` otherwise. A record lies in `size / every` windows, but is added up once: windows share
    panes. `every` is at most `size`, as records between windows would count nowhere.
    """

    size_ms: int
    every_ms: int
    offset_ms: int
    allowed_lateness_ms: int
    timezone: str | None

    def __init__(
        self,
        size: Duration,
        every: Duration,
        *,
        offset: Duration = 0,
        allowed_lateness: Duration = 0,
        timezone: str | None = None,
    ) -> None:
        """Raises ConfigurationError."""
        size_ms = duration_ms(size, "the size of a window")
        every_ms = duration_ms(every, "the time from a window to the next, every,")
        offset_ms = milliseconds(offset, "the offset of windows")
        if every_ms > size_ms:
            raise ConfigurationError(
                f"every must be at most the size of a window, got {every!r} and {size!r}: records between "
                "windows would count nowhere; filter them out first if that is what you want"
            )
        if offset_ms >= every_ms:
            raise ConfigurationError(
                f"the offset of windows must be less than every, got {offset!r} and {every!r}"
            )
        if size_ms // gcd(size_ms, every_ms) > _PANES_MAX:
            raise ConfigurationError(
                f"windows of {size!r} every {every!r} have no common part above "
                f"{gcd(size_ms, every_ms)} ms: at most {_PANES_MAX} parts make a window; choose sizes of "
                "which one divides the other"
            )
        _check_zone(timezone, size_ms, every_ms)
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "every_ms", every_ms)
        object.__setattr__(self, "offset_ms", offset_ms)
        object.__setattr__(self, "allowed_lateness_ms", lateness_ms(allowed_lateness))
        object.__setattr__(self, "timezone", timezone)


def _check_zone(timezone: str | None, *sizes: int) -> None:
    if timezone is None:
        return
    try:
        ZoneInfo(timezone)
    except (KeyError, OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"there is no time zone {timezone!r} among those of this machine"
        ) from error
    if any(size % DAY_MS for size in sizes):
        raise ConfigurationError(
            f"windows in a time zone ({timezone}) are of whole days, such as '1d'; hours are as long "
            "everywhere: leave the zone out, and use offset where it is half an hour apart"
        )


@lru_cache(maxsize=_CACHED_DAYS)
def _instant(timezone: str, local_ms: int) -> int:
    """When clocks of the zone first show a time; where they skip it, when they do."""
    zone = ZoneInfo(timezone)
    try:
        local = (_EPOCH + dt.timedelta(milliseconds=local_ms)).replace(tzinfo=zone)
        before, after = (_milliseconds(local.replace(fold=fold)) for fold in (0, 1))
    except OverflowError:  # Beyond the years 1 to 9999 there are no clocks.
        return local_ms
    if before <= after:
        return before
    # By the offset that was, the time is one after the skip; by the one that is, one before it.
    earlier, later = after, before
    offset = _at(later, zone).utcoffset()
    while later - earlier > 1:
        middle = (earlier + later) // 2
        if _at(middle, zone).utcoffset() == offset:
            later = middle
        else:
            earlier = middle
    return later


def _milliseconds(time: dt.datetime) -> int:
    return (time - _UTC_EPOCH) // dt.timedelta(milliseconds=1)


def _at(instant_ms: int, zone: ZoneInfo) -> dt.datetime:
    return (_UTC_EPOCH + dt.timedelta(milliseconds=instant_ms)).astimezone(zone)
