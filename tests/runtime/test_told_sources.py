"""A source hears how far it is stored: behind each manifest, in every way of running a job."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.testing import simulate
from minirt.testing.sink import TransactionalSink


class Telling(rt.CollectionSource):
    """Writes down what it hears, and how many manifests were stored by then."""

    def __init__(self, log: Path, storage: Path | None, failing: str | None = None) -> None:
        super().__init__(list(range(3000)), splits=3)
        self.log = log
        self.storage = storage
        self.failing = failing

    def committed(self, offsets: Mapping[str, Any]) -> None:
        manifests = None if self.storage is None else stored(self.storage)
        with self.log.open("a") as log:
            log.write(json.dumps([dict(offsets), manifests]) + "\n")
        if self.failing == "once" and len(self.log.read_text().splitlines()) == 1:
            raise OSError("no answer")
        if self.failing == "for good":
            raise rt.JobFailedError("the slot is gone")


def stored(storage: Path) -> int:
    """The number of the newest manifest: of older ones, retention leaves few."""
    names = [path.name for path in storage.glob("manifests/*.manifest")]
    return max((int(name.split("-")[1]) for name in names), default=0)


def heard(log: Path) -> list[tuple[dict[str, Any], int]]:
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def job(source: rt.Source, sink: rt.Sink, pause_s: float = 0.0) -> rt.Environment:
    def slow(number: int) -> int:
        time.sleep(pause_s)
        return number

    env = rt.Environment("told", parallelism=2)
    env.source(source, uid="numbers").map(slow, uid="slow").sink(sink, uid="out")
    return env


@pytest.mark.parametrize(
    "runner", ["inline", pytest.param("processes", marks=pytest.mark.processes)]
)
@pytest.mark.parametrize("failing", [None, "once"])
def test_a_source_hears_how_far_it_is_stored(
    tmp_path: Path, runner: Any, failing: str | None
) -> None:
    source = Telling(tmp_path / "log", tmp_path / "chk", failing)
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.05)
    job(source, rt.CollectSink(), 0.0003).execute(runner=runner, checkpointing=checkpointing)
    told = heard(tmp_path / "log")
    assert len(told) > 1
    for number, (offsets, manifests) in enumerate(told, 1):
        assert offsets.keys() == {split.id for split in source.plan_splits(2)}
        assert manifests >= number - (failing is not None)
    assert [*told[-1][0].values()] == [1000, 1000, 1000] or all(told[-1][0].values())


def test_a_source_may_end_the_job(tmp_path: Path) -> None:
    source = Telling(tmp_path / "log", tmp_path / "chk", "for good")
    checkpointing = rt.Checkpointing(tmp_path / "chk", interval=0.05)
    with pytest.raises(rt.JobFailedError, match="the slot is gone"):
        job(source, rt.CollectSink(), 0.001).execute(runner="inline", checkpointing=checkpointing)


def test_simulated_jobs_tell_their_sources_too(tmp_path: Path) -> None:
    sink = TransactionalSink()
    source = Telling(tmp_path / "log", None)
    simulate(job(source, sink), seed=1).check()
    assert sorted(sink.rows) == list(range(3000))
    assert heard(tmp_path / "log")


def test_a_source_that_does_not_want_to_know_is_not_asked(tmp_path: Path) -> None:
    assert not rt.CollectionSource([1]).wants_committed
    assert Telling(tmp_path / "log", None).wants_committed
