"""As-of joins of two streams by key: each record with the newest version that is not newer."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.edges import EdgeKind
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    LAID,
    MORE,
    CutOf,
    Output,
    Record,
    Records,
    Site,
    StageKind,
    Stamped,
    Verdict,
    key_of,
    some,
)

TOLERANCE_MS = 5
SIDES = "left", "right"


class AsOfStage(StageKind):
    """Gives out the records of the left as they are, with a note of their version, None for one without.

    Which of several versions of one time it is, is by chance.
    """

    name: ClassVar = "as_of"
    words: ClassVar = "as-of join by key"
    streams: ClassVar = 2
    inputs: ClassVar = 2
    keyed: ClassVar = True
    by_chance: ClassVar = True

    def takes(self, edge: EdgeKind) -> bool:
        """Copies of a version would all be there, but one."""
        return super().takes(edge) and not edge.copies

    def add(self, site: Site) -> rt.Stream:
        left, right = (_laid(site, side) for side in (0, 1))
        columns = (["key", "left"], ["key", "right"])
        options = {"tolerance": _tolerance(site.stage), "how": _how(site.stage)}
        joined = left.join_as_of(right, on="key", columns=columns, **options, **site.settings)
        return joined.map(Tell(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def captured(self, record: Any) -> Record:
        if not isinstance(record, dict):
            captured: Record = record
            return captured
        if "left" in record and "right" in record:
            return Tell("")(record)
        laid: Record = ast.literal_eval(record.get("left") or record["right"])
        return laid

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return Records()

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
        lost, more = wanted - given, given - wanted
        verdict.lost += lost.total()
        verdict.duplicated += more.total()
        wrong = [*_wrong(output.stage, output.notes, rights)]
        if lost or (more and output.exactly_once) or not given.keys() <= wanted.keys():
            wrong.append(f"lost {some(lost)}, too many {some(more)}")
        verdict.wrong += [f"{output.uid}: {text}" for text in wrong]


class Tell:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: Mapping[str, Any]) -> Record:
        path, time, notes = ast.literal_eval(row["left"])
        version = None if row["right"] is None else ast.literal_eval(row["right"])[:2]
        note = ("as_of", self._uid, row["key"], tuple(path), time, version)
        return (path, time, (*notes, note))


def _laid(site: Site, side: int) -> rt.Stream:
    sender, keys, name = site.senders[side], site.stage.keys, SIDES[side]
    before: dict[str, Any] = {"parallelism": sender.parallelism[site.form]}

    def lay_out(record: Record) -> dict[str, Any]:
        return {"key": key_of(record[0], keys), name: repr(tuple(record))}

    # The uid tells the kit which input leads on from here.
    return site.streams[side].map(lay_out, uid=f"{site.uid}{MORE}{side}{LAID}", **before)


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
