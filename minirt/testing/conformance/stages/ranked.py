"""The first records of each key in an order, each with its rank."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
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
    Stamped,
    Verdict,
    key_of,
    pick_up,
)
from minirt.testing.conformance.stages.laid_out import laid_out, weight_of

Rank = tuple[int, int]
"""A key, and a rank from 1 on."""


class TopNStage(ByChance):
    """Gives out `("top", uid, key)` for each rank that has changed, with a note of what has it now.

    The order is by weight, then by the record itself: so records that differ never are alike.
    """

    name: ClassVar = "top"
    words: ClassVar = "the first records of each key in an order"
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        keyed = laid_out(site, "record", "key", "weight").key_by("key")
        first = keyed.top_n(_count(site.stage), ["weight", "record"], **site.settings)
        return first.map(Report(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def of_row(self, row: Mapping[str, Any]) -> Record:
        return Report("")(row) if "rank" in row else pick_up(row)

    def at_cut(self, cut: CutOf) -> Records:
        """It holds the first of what it has consumed, and has given them out.

        A record need not have come that one in flight beats: senders leave out of a batch what its others
        beat. So what counts is what it will hold once it has consumed these as well.
        """
        held: Records = Counter()
        for row, gone in cut.stored.ranked(cut.uid):
            if not gone:
                path, time, _ = ast.literal_eval(row["record"])
                held[path, time] += 1
        best = _best(note for _, _, notes in cut.put_out() for note in notes)
        ahead, first = cut.waiting[0], partial(_first, cut.stage)
        for what, found, wanted in (
            ("will hold", first(held + ahead), first(cut.consumed[0] + ahead)),
            ("has given out", best, first(held)),
        ):
            wrong = _wrong(found, wanted, exact=cut.exactly_once)
            cut.compare(f"what {cut.uid} {what}", Counter(), Counter(wrong))
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        wanted = _first(output.stage, output.consumed)
        wrong = [*_wrong(_best(output.notes), wanted, exact=output.exactly_once)]
        if output.exactly_once:
            wrong += _repeated(output)
        verdict.wrong += [f"{output.uid}: {text}" for text in wrong]


class Report:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, row: Mapping[str, Any]) -> Record:
        path, time, _ = ast.literal_eval(row["record"])
        note = ("top", self._uid, row["key"], row["rank"], tuple(path), time)
        return (("top", self._uid, row["key"]), 0, (note,))


def _count(stage: Stage) -> int:
    return 1 + len(stage.parallelism)


def _order_of(stamped: Stamped) -> tuple[int, str]:
    """The text of a record begins with its path and time, and so decides by these; its notes, which are
    left to chance, come after."""
    return weight_of(stamped[0]), repr(stamped)


def _best(notes: Iterable[Note]) -> dict[Rank, Stamped]:
    """What was given out last of each rank, which is the first in the order: it only gets better."""
    best: dict[Rank, Stamped] = {}
    for _, _, key, rank, path, time in notes:
        found = tuple(path), time
        if (key, rank) not in best or _order_of(best[key, rank]) < _order_of(found):
            best[key, rank] = found
    return best


def _first(stage: Stage, records: Records) -> dict[Rank, Stamped]:
    """What must have each rank."""
    by_key: dict[int, list[Stamped]] = defaultdict(list)
    for path, time in records.elements():
        by_key[key_of(path, stage.keys)].append((path, time))
    return {
        (key, place + 1): stamped
        for key, own in by_key.items()
        for place, stamped in enumerate(sorted(own, key=_order_of, reverse=True)[: _count(stage)])
    }


def _wrong(
    found: Mapping[Rank, Stamped], wanted: Mapping[Rank, Stamped], *, exact: bool
) -> Iterator[str]:
    """Where records may come twice, or from behind the cut, a rank may be taken by a better one."""
    for at in sorted(found.keys() | wanted.keys()):
        got, must = found.get(at), wanted.get(at)
        more = got is not None and (must is None or _order_of(got) > _order_of(must))
        if got != must and (exact or not more):
            yield f"rank {at} has {got} instead of {must}"


def _repeated(output: Output) -> Iterator[str]:
    """The rank of a record only gets worse, so it has each of them once."""
    given = Counter((key, rank, tuple(path), time) for _, _, key, rank, path, time in output.notes)
    for (key, rank, path, time), times in given.items():
        if times > output.consumed[path, time]:
            yield f"rank {(key, rank)} was given out {times} times with {(path, time)}"
