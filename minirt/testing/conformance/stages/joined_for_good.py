"""Joins of two streams by key whose records never expire: all pairs there are, and what has no partner."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    ByChance,
    CutOf,
    Output,
    Path,
    Record,
    Records,
    Site,
    Stamped,
    Verdict,
    judge_results,
    key_of,
)
from minirt.testing.conformance.stages.two_sides import (
    COLUMNS,
    SIDES,
    TwoSides,
    laid_out_sides,
)

HOWS = ("inner", "left", "right", "full", "semi", "anti")
KEYS = 7
"""More than other stages have: each key makes as many results as its two sides multiplied."""

Result = tuple[Stamped | None, Stamped | None]


class TtlJoinStage(TwoSides, ByChance):
    """Gives out `("met", uid)`, with a note of the records of both sides, None for a side without.

    When a record without a partner comes is by chance, but it comes once, when all input has ended.
    """

    name: ClassVar = "met"
    words: ClassVar = "join by key with a time to live that no run lasts"
    multiplies: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        left, right = laid_out_sides(site, KEYS, lambda path, side: takes_part(path))
        how: Any = how_of(site.stage)
        joined = left.join(
            right, on="key", ttl="100000d", how=how, columns=COLUMNS, **site.settings
        )
        return joined.map(Tell(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def of_result(self, row: Mapping[str, Any]) -> Record:
        return Tell("")(row)

    def at_cut(self, cut: CutOf) -> Records:
        """What has no partner either waits or was given out; all pairs were."""
        given = Counter(_results(note for _, _, notes in cut.put_out() for note in notes))
        pairs, alone = _wanted(cut.stage, cut.consumed)
        with_partner = Counter({one: n for one, n in given.items() if one not in alone})
        cut.compare(f"what {cut.uid} has given out", with_partner, pairs)
        sides = [side for side in (0, 1) if _gives_alone(cut.stage, side)]
        there = given - with_partner
        for side in sides:
            for row, done in cut.stored.waiting(cut.uid, SIDES[side]):
                path, time, _ = ast.literal_eval(row[SIDES[side]])
                there[_alone(side, (path, time))] += not done
        if cut.exactly_once:  # Otherwise a partner from behind the cut may have come already.
            cut.compare(f"what is alone at {cut.uid}", +there, alone)
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        given, wanted = Counter(_results(output.notes)), Counter[Result]()
        for part in _wanted(output.stage, output.inputs):
            wanted += part
        judge_results(output, verdict, given, wanted)


class Tell:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: Mapping[str, Any]) -> Record:
        found = [None if row.get(side) is None else ast.literal_eval(row[side]) for side in SIDES]
        both = [None if one is None else (tuple(one[0]), one[1]) for one in found]
        return (("met", self._uid), 0, (("met", self._uid, *both),))


def takes_part(path: Path) -> bool:
    """Half of the records do, as there are many results."""
    return key_of(path, 6) in (0, 1, 5)


def how_of(stage: Stage) -> str:
    return HOWS[(2 * stage.keys + len(stage.parallelism)) % len(HOWS)]


def _results(notes: Iterable[Any]) -> Iterator[Result]:
    for _, _, left, right in notes:
        yield _stamped(left), _stamped(right)


def _stamped(found: Any) -> Stamped | None:
    return None if found is None else (tuple(found[0]), found[1])


def _gives_alone(stage: Stage, side: int) -> bool:
    own = ("left", "full", "anti") if side == 0 else ("right", "full")
    return how_of(stage) in own


def _alone(side: int, stamped: Stamped) -> Result:
    return (stamped, None) if side == 0 else (None, stamped)


def _wanted(stage: Stage, consumed: Sequence[Records]) -> tuple[Counter[Result], Counter[Result]]:
    """The results with a partner, and those without: of a semi join, the former are the left alone."""
    lefts, rights = (
        Counter({record: n for record, n in records.items() if takes_part(record[0])})
        for records in consumed
    )
    pairs: Counter[Result] = Counter()
    for left, n in lefts.items():
        for right, m in rights.items():
            if key_of(left[0], KEYS) == key_of(right[0], KEYS):
                pairs[left, right] = n * m
    met = {left for left, _ in pairs}, {right for _, right in pairs}
    alone = Counter(
        {
            _alone(side, stamped): n
            for side, records in enumerate((lefts, rights))
            for stamped, n in records.items()
            if stamped not in met[side] and _gives_alone(stage, side)
        }
    )
    how = how_of(stage)
    if how == "semi":
        return Counter({(left, None): n for left, n in lefts.items() if left in met[0]}), alone
    return (Counter() if how == "anti" else pairs), alone
