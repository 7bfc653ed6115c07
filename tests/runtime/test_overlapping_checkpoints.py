"""Several checkpoints and savepoints under way at once, with real workers and a storage that is slow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.protocol.reports import CheckpointUnderWay
from minirt.storage.checkpoints import CheckpointStorage
from tests.runtime.campaign import compare, kill_processes, write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import needs_proc, wait_until

pytestmark = [pytest.mark.processes, needs_proc]

COUNT = 1500


class Watch(rt.JobObserver):
    """Notes which checkpoints are under way together, and which complete."""

    def __init__(self) -> None:
        self.at_once: set[tuple[int, ...]] = set()
        self.completed: list[int] = []

    def on_checkpoints_under_way(self, checkpoints: Sequence[CheckpointUnderWay]) -> None:
        self.at_once.add(tuple(one.checkpoint_id for one in checkpoints))

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        if report.failure is None:
            self.completed.append(report.checkpoint_id)


@pytest.fixture(autouse=True)
def slow_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes several intervals."""
    create = CheckpointStorage.create_manifest

    def slowly(self: CheckpointStorage, *args: Any) -> bool:
        time.sleep(0.05)
        return create(self, *args)

    monkeypatch.setattr(CheckpointStorage, "create_manifest", slowly)


def start(folder: Path, watch: Watch, mode: str = "aligned", most: int = 3) -> rt.Job:
    env = rt.Environment("keyed", parallelism=2)
    write_files(build(CASES["keyed"], env, COUNT, per_second=1000), folder)
    checkpointing = rt.Checkpointing(
        folder / "checkpoints", interval="20ms", mode=mode, max_concurrent=most
    )
    restart = rt.Restart.fixed_delay(attempts=None, delay="10ms")
    return env.start(checkpointing=checkpointing, restart=restart, observer=watch)


@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_a_checkpoint_begins_while_others_are_being_stored(mode: str, tmp_path: Path) -> None:
    watch = Watch()
    job = start(tmp_path, watch, mode)
    assert job.wait(60).status is rt.JobStatus.FINISHED
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)
    assert max(map(len, watch.at_once)) == 3
    assert watch.completed == [*range(1, len(watch.completed) + 1)]


def test_workers_are_killed_while_several_are_under_way(tmp_path: Path) -> None:
    watch = Watch()
    job = start(tmp_path, watch)
    wait_until(lambda: max(map(len, watch.at_once), default=0) == 3, "three at once")
    kills = kill_processes(job, 3, seed=1)
    result = job.wait(60)
    assert (result.status, kills) == (rt.JobStatus.FINISHED, 3)
    assert result.restarts >= 1
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


def test_savepoints_overlap_and_each_can_be_restored(tmp_path: Path) -> None:
    watch = Watch()
    job = start(tmp_path, watch)
    wait_until(lambda: bool(watch.completed), "a checkpoint")
    with ThreadPoolExecutor(3) as asking:
        paths = [tmp_path / f"savepoint-{number}" for number in range(3)]
        found = [asking.submit(job.savepoint, path, timeout=60) for path in paths]
        savepoints = [each.result(60) for each in found]
    assert job.wait(60).status is rt.JobStatus.FINISHED
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)
    ids = {savepoint.checkpoint_id for savepoint in savepoints}
    assert any(len(ids.intersection(together)) > 1 for together in watch.at_once)
    for savepoint in savepoints:
        assert (
            rt.open_checkpoints(savepoint.path).latest().manifest.checkpoint_id
            == savepoint.checkpoint_id
        )


def refused(tmp_path: Path, **checkpointing: Any) -> str:
    env = rt.Environment("refused")
    env.source(rt.SequenceSource(3), uid="numbers").sink(rt.DiscardSink(), uid="out")
    options = checkpointing.pop("options", rt.Options())
    with pytest.raises(ConfigurationError) as caught:
        env.execute(
            checkpointing=rt.Checkpointing(tmp_path, **checkpointing),
            options=options,
            runner="inline",
        )
    return str(caught.value)


def test_what_cannot_overlap_is_refused_before_anything_starts(tmp_path: Path) -> None:
    found = refused(tmp_path, mode="unaligned", max_concurrent=2)
    assert found.startswith(
        "mode unaligned takes one checkpoint at a time, and max_concurrent is 2"
    )
    options = rt.Options(limits=rt.Limits(waiting_snapshots=1))
    found = refused(tmp_path, max_concurrent=2, options=options)
    assert "max_concurrent (2)" in found
    assert "waiting_snapshots (1)" in found
