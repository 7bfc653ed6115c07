"""Requests that wait in an event loop: answers in order by key, or as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import minirt as rt
from minirt.testing.conformance.plans import Stage
from minirt.testing.conformance.scribblers import Rename, use_up
from minirt.testing.conformance.stages.base import (
    CutOf,
    Path,
    Record,
    Records,
    Site,
    StageKind,
    key_of,
    renamed,
)

CAPACITY = 3
WAITS = 5
"""How many different times answers take, in steps of a millisecond of simulated time."""


class AskStage(StageKind):
    """As answers come, behind any edge."""

    name: ClassVar = "ask"
    words: ClassVar = "map_async, answers as they come"
    keeps_order: ClassVar = False

    def add(self, site: Site) -> rt.Stream:
        return _asked(site, site.dealt[0], ordered=False)

    def passed_on(self, stage: Stage, uid: str, consumed: Sequence[Records]) -> Records:
        return _answers(uid, consumed[0])

    def at_cut(self, cut: CutOf) -> Records:
        """A record was answered, or its request is under way."""
        requests = list(cut.stored.requests(cut.uid))
        waiting = Records((path, time) for (path, time, _), _ in requests)
        stamped = Records((path, stamp) for (path, _, _), stamp in requests)
        cut.compare(f"the event times of what is under way at {cut.uid}", stamped, waiting)
        consumed = cut.consumed[0]
        cut.compare(f"what is under way at {cut.uid}", waiting, waiting & consumed)
        return _answers(cut.uid, consumed - waiting)


class KeyedAskStage(AskStage):
    """Answers for records of a key leave in the order of these, also when the job is rescaled."""

    name: ClassVar = "keyedask"
    words: ClassVar = "map_async by key, answers in order"
    keyed: ClassVar = True
    keeps_order: ClassVar = True

    def add(self, site: Site) -> rt.Stream:
        return _asked(site, site.keyed[0], ordered=True)


class Answering:
    """Waits for a while that depends on the record, and uses up what it was given."""

    def __init__(self, uid: str) -> None:
        self._uid = uid

    async def __call__(self, record: Record) -> Any:
        path, time, notes = record
        notes = list(notes)
        use_up(record)
        await asyncio.sleep(wait_s(path))
        return Rename(self._uid)((path, time, notes))


def wait_s(path: Path) -> float:
    return key_of(path, WAITS) / 1000


def _asked(site: Site, stream: rt.Stream, *, ordered: bool) -> rt.Stream:
    # Without a timeout: the clock may jump far while a worker hangs.
    return stream.map_async(
        Answering(site.uid), capacity=CAPACITY, ordered=ordered, timeout=None, **site.settings
    )


def _answers(uid: str, records: Records) -> Records:
    return renamed(records, lambda path: (*path, uid))
