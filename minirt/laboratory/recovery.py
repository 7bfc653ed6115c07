"""What each kill cost, from what sinks have noted. Pure: times in, durations out.

A generation begins with the records that the sinks had at the checkpoint it was restored from. How many
records lie between that and the kill is how many come once more, as a job gives out as many records for
the same input again; in mode `at_least_once` it is an estimate. Times are those of the notes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from minirt.laboratory.measured import KillMeasured
from minirt.laboratory.notes import Track
from minirt.protocol.families import local_id

BEFORE_S = 5.0
"""The rate before a kill is that of at most this long."""
WINDOW_S = 1.0
"""A rate is measured over this long."""
ENOUGH = 0.9
"""A rate has been reached again at this share of it: rates vary by themselves."""
_STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class Strike:
    """A SIGKILL to a worker, in a generation."""

    at: float
    generation: int
    subtasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """How many records the sinks have got in a generation, until each moment."""

    base: int
    """What they had at the checkpoint that the generation was restored from."""
    at: Sequence[float] = field(default_factory=list)
    records: Sequence[int] = field(default_factory=list)
    """`base`, and what came until then."""

    @property
    def total(self) -> int:
        return self.records[-1] if self.records else self.base

    def until(self, at: float) -> int:
        place = bisect_right(self.at, at)
        return self.records[place - 1] if place else self.base

    def beyond(self, records: int) -> float | None:
        """When there were more than so many."""
        place = bisect_right(self.records, records)
        return self.at[place] if place < len(self.at) else None


@dataclass(frozen=True, slots=True)
class Line:
    """A checkpoint that is made of local snapshots: their numbers, by vertex and subtask."""

    checkpoint_id: int
    generation: int
    numbers: Mapping[tuple[int, int], int]


def on_lines(
    tracks: Sequence[Track], lines: Iterable[Line], vertices: Sequence[int]
) -> list[Track]:
    """The notes of sinks, with the checkpoints that their local snapshots belong to.

    Sinks note the ids of local snapshots. `vertices` has the vertex of each sink, in their order.
    """
    by_local: dict[tuple[int, int, int], list[int]] = {}
    for line in lines:
        for (vertex, subtask), number in line.numbers.items():
            place = (vertex, subtask, local_id(line.generation, number))
            by_local.setdefault(place, []).append(line.checkpoint_id)
    found = []
    for track in tracks:
        sink, subtask = (int(part) for part in track.who.split("-")[-2:])
        notes = []
        for note in track.notes:
            place = (vertices[sink], subtask, note.checkpoint or 0)
            notes.append(note)
            notes += [replace(note, latencies={}, checkpoint=id) for id in by_local.get(place, ())]
        found.append(replace(track, notes=tuple(notes)))
    return found


def curves(tracks: Sequence[Track], restored: Mapping[int, int | None]) -> dict[int, Curve]:
    """The curve of each generation; `restored` says from which checkpoint it was, if from any."""
    found: dict[int, Curve] = {}
    held: dict[int, int] = {}
    for generation in sorted(restored):
        own = [track for track in tracks if track.generation == generation]
        checkpoint = restored[generation]
        base = 0 if checkpoint is None else held.get(checkpoint, 0)
        found[generation] = _curve(base, own)
        marks: dict[int, int] = {}
        for track in own:
            for note in track.notes:
                if note.checkpoint is not None:
                    marks[note.checkpoint] = marks.get(note.checkpoint, 0) + note.records
        held.update({id: base + records for id, records in marks.items()})
    return found


def _curve(base: int, tracks: Sequence[Track]) -> Curve:
    steps = []
    for track in tracks:
        before = 0
        for note in track.notes:
            if note.records > before:
                steps.append((note.at, note.records - before))
                before = note.records
    at, records, total = [], [], base
    for when, more in sorted(steps):
        total += more
        at.append(when)
        records.append(total)
    return Curve(base, at, records)


def measure_kills(
    strikes: Sequence[Strike],
    tracks: Sequence[Track],
    restored: Mapping[int, int | None],
    began: float,
    first_snapshots: Mapping[int, float] | None = None,
) -> tuple[KillMeasured, ...]:
    """What each strike cost. `began` is when measuring began: times count from there.

    `first_snapshots` says of checkpoints when the first snapshot in each was taken.
    """
    by_generation = curves(tracks, restored)
    found = []
    for strike in strikes:
        kill = _measure(strike, by_generation, restored, began)
        taken_at = (first_snapshots or {}).get(kill.restored_checkpoint or 0)
        if taken_at is not None:
            kill = replace(kill, rollback_s=strike.at - taken_at)
        found.append(kill)
    return tuple(found)


def _measure(
    strike: Strike,
    by_generation: Mapping[int, Curve],
    restored: Mapping[int, int | None],
    began: float,
) -> KillMeasured:
    before = by_generation.get(strike.generation, Curve(0))
    later = [g for g in by_generation if g > strike.generation and by_generation[g].at]
    after = by_generation[min(later)] if later else None
    if after is None:
        return KillMeasured(strike.at - began, strike.subtasks, None, None, None, None, None)
    new_at = after.beyond(before.total)
    return KillMeasured(
        strike.at - began,
        strike.subtasks,
        restored[min(later)],
        after.at[0] - strike.at,
        None if new_at is None else new_at - strike.at,
        _caught_up_s(strike.at, before, after, new_at),
        max(0, min(before.total, after.total) - after.base),
    )


def _caught_up_s(at: float, before: Curve, after: Curve, new_at: float | None) -> float | None:
    """Until a window of new records is as full as one before the kill was."""
    if new_at is None or not before.at:
        return None
    since = max(before.at[0], at - BEFORE_S)
    if at - since <= 0:
        return None
    rate = (before.until(at) - before.until(since)) / (at - since)
    if rate <= 0:
        return None
    start = new_at
    while start + WINDOW_S <= after.at[-1]:
        if after.until(start + WINDOW_S) - after.until(start) >= ENOUGH * rate * WINDOW_S:
            return start - at
        start += _STEP_S
    return None
