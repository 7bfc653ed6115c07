"""Tells datetimes apart by their instant, in zones that change their clocks.

When clocks go back, an hour comes twice. `fold` says which pass is meant, but Python's equality ignores it.
When they go forward, an hour does not exist: times in it stand for others.
"""

from __future__ import annotations

import datetime as dt


class SecondPass(dt.datetime):
    """A time in the second pass of an hour that comes twice: not equal to that of the first one."""

    __hash__ = dt.datetime.__hash__

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True and isinstance(other, dt.datetime):
            return self.utcoffset() == other.utcoffset()
        return equal

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    @classmethod
    def of(cls, time: dt.datetime) -> SecondPass:
        date, clock = (time.year, time.month, time.day), (time.hour, time.minute, time.second)
        return cls(*date, *clock, time.microsecond, time.tzinfo, fold=1)


def told_apart(time: dt.datetime) -> dt.datetime:
    """The same time in a form that equals only times of its zone with the same instant."""
    if not depends_on_fold(time):
        return time
    if _does_not_exist(time):
        return time.astimezone(dt.UTC).astimezone(time.tzinfo)
    return SecondPass.of(time) if time.fold else time


def depends_on_fold(time: dt.datetime) -> bool:
    """Whether the clock shows this time twice, or never."""
    zone = time.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return False
    return time.utcoffset() != time.replace(fold=1 - time.fold).utcoffset()


def first_pass(time: dt.datetime) -> dt.datetime:
    """The same time, but that of the first pass if the clock shows it twice."""
    return time.replace(fold=0) if time.fold and not _does_not_exist(time) else time


def _does_not_exist(time: dt.datetime) -> bool:
    before, after = (time.replace(fold=fold).utcoffset() for fold in (0, 1))
    return before is not None and after is not None and before < after
