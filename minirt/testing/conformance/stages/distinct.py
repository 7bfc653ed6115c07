"""The first record of each key, of rows and of columns, for good and within a span of event time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
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
    key_function,
    key_of,
    pick_up,
    some,
)
from minirt.testing.conformance.stages.laid_out import laid_out

WITHIN_MS = 6


class DistinctStage(ByChance):
    """Gives records out as they are, with a note; which of a key is the first is by chance."""

    name: ClassVar = "distinct"
    words: ClassVar = "the first record of each key"
    keyed: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        keyed: rt.KeyedStream = site.streams[0].key_by(key_function(site.stage.keys))
        if _in_columns(site.stage):
            keyed = laid_out(site, "record", "key").key_by("key")
        within = f"{WITHIN_MS}ms" if _within(site.stage) else None
        first = keyed.distinct(within=within, **site.settings)
        return first.map(Tell(site.uid), uid=f"{site.uid}{BACK}", parallelism=site.width)

    def at_cut(self, cut: CutOf) -> Records:
        given = Counter((tuple(path), time) for path, time, _ in cut.put_out())
        wrong = [*_wrong(cut.stage, cut.consumed[0], given, exactly_once=cut.exactly_once)]
        wrong += _unlike(cut.stage, given, cut.stored.state(cut.uid, "given"))
        cut.compare(cut.uid, Counter(), Counter(wrong))
        return Records()

    def judge(self, output: Output, verdict: Verdict) -> None:
        given = Counter((tuple(path), time) for *_, path, time in output.notes)
        wrong = [*_wrong(output.stage, output.consumed, given, exactly_once=output.exactly_once)]
        verdict.wrong += [f"{output.uid}: {text}" for text in wrong]


class Tell:
    def __init__(self, uid: str) -> None:
        self._uid = uid

    def __call__(self, record: Any) -> Record:
        path, time, notes = pick_up(record) if isinstance(record, dict) else record
        return (path, time, (*notes, ("distinct", self._uid, tuple(path), time)))


def _in_columns(stage: Stage) -> bool:
    return stage.keys % 2 == 0


def _within(stage: Stage) -> bool:
    return stage.keys in (1, 4)


def _wrong(stage: Stage, consumed: Records, given: Records, *, exactly_once: bool) -> Iterator[str]:
    """Results of a key are far enough apart, and each other record is near one of them."""
    if exactly_once and (strange := given - consumed):
        yield f"gave out {some(strange)}, which it never got"
    times = _by_key(stage, given)
    near = WITHIN_MS if _within(stage) else float("inf")
    for key, own in times.items():
        if exactly_once and any(later - earlier < near for earlier, later in pairwise(sorted(own))):
            yield f"gave out records of key {key} at {sorted(own)}"
    for path, time in consumed:
        own = times.get(key_of(path, stage.keys), [])
        if not any(abs(time - one) < near for one in own):
            yield f"{(path, time)} is no repetition of what was given out at {own}"


def _unlike(stage: Stage, given: Records, state: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """What it remembers of a key is what it gave out, but for what it may have forgotten."""
    times = _by_key(stage, given)
    stored = dict(state)
    if not _within(stage) and stored.keys() != times.keys():
        yield f"it knows the keys {sorted(stored)}, and gave out records of {sorted(times)}"
    for key, known in stored.items() if _within(stage) else ():
        if not {*known} <= {*times[key]}:
            yield f"it remembers {known} of key {key}, and gave out {times[key]}"


def _by_key(stage: Stage, records: Records) -> dict[int, list[int]]:
    times: dict[int, list[int]] = defaultdict(list)
    stamped: Stamped
    for stamped in records.elements():
        times[key_of(stamped[0], stage.keys)].append(stamped[1])
    return times
