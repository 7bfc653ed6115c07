"""Interval joins of two streams by key."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    CutOf,
    Path,
    Record,
    Records,
    Site,
    key_of,
)
from minirt.testing.conformance.stages.two_sides import (
    COLUMNS,
    SIDES,
    TwoSides,
    laid_out_sides,
)

FIRST_MS, LAST_MS = -1, 1
"""Few: what joins of joins give out grows fast."""
HOWS = ("inner", "left", "right", "full")


class IntervalStage(TwoSides):
    """Gives out `("joined", number, left path, right path)`; a path that there is none of is None."""

    name: ClassVar = "interval"
    words: ClassVar = "interval join by key"
    keeps_order: ClassVar = False
    multiplies: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        left, right = laid_out_sides(site, site.stage.keys, takes_part)
        bounds = f"{FIRST_MS}ms", f"{LAST_MS}ms"
        how: Any = how_of(site.stage)
        joined = left.join(
            right, on="key", within=bounds, how=how, columns=COLUMNS, **site.settings
        )
        return joined.map(back, uid=f"{site.uid}{BACK}", parallelism=site.width)

    def of_result(self, row: Mapping[str, Any]) -> Record:
        return back(row)

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
