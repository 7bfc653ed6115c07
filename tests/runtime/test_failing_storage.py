"""Storage that fails, is full or slow for a while: checkpoints fail, output is delayed, nothing is lost."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    CollectSink,
    Environment,
    JobFailedError,
    JsonlSink,
    Limits,
    Options,
    Prepared,
    Restart,
    Sink,
    SinkContext,
    SinkWriter,
    StorageError,
)
from minirt.data.batch import Batch
from minirt.io import Handle
from minirt.storage.checkpoints import CheckpointStorage
from tests.runtime.campaign import compare, write_files
from tests.runtime.jobs import CASES, build, numbers_of
from tests.watch import Watch

COUNT = 600
RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]
ALL_TO_FILES = Options(limits=Limits(inline_snapshot_bytes=0))
ALLOWANCE = "allowance"
"""The file in the folder of the test with the number below which sources give numbers."""


class Outage:
    """Makes a folder unusable by putting a file in its place, until it is told to give it back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name(f"{folder.name}-aside")

    def begin(self) -> None:
        os.rename(self._folder, self._aside)
        self._folder.touch()

    def end(self) -> None:
        if self._aside.exists():
            self._folder.unlink()
            os.rename(self._aside, self._folder)


def allow(folder: Path, count: int) -> Path:
    """Let sources give the numbers below `count`; returns the file that tells them so."""
    path = folder / ALLOWANCE
    path.with_suffix(".new").write_text(str(count))
    os.replace(path.with_suffix(".new"), path)
    return path


def then_all(folder: Path, begin: Callable[[], None]) -> Callable[[], None]:
    """Return a call that makes storage fail and lets sources give the rest.

    However seldom checkpoints are, storage fails before the job has come to its end.
    """

    def called() -> None:
        begin()
        allow(folder, COUNT)

    return called


