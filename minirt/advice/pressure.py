"""Backpressure in the load of a job: which operator causes it, whom it holds back, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import mean

from minirt.monitoring.load import LoadEntry, OperatorLoad
from minirt.pictures.words import duration

PRESSURED_MS = 200
"""An operator that waits longer than this for room, in milliseconds of a second, has backpressure."""
NEWEST = 6
"""How many of the newest entries say what is true now."""
LASTING_PART = 0.8
"""Backpressure in this part of all entries lasts; in fewer, it comes and goes."""
BUSY_MS = 700
"""A subtask that is busy for longer than this is at its limit."""
UNEVEN = 0.6
"""With an average below this part of the busiest subtask, the work is not spread evenly."""
STUCK_MS = 50
"""An operator that is stuck within records for longer than this has records that emit too much."""
SKEWED = 1.5
"""A subtask with this many times its even share of the records has more than others."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """Backpressure now. `waiting` are the operators held back, in the order of the job's graph."""

    bottleneck: OperatorLoad
    """The first one behind them that is not held back itself; figures are means of the newest entries, but
    for the share of its busiest subtask, which is that of all entries since the backpressure began."""
    waiting: tuple[OperatorLoad, ...]
    since: float
    """The date from which on there was no entry without, in seconds since 1970."""
    lasting: bool
    evidence: tuple[str, ...]

    @property
    def uneven(self) -> bool:
        """Whether one subtask of the bottleneck works far more than the average."""
        at = self.bottleneck
        busiest = at.busiest_ms >= BUSY_MS
        return at.parallelism > 1 and busiest and at.busy_ms <= UNEVEN * at.busiest_ms

    @property
    def skewed(self) -> bool:
        """Whether that is because it gets more records."""
        at = self.bottleneck
        return self.uneven and at.busiest_share >= SKEWED / at.parallelism

    @property
    def stuck(self) -> bool:
        """Whether single records emit more than there is room for."""
        return any(one.hard_ms > STUCK_MS for one in (self.bottleneck, *self.waiting))

    @property
    def one_slow(self) -> bool:
        """Whether it is not."""
        return self.uneven and not self.skewed


def pressure(load: Sequence[LoadEntry]) -> Pressure | None:
    """What holds the job back at its end; None if nothing does, or nothing is known."""
    newest = load[-NEWEST:]
    if not newest:
        return None
    now = {one.operator: _mean(newest, one.operator) for one in newest[-1].operators}
    waiting = [one for one in now.values() if one.backpressured_ms > PRESSURED_MS]
    if not waiting:
        return None
    pressured = [
        any(one.backpressured_ms > PRESSURED_MS for one in entry.operators) for entry in load
    ]
    run = next((i for i, held in enumerate(reversed(pressured)) if not held), len(load))
    since = load[-max(1, run)].at
    bottleneck = _behind(waiting[-1], now)
    share = _busiest_share(load[-max(run, NEWEST) :], bottleneck.operator)
    bottleneck = replace(bottleneck, busiest_share=share)
    part = sum(pressured) / len(pressured)
    first = waiting[-1]
    evidence = (
        f"{first.name} waits {first.backpressured_ms:.0f} ms of each second for room, "
        f"{bottleneck.name} is busy for {bottleneck.busy_ms:.0f} ms (its busiest subtask for "
        f"{bottleneck.busiest_ms:.0f} ms)",
        f"since {_date(since)}, for at least {duration(load[-1].at - since)}; in {part:.0%} of "
        f"{len(load)} figures",
    )
    return Pressure(bottleneck, tuple(waiting), since, part >= LASTING_PART, evidence)


def _behind(last: OperatorLoad, now: Mapping[str, OperatorLoad]) -> OperatorLoad:
    """Of the operators that read from it the busiest one; itself if nobody is known to."""
    readers = [one for one in now.values() if last.operator in one.inputs]
    return max(readers, key=lambda one: one.busiest_ms, default=last)


def _mean(entries: Sequence[LoadEntry], operator: str) -> OperatorLoad:
    found = _of(entries, operator)
    means = {name: mean(getattr(one, name) for one in found) for name in _MEANS}
    return replace(found[-1], **means, queued_bytes=max(one.queued_bytes for one in found))


def _busiest_share(entries: Sequence[LoadEntry], operator: str) -> float:
    """How many of the records its busiest subtask takes.

    Of all entries with backpressure: a slow subtask may be the only one that takes records in some of
    them, while the others wait for their next frame. An entry with few records tells little.
    """
    found = _of(entries, operator)
    taken = sum(one.records_in for one in found)
    return sum(one.busiest_share * one.records_in for one in found) / taken if taken else 0.0


def _of(entries: Sequence[LoadEntry], operator: str) -> list[OperatorLoad]:
    return [one for entry in entries for one in entry.operators if one.operator == operator]


_MEANS = ("busy_ms", "soft_ms", "hard_ms", "busiest_ms", "records_in", "bytes_in")


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
