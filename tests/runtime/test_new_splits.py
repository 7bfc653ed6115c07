"""Splits that a reader finds while the job runs: read once, whatever fails and however wide the job is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.restore_options import RestoreOptions
from minirt.testing import TransactionalSink, simulate
from tests.runtime.stepped import SteppedJob

RECORDS, BATCH = 60, 7
_CHILDREN = {"0": ["2", "4"], "1": ["3"], "2": ["5"]}
EXPECTED = sorted(100 * split + n for split in range(6) for n in range(RECORDS))


class Growing(rt.Source):
    """Two splits, which find others while they are read; the offset says how many were found."""

    interleave = True

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split("0"), rt.Split("1")]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(split.id, *(offset or (0, 0)))


class _Reader(rt.SplitReader):
    def __init__(self, id: str, position: int, found: int) -> None:
        self.offset = [position, found]
        self._id = id
        self._new: list[rt.Split] = []

    def read(self) -> list[Any] | None:
        position, found = self.offset
        children = _CHILDREN.get(self._id, [])
        if found < len(children) and position >= 20 * (found + 1):
            self._new.append(rt.Split(children[found]))
            found += 1
        end = min(RECORDS, position + BATCH)
        self.offset = [end, found]
        if position == RECORDS:
            return None
        return [100 * int(self._id) + n for n in range(position, end)]

    def take_new_splits(self) -> Sequence[rt.Split]:
        new, self._new = self._new, []
        return new


def job(sink: rt.Sink, parallelism: int) -> rt.Environment:
    env = rt.Environment("growing", parallelism=parallelism)
    env.source(Growing(), uid="numbers").map(lambda n: n, uid="same").sink(sink, uid="out")
    return env


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_simulated_crashes_lose_and_repeat_nothing(parallelism: int) -> None:
    restarts = 0
    for seed in range(12):
        sink = TransactionalSink()
        result = simulate(job(sink, parallelism), seed=seed)
        result.check()
        restarts += result.restarts
        assert sorted(sink.rows) == EXPECTED
    assert restarts > 0


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("steps", [10, 25, 60])
def test_splits_that_were_found_are_dealt_anew_with_the_others(
    width: int, steps: int, tmp_path: Path
) -> None:
    sink = rt.CollectSink()
    first = SteppedJob(job(sink, 2), tmp_path)
    first.work(steps)
    first.checkpoint()
    assert len(sink.rows) < len(EXPECTED)
    again = SteppedJob(job(sink, width), tmp_path, restore=RestoreOptions("latest"))
    again.finish()
    assert sorted(sink.rows) == EXPECTED
