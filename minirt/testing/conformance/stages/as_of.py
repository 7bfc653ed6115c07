"""As-of joins of two streams by key: each record with the newest version that is not newer."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    ByChance,
    CutOf,
    Output,
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

TOLERANCE_MS = 5


class AsOfStage(TwoSides, ByChance):
    """Gives out the records of the left as they are, with a note of their version, None for one without.

    Which of several versions of one time it is, is by chance.
    """

    name: ClassVar = "as_of"
    words: ClassVar = "as-of join by key"

    def add(self, site: Site) -> rt.Stream:
        left, right = laid_out_sides(site, site.stage.keys)
        options = {"tolerance": _tolerance(site.stage), "how": _how(site.stage)}
        joined = left.join_as_of(right, on="key", columns=COLUMNS, **options, **site.settings)
        return joined.map(Tell(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def of_result(self, row: Mapping[str, Any]) -> Record:
        return Tell("")(row)

    def at_cut(self, cut: CutOf) -> Records:
        """A record of the left waits, was given out, or had no version in an inner join."""
        lefts, rights = cut.consumed
        given = Counter((tuple(path), time) for path, time, _ in cut.put_out())
        notes = [notes[-1] for _, _, notes in cut.put_out()]
        there = Counter(given)
        for row, done in cut.stored.waiting(cut.uid, SIDES[0]):
            path, time, _ = ast.literal_eval(row["left"])
            there[path, time] += not done
        without = _without(cut.stage, lefts, rights)
        taken_in: Records = Counter(+there | (without & lefts))
        cut.compare(f"what {cut.uid} has taken in", taken_in, lefts)
        if cut.exactly_once:
            wrong = Counter(_wrong(cut.stage, notes, rights))
            cut.compare(f"the versions of {cut.uid}", Counter(), wrong)
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        lefts, rights = output.inputs
        given = Counter((tuple(path), time) for *_, path, time, _ in output.notes)
        wanted = lefts - _without(output.stage, lefts, rights)
        wrong = _wrong(output.stage, output.notes, rights)
        verdict.wrong += [f"{output.uid}: {text}" for text in wrong]
        judge_results(output, verdict, given, wanted)


class Tell:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: Mapping[str, Any]) -> Record:
        path, time, notes = ast.literal_eval(row["left"])
        version = None if row["right"] is None else ast.literal_eval(row["right"])[:2]
        note = ("as_of", self._uid, row["key"], tuple(path), time, version)
        return (path, time, (*notes, note))


def _tolerance(stage: Stage) -> str | None:
    return f"{TOLERANCE_MS}ms" if stage.keys % 2 else None


def _how(stage: Stage) -> Any:
    return "left" if len(stage.parallelism) == 2 or stage.keys == 2 else "inner"


def _time_of_version(stage: Stage, left: Stamped, rights: Iterable[Stamped]) -> int | None:
    """When the version began that a record must have; None if it has none."""
    key = key_of(left[0], stage.keys)
    times = (time for path, time in rights if key_of(path, stage.keys) == key and time <= left[1])
    newest = max(times, default=None)
    if newest is not None and _tolerance(stage) and newest < left[1] - TOLERANCE_MS:
        return None
    return newest


def _without(stage: Stage, lefts: Records, rights: Records) -> Records:
    """The records that are not given out, as they have no version."""
    if _how(stage) == "left":
        return Records()
    return Counter({r: n for r, n in lefts.items() if _time_of_version(stage, r, rights) is None})


def _wrong(stage: Stage, notes: Iterable[Any], rights: Records) -> Iterator[str]:
    for _, _, _, path, time, version in notes:
        left = (tuple(path), time)
        found = None if version is None else (tuple(version[0]), version[1])
        wanted = _time_of_version(stage, left, rights)
        fits = found is None or (
            found in rights and key_of(found[0], stage.keys) == key_of(left[0], stage.keys)
        )
        if not fits or (None if found is None else found[1]) != wanted:
            yield f"{left} has the version {found}, not one of {wanted}"
