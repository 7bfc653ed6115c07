"""Datetimes as keys: told apart by what they stand for, where Python's equality does not.

When clocks go back, an hour comes twice. `fold` says which pass is meant, but Python's equality ignores it
within a zone, and takes no time of another zone for equal to such a time. When clocks go forward, an hour
does not exist: times in it stand for others. And Python's datetimes end at microseconds, which columns do
not.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Self, SupportsIndex


class ByInstant(dt.datetime):
    """A time in an hour that comes twice: equal to every time of a zone that is the same instant."""

    def __hash__(self) -> int:
        return hash(_in_utc(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dt.datetime) and other.tzinfo is not None:
            return _in_utc(self) == _in_utc(other)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    @classmethod
    def of(cls, time: dt.datetime) -> Self:
        return cls(*_fields(time), time.tzinfo, fold=time.fold)


class Nanoseconds(dt.datetime):
    """A time between two microseconds, as columns have them: `nanosecond` counts from 1 to 999.

    It equals only itself, and no datetime, whose nanoseconds are 0.
    """

    nanosecond: int

    def __hash__(self) -> int:
        return hash((_comparable(self), self.nanosecond))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nanoseconds):
            return False
        return (_comparable(self), self.nanosecond) == (_comparable(other), other.nanosecond)

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __repr__(self) -> str:
        return f"Nanoseconds.of({plain_datetime(self)!r}, {self.nanosecond})"

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """As that of datetime, with nine digits behind the second unless `timespec` asks for fewer."""
        if timespec != "auto":
            return super().isoformat(sep, timespec)
        text = super().isoformat(sep, "microseconds")
        end = text.index(".") + 7
        return f"{text[:end]}{self.nanosecond:03}{text[end:]}"

    def __str__(self) -> str:
        return self.isoformat(" ")

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Nanoseconds.of, (plain_datetime(self), self.nanosecond)

    @classmethod
    def of(cls, time: dt.datetime, nanosecond: int) -> Self:
        """The time so many nanoseconds after one of whole microseconds."""
        made = cls(*_fields(time), time.tzinfo, fold=time.fold)
        made.nanosecond = nanosecond
        return made


def told_apart(time: dt.datetime) -> dt.datetime:
    """The same time in a form that equals only times that stand for the same."""
    if not depends_on_fold(time):
        return time
    if _does_not_exist(time):
        return time.astimezone(dt.UTC).astimezone(time.tzinfo)
    return ByInstant.of(time)


def depends_on_fold(time: dt.datetime) -> bool:
    """Whether the clock shows this time twice, or never."""
    zone = time.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return False
    return time.utcoffset() != time.replace(fold=1 - time.fold).utcoffset()


def plain_datetime(time: dt.datetime) -> dt.datetime:
    """The same time as a plain datetime: subclasses, such as that of pandas, have their own arithmetic."""
    return dt.datetime(*_fields(time), time.tzinfo, fold=time.fold)


def _fields(time: dt.datetime) -> tuple[int, int, int, int, int, int, int]:
    date, clock = (time.year, time.month, time.day), (time.hour, time.minute, time.second)
    return *date, *clock, time.microsecond


def _comparable(time: dt.datetime) -> dt.datetime:
    """What Python compares rightly: an instant where the time has a zone."""
    time = plain_datetime(time)
    return time if time.tzinfo is None else _in_utc(time)


def _in_utc(time: dt.datetime) -> dt.datetime:
    """Raises no OverflowError: at the ends of time a zone stays, and no zone there changes its clocks."""
    time = plain_datetime(time)
    try:
        return time.astimezone(dt.UTC)
    except OverflowError:
        return time


def _does_not_exist(time: dt.datetime) -> bool:
    before, after = (time.replace(fold=fold).utcoffset() for fold in (0, 1))
    return before is not None and after is not None and before < after
