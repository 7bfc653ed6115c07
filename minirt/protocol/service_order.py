"""The service order of a subtask: in which order it took what its channels brought, and what came of it.

Theory of operation. Between two events that could have gone otherwise, a subtask whose functions are
deterministic can do one thing only: it is *piecewise deterministic*. What could have gone otherwise is
which channel was served next, how many of its records were processed at a time, and where among the
records event time advanced, as that depends on the order of control frames of different channels. These
are its *determinants*. A subtask that comes back and goes by them does again what it did.

Each determinant is logged before what it leads to, so nobody sees anything whose determinants are lost:
there are no orphans, whenever the subtask is killed. What was logged and not done does no harm: nobody has
seen it, so it may be done in this order as in any other.

Where operators go by the clock, it is a determinant as well: when an operator did what was due, and what
the clock showed whenever it was asked. It is asked once for all that is done in one piece.

Event time is logged by its outcome, not by the frames that led to it. Control frames have no numbers: some
come once more to a subtask that comes back, and others do not. Records have, so a place in the input is a
number of records of each channel.

The log is cut into *segments*, one for each local snapshot. A segment begins with how far event time was
there, and ends with the number of the next one: so nobody takes a part of the log for the whole.

Source: pessimistic logging of determinants, and that there are no orphans then, in E. N. Elnozahy,
L. Alvisi, Y.-M. Wang and D. B. Johnson, "A Survey of Rollback-Recovery Protocols in Message-Passing
Systems", 2002.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """The next so many records of a channel were processed in one piece."""

    channel: int
    records: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Event time advanced to `watermark`, or the input became idle or active; None: as it was."""

    watermark: int | None
    idle: bool | None = None


@dataclass(frozen=True, slots=True)
class InputOver:
    """All channels had ended, and the subtask ended event time."""


@dataclass(frozen=True, slots=True)
class Read:
    """The clock showed so many milliseconds since 1970, while what is logged before was done."""

    ms: int


@dataclass(frozen=True, slots=True)
class Fired:
    """The operator at this place of the vertex did what was due, when the clock showed `ms`."""

    place: int
    ms: int


Done = Passed | InputOver | Read | Fired
"""What may be under way where a snapshot is taken, or has been done by then once and for all."""
Determinant = Served | Done


@dataclass(frozen=True, slots=True)
class Segment:
    """What was logged behind one local snapshot and ahead of the next.

    `state` is what the input had given out by the snapshot: how far event time was, whether it was over,
    and what the clock had to do with what was under way. `next` is the number of the next snapshot, None
    if the segment was the last one.
    """

    state: tuple[Done, ...]
    determinants: tuple[Determinant, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class OrderSince:
    """What a subtask does again behind a snapshot, in order; `last` is the segment that it goes on with."""

    determinants: tuple[Determinant, ...]
    last: int


def order_since(number: int, segments: Mapping[int, Segment]) -> OrderSince | None:
    """What was done behind the snapshot of this number, by segment; None if not all of that is known."""
    segment = segments.get(number)
    if segment is None:
        return None
    found: list[Determinant] = [*segment.state, *segment.determinants]
    while segment.next is not None:
        number = segment.next
        segment = segments.get(number)
        if segment is None:
            return None
        found += segment.determinants
    return OrderSince(tuple(found), number)
