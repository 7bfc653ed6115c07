"""Running aggregates of columns by key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.stages.base import (
    BACK,
    ByChance,
    CutOf,
    Note,
    Output,
    Record,
    Records,
    Site,
    Verdict,
    key_of,
    per_key,
    some,
)
from minirt.testing.conformance.stages.laid_out import laid_out, weight_of

TTL_MS = 20


class AggregateStage(ByChance):
    """Gives out `("aggregate", uid, key)` for each key and batch, with a note of what it has come to.

    Where keys expire, for each time that one has, or once at the end: all of these add up.
    """

    name: ClassVar = "aggregate"
    words: ClassVar = "running aggregates by key"
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        keyed = laid_out(site, "record", "key", "weight").key_by("key")
        given: dict[str, Any] = {}
        if _expires(site.stage):
            given = {"emit": "end", "ttl": f"{TTL_MS}ms"}
        totals = keyed.aggregate(rt.Count("n"), rt.Sum("weight", "sum"), **given, **site.settings)
        return totals.map(Report(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def at_cut(self, cut: CutOf) -> Records:
        """What it has given out last of each key holds all that it has consumed."""
        notes = [note for _, _, notes in cut.put_out() for note in notes]
        if _expires(cut.stage):
            more = _added_up(notes)[0] - per_key(cut.stage, cut.consumed[0])
            if cut.exactly_once:
                cut.compare(f"what {cut.uid} has given out too often", Counter(), more)
            return Records()
        newest = last(notes)
        what = f"what {cut.uid} has given out of"
        counts, sums = _parts(newest)
        cut.compare(f"{what} counts", counts, per_key(cut.stage, cut.consumed[0]))
        cut.compare(f"{what} sums", sums, _sums(cut.stage, cut.consumed[0]))
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        expires = _expires(output.stage)
        counts, sums = _added_up(output.notes) if expires else _parts(last(output.notes))
        wanted, wanted_sums = (each(output.stage, output.consumed) for each in (per_key, _sums))
        lost, more = wanted - counts, counts - wanted
        verdict.lost += lost.total()
        verdict.duplicated += more.total()
        if lost or (output.exactly_once and (more or sums != wanted_sums)):
            verdict.wrong.append(
                f"{output.uid}: aggregates lack {some(lost)}, have too many {some(more)}, and sums are"
                f" {dict(sums)} instead of {dict(wanted_sums)}"
            )
        if output.exactly_once and not expires:
            _judge_once(output, verdict)


class Report:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: dict[str, Any]) -> Record:
        key, note = row["key"], ("aggregate", self._uid, row["key"], row["n"], row["sum"])
        return (("aggregate", self._uid, key), 0, (note,))


def last(notes: Iterable[Note]) -> dict[int, tuple[int, int]]:
    """The highest count of each key, with the sum that was given out with it."""
    newest: dict[int, tuple[int, int]] = {}
    for _, _, key, count, total in notes:
        newest[key] = max(newest.get(key, (0, 0)), (count, total))
    return newest


def _expires(stage: Stage) -> bool:
    return stage.keys in (2, 4)


def _added_up(notes: Iterable[Note]) -> tuple[Counter[int], Counter[int]]:
    """The counts and sums of all results of each key."""
    counts, sums = Counter[int](), Counter[int]()
    for _, _, key, count, total in notes:
        counts[key] += count
        sums[key] += total
    return counts, +sums


def _parts(newest: dict[int, tuple[int, int]]) -> tuple[Counter[int], Counter[int]]:
    counts = Counter({key: count for key, (count, _) in newest.items()})
    return counts, +Counter({key: total for key, (_, total) in newest.items()})


def _sums(stage: Stage, records: Records) -> Counter[int]:
    sums: Counter[int] = Counter()
    for (path, _), n in records.items():
        sums[key_of(path, stage.keys)] += n * weight_of(path)
    return +sums


def _judge_once(output: Output, verdict: Verdict) -> None:
    """The counts of a key only grow, so each is given out once."""
    given: dict[int, list[int]] = defaultdict(list)
    for _, _, key, count, _ in output.notes:
        given[key].append(count)
    for key, counts in given.items():
        if len(set(counts)) < len(counts):
            verdict.wrong.append(f"{(output.uid, key)}: gave out counts {sorted(counts)}")
