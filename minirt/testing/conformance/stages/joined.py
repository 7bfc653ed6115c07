"""Interval joins of two streams by key."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.edges import EdgeKind
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    LAID,
    MORE,
    CutOf,
    Path,
    Record,
    Records,
    Site,
    StageKind,
    key_of,
)

FIRST_MS, LAST_MS = -1, 1
"""Few: what joins of joins give out grows fast."""
HOWS = ("inner", "left", "right", "full")
SIDES = "left", "right"


class IntervalStage(StageKind):
    """Gives out `("joined", number, left path, right path)`; a path that there is none of is None."""

    name: ClassVar = "interval"
    words: ClassVar = "interval join by key"
    streams: ClassVar = 2
    inputs: ClassVar = 2
    keyed: ClassVar = True
    keeps_order: ClassVar = False
    multiplies: ClassVar = True

    def takes(self, edge: EdgeKind) -> bool:
        """Copies of both sides would be joined with each other."""
        return super().takes(edge) and not edge.copies

    def add(self, site: Site) -> rt.Stream:
        left, right = (_laid(site, side) for side in (0, 1))
        bounds = f"{FIRST_MS}ms", f"{LAST_MS}ms"
        columns = (["key", "left"], ["key", "right"])
        how: Any = how_of(site.stage)
        joined = left.join(
            right, on="key", within=bounds, how=how, columns=columns, **site.settings
        )
        return joined.map(back, uid=f"{site.uid}{BACK}", parallelism=site.width)

    def captured(self, record: Any) -> Record:
        return _record_of(record) if isinstance(record, dict) else record

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        taking = taking_part(consumed)
        return _pairs(stage, taking) + _alone(stage, 0, taking) + _alone(stage, 1, taking)

    def at_cut(self, cut: CutOf) -> Records:
        """Pairs are given out at once; a record that had no partner either waits or was given out."""
        taking = taking_part(cut.consumed)
        given = _pairs(cut.stage, taking)
        for side in (0, 1):
            alone = _alone(cut.stage, side, taking)
            waiting: Records = Counter()
            for row, done in cut.stored.waiting(cut.uid, SIDES[side]):
                if not done and _gives_alone(cut.stage, side):
                    path, time, _ = ast.literal_eval(row[SIDES[side]])
                    waiting[_alone_record(side, path, time)] += 1
            cut.compare(f"what waits at the {SIDES[side]} of {cut.uid}", waiting, waiting & alone)
            if cut.exactly_once:  # Otherwise a partner from behind the cut may have come already.
                given += alone - waiting
        return given


def takes_part(path: Path, side: int) -> bool:
    """Half of the records do: otherwise joins of joins would give out more and more."""
    return key_of(path, 5) in ((0, 1, 2), (0, 3, 4))[side]


def taking_part(consumed: Sequence[Records]) -> list[Records]:
    """The records of each side that are laid out for it."""
    return [
        Counter({record: n for record, n in records.items() if takes_part(record[0], side)})
        for side, records in enumerate(consumed)
    ]


def how_of(stage: Stage) -> str:
    return HOWS[(stage.keys + len(stage.parallelism)) % len(HOWS)]


def _laid(site: Site, side: int) -> rt.Stream:
    sender, keys, name = site.senders[side], site.stage.keys, SIDES[side]
    before: dict[str, Any] = {"parallelism": sender.parallelism[site.form]}

    def lay_out(record: Record) -> list[dict[str, Any]]:
        row = {"key": key_of(record[0], keys), name: repr(tuple(record))}
        return [row] if takes_part(record[0], side) else []

    # The uid tells the kit which input leads on from here.
    return site.streams[side].flat_map(lay_out, uid=f"{site.uid}{MORE}{side}{LAID}", **before)


def back(row: Mapping[str, Any]) -> Record:
    """The record that a result stands for."""
    if row["right"] is None:
        path, time, notes = ast.literal_eval(row["left"])
        return (*_alone_record(0, path, time), notes)
    if row["left"] is None:
        path, time, notes = ast.literal_eval(row["right"])
        return (*_alone_record(1, path, time), notes)
    left, right = (ast.literal_eval(row[side]) for side in SIDES)
    return (_path(left[0], right[0]), max(left[1], right[1]), (*left[2], *right[2]))


def _record_of(row: Mapping[str, Any]) -> Record:
    """The record that was laid out for one side, or the result that it is part of."""
    if "left" in row and "right" in row:
        return back(row)
    record: Record = ast.literal_eval(row["left"] if "left" in row else row["right"])
    return record


def _gives_alone(stage: Stage, side: int) -> bool:
    return how_of(stage) in (SIDES[side], "full")


def _alone_record(side: int, path: Path, time: int) -> tuple[Path, int]:
    """A record without partner comes when it is certain that it has none."""
    certain = time + LAST_MS if side == 0 else time - FIRST_MS
    paths = (path, None) if side == 0 else (None, path)
    return _path(*paths), max(time, certain)


def _path(left: Path | None, right: Path | None) -> Path:
    """With a number, by which the next stage tells keys."""
    number = sum(key_of(path, 997) for path in (left, right) if path is not None)
    return ("joined", number, left, right)


def _partners(stage: Stage, consumed: Sequence[Records]) -> Iterator[tuple[Any, Any]]:
    rights: dict[tuple[int, int], list[Any]] = {}
    for right in consumed[1]:
        rights.setdefault((key_of(right[0], stage.keys), right[1]), []).append(right)
    for left in consumed[0]:
        key = key_of(left[0], stage.keys)
        for apart in range(FIRST_MS, LAST_MS + 1):
            for right in rights.get((key, left[1] + apart), ()):
                yield left, right


def _pairs(stage: Stage, consumed: Sequence[Records]) -> Records:
    pairs: Records = Counter()
    for left, right in _partners(stage, consumed):
        count = consumed[0][left] * consumed[1][right]
        pairs[_path(left[0], right[0]), max(left[1], right[1])] += count
    return pairs


def _alone(stage: Stage, side: int, consumed: Sequence[Records]) -> Records:
    """Those of one side that have no partner among what was consumed, as they are given out."""
    if not _gives_alone(stage, side):
        return Counter()
    found = {pair[side] for pair in _partners(stage, consumed)}
    return Counter(
        {
            _alone_record(side, path, time): count
            for (path, time), count in consumed[side].items()
            if (path, time) not in found
        }
    )
