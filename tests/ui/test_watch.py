"""A job is asked once a second for all who look, and not at all while nobody does."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from minirt.errors import MinirtError
from minirt.ui.reading import Reading
from minirt.ui.watch import VIEWERS_MAX, TooManyViewersError, Watch
from tests.ui.samples import Known

EVERY_S = 0.05


def test_many_viewers_cost_what_one_does_and_nobody_costs_nothing() -> None:
    async def look() -> tuple[int, int, int]:
        job = Known()
        watch = Watch(job, EVERY_S)
        viewers = [watch.snapshots() for _ in range(10)]
        firsts = await asyncio.gather(*map(anext, viewers))
        assert len(set(firsts)) == 1
        after_first = job.reads
        for viewer in viewers:
            await viewer.aclose()  # type: ignore[attr-defined]
        assert watch.viewers == 0
        await asyncio.sleep(EVERY_S)  # What was being read may end.
        before = job.reads
        await asyncio.sleep(20 * EVERY_S)
        return after_first, before, job.reads

    first, before, after = asyncio.run(look())
    assert first == 1
    assert before == after


def test_snapshots_go_on_after_an_error_which_viewers_are_told() -> None:
    class Failing(Known):
        def read(self) -> Reading:
            read = super().read()
            if self.reads == 2:
                raise MinirtError("the job is too busy")
            return read

    async def look() -> list[object]:
        watch, told = Watch(Failing(), EVERY_S), []
        async for text in watch.snapshots():
            told.append(json.loads(text).get("error"))
            if len(told) == 3:
                return told
        return []

    assert asyncio.run(look()) == [None, "the job is too busy", None]


def test_too_many_viewers_are_refused() -> None:
    async def look() -> None:
        watch = Watch(Known(), EVERY_S)
        viewers = [watch.snapshots() for _ in range(VIEWERS_MAX)]
        await asyncio.gather(*map(anext, viewers))
        with pytest.raises(TooManyViewersError, match="close one"):
            await anext(watch.snapshots())
        for viewer in viewers:
            await viewer.aclose()  # type: ignore[attr-defined]

    asyncio.run(look())


def test_reading_again_at_once_does_not_ask_again() -> None:
    job = Known()
    watch = Watch(job, 3600)
    began_at = time.monotonic()
    assert watch.read() == watch.read()
    assert job.reads == 1
    assert time.monotonic() - began_at < 60