def run(folder: Path, watch: Watch, *, first: int = COUNT // 2, **settings: Any) -> Any:
    env = Environment("keyed", parallelism=2)
    allowance = allow(folder, first)
    write_files(build(CASES["keyed"], env, COUNT, per_second=1500, allowance=allowance), folder)
    checkpointing = settings.pop("tolerable_failures", 10)
    return env.execute(
        checkpointing=Checkpointing(
            str(folder / "checkpoints"), interval="20ms", tolerable_failures=checkpointing
        ),
        observer=watch,
        options=ALL_TO_FILES,
        **settings,
    )


@pytest.mark.parametrize("runner", RUNNERS)
def test_checkpoints_fail_while_storage_does_and_the_job_goes_on(runner, tmp_path):
    outage = Outage(tmp_path / "checkpoints")
    watch = Watch({("completed", 2): then_all(tmp_path, outage.begin), ("failed", 3): outage.end})
    result = run(tmp_path, watch, runner=runner)
    assert result.restarts == 0
    assert watch.seen["failed"] >= 3
    assert watch.seen["completed"] >= 3
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


@pytest.mark.parametrize("runner", RUNNERS)
def test_more_failures_than_tolerated_restart_the_job_until_storage_is_back(runner, tmp_path):
    outage = Outage(tmp_path / "checkpoints")
    watch = Watch({("completed", 2): then_all(tmp_path, outage.begin), ("restart", 3): outage.end})
    result = run(
        tmp_path,
        watch,
        runner=runner,
        tolerable_failures=1,
        restart=Restart.fixed_delay(10, "10ms"),
    )
    assert result.restarts >= 3
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


def test_a_job_whose_storage_stays_away_fails_in_the_end(tmp_path):
    outage = Outage(tmp_path / "checkpoints")
    watch = Watch({("completed", 2): then_all(tmp_path, outage.begin)})
    with pytest.raises(JobFailedError, match="failed after 2 restarts: cannot"):
        run(
            tmp_path,
            watch,
            runner="inline",
            tolerable_failures=0,
            restart=Restart.fixed_delay(2, "10ms"),
        )


@pytest.mark.parametrize("runner", RUNNERS)
def test_slow_manifests_delay_only_checkpoints(runner, tmp_path, monkeypatch):
    create = CheckpointStorage.create_manifest

    def slowly(self: CheckpointStorage, manifest: Any) -> bool:
        time.sleep(0.1)
        return create(self, manifest)

    monkeypatch.setattr(CheckpointStorage, "create_manifest", slowly)
    watch = Watch({})
    run(tmp_path, watch, first=COUNT, runner=runner)
    assert watch.seen["failed"] == 0
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


class UnreliableSink(JsonlSink):
    """Some of its commits fail, in the coordinator."""

    failing: tuple[int, ...] = ()
    commits = 0

    def commit(self, handles: Sequence[Handle]) -> None:
        UnreliableSink.commits += 1
        if UnreliableSink.commits in self.failing:
            raise StorageError("no route to the store")
        super().commit(handles)


@pytest.mark.parametrize("failing", [(2, 3), (1,), (4, 5, 6)])
def test_commits_that_fail_are_made_up_for(failing, tmp_path, monkeypatch):
    monkeypatch.setattr(UnreliableSink, "failing", failing)
    monkeypatch.setattr(UnreliableSink, "commits", 0)
    env = Environment()
    rows = numbers_of(env, COUNT, "numbers", per_second=1000).map(lambda n: {"n": n})
    rows.sink(UnreliableSink(tmp_path / "released"), uid="out")
    env.execute(
        runner="inline",
        checkpointing=Checkpointing(str(tmp_path / "checkpoints"), interval="20ms"),
    )
    assert UnreliableSink.commits > max(failing)
    assert compare(CASES["postponed"], COUNT, 1, tmp_path) == (0, 0)


def test_a_job_that_starts_over_does_not_continue_after_all_because_its_first_attempt_failed(
    tmp_path, monkeypatch
):
    checkpointing = Checkpointing(str(tmp_path), interval="20ms")

    def run_adding(added: int, **settings: Any) -> list[int]:
        env, sink = Environment(), CollectSink()
        numbers_of(env, 100, "numbers", per_second=None).map(lambda n: n + added).sink(sink)
        env.execute(runner="inline", checkpointing=checkpointing, **settings)
        return sorted(sink.rows)

    run_adding(0)
    resolve, attempts = CheckpointStorage.resolve_generation, []

    def fail_once(self: CheckpointStorage, *arguments: Any) -> bool:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise StorageError("no route to the store")
        return resolve(self, *arguments)

    monkeypatch.setattr(CheckpointStorage, "resolve_generation", fail_once)
    rows = run_adding(1000, restore="none", restart=Restart.fixed_delay(1, "10ms"))
    assert rows == list(range(1000, 1100))


class SlowSink(Sink):
    """Takes its time to make its output durable; the rows travel in its handles."""

    def __init__(self, rows: list[Any] | None = None) -> None:
        self._rows = rows

    def __reduce__(self) -> tuple[type[SlowSink], tuple[()]]:
        return (SlowSink, ())

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _SlowWriter()

    def commit(self, handles: Sequence[Handle]) -> None:
        assert self._rows is not None
        for handle in handles:
            self._rows += handle["rows"]


class _SlowWriter(SinkWriter):
    def __init__(self) -> None:
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self._rows += batch.rows().records

    def prepare(self, checkpoint_id: int) -> Prepared:
        rows, self._rows = self._rows, []
        return Prepared([{"rows": rows}], lambda: time.sleep(0.15))


@pytest.mark.processes
def test_a_slow_upload_does_not_hold_records_up(tmp_path):
    rows: list[Any] = []
    env, began = Environment(), time.monotonic()
    numbers_of(env, COUNT, "numbers", per_second=1000).rebalance().sink(SlowSink(rows))
    result = env.execute(checkpointing=Checkpointing(str(tmp_path), interval="10ms"))
    slowest = max(part["async_s"] for entry in result.checkpoints for part in entry["subtasks"])
    assert slowest >= 0.15
    assert max(part["sync_s"] for entry in result.checkpoints for part in entry["subtasks"]) < 0.15
    assert sorted(rows) == list(range(COUNT))
    assert time.monotonic() - began < 60


# A disk that is really full.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "minirt-test", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


class Filler:
    """Takes what is left of a disk, and gives it back."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "filler"

    def begin(self) -> None:
        with suppress(OSError), self._file.open("wb", 0) as file:
            while True:
                file.write(bytes(4096))

    def end(self) -> None:
        self._file.unlink(missing_ok=True)


@pytest.mark.processes
def test_checkpoints_fail_on_a_full_disk_and_complete_once_there_is_room(small_disk, tmp_path):
    filler = Filler(small_disk)
    watch = Watch({("completed", 2): then_all(tmp_path, filler.begin), ("failed", 2): filler.end})
    env = Environment("keyed", parallelism=2)
    allowance = allow(tmp_path, COUNT // 2)
    write_files(build(CASES["keyed"], env, COUNT, per_second=1500, allowance=allowance), tmp_path)
    result = env.execute(
        checkpointing=Checkpointing(str(small_disk / "checkpoints"), interval="20ms"),
        observer=watch,
        options=ALL_TO_FILES,
    )
    assert result.restarts == 0
    assert watch.seen["failed"] >= 2
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


@pytest.mark.processes
def test_a_sink_on_a_full_disk_restarts_the_job_and_loses_nothing(small_disk, tmp_path):
    filler = Filler(small_disk)
    watch = Watch({("completed", 2): then_all(tmp_path, filler.begin), ("restart", 2): filler.end})
    env = Environment("keyed", parallelism=2)
    allowance = allow(tmp_path, COUNT // 2)
    write_files(build(CASES["keyed"], env, COUNT, per_second=1500, allowance=allowance), small_disk)
    result = env.execute(
        checkpointing=Checkpointing(str(tmp_path / "checkpoints"), interval="20ms"),
        observer=watch,
        restart=Restart.fixed_delay(10, "10ms"),
    )
    assert result.restarts >= 2
    assert compare(CASES["keyed"], COUNT, 2, small_disk) == (0, 0)
