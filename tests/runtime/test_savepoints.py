"""Savepoints of jobs in real processes: taken, stopped with, drained with, moved and restored."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    Checkpointing,
    ConfigurationError,
    DiscardSink,
    Environment,
    Job,
    JobStatus,
    JsonlSink,
    KeyedContext,
    KeyedProcess,
    Limits,
    Options,
    Savepoint,
    SavepointFailedError,
    SequenceSource,
    StorageError,
    Watermarks,
)
from minirt.modes import MODES
from minirt.modes.aligned import Aligned
from minirt.modes.aligned_with_timeout import AlignedWithTimeout
from minirt.runtime.coordinator.storage_tasks import StorageTasks
from tests.campaigns import soaked
from tests.runtime.campaign import compare, read_files, write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import wait_until
from tests.runtime.test_backpressure import ten_a_second

pytestmark = pytest.mark.processes

COUNT = 1500
_LET_GO = "let-go"
FILES = Options(limits=Limits(inline_snapshot_bytes=0))

Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the keyed job, which ends once it is let go; what still runs is cancelled after the test."""
    jobs: list[Job] = []

    def started(parallelism: int = 2, storage: str = "checkpoints", **settings: Any) -> Job:
        env = Environment("keyed", parallelism=parallelism)
        outputs = build(CASES["keyed"], env, COUNT, per_second=2000, let_go=tmp_path / _LET_GO)
        write_files(outputs, tmp_path)
        checkpointing = Checkpointing(tmp_path / storage, interval="20ms", retain=1)
        jobs.append(env.start(checkpointing=checkpointing, options=FILES, **settings))
        return jobs[-1]

    yield started
    for job in jobs:
        job.cancel()
        job.wait(20)


def let_go(folder: Path) -> None:
    (folder / _LET_GO).touch()


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def kept(folder: Path) -> int:
    return len(list((folder / "checkpoints" / "manifests").glob("*")))


def put_out(folder: Path) -> Callable[[], bool]:
    return lambda: bool(read_files(folder / "ledger"))


def test_a_job_is_stopped_moved_and_restored_at_another_parallelism(start, tmp_path):
    job = start(parallelism=2)
    wait_until(put_out(tmp_path), "the first output")
    savepoint = job.stop(tmp_path / "savepoint", timeout=60)
    result = job.wait(20)
    assert (result.status, result.savepoint) == (JobStatus.STOPPED, savepoint)
    assert savepoint.path == str(tmp_path / "savepoint")
    shutil.rmtree(tmp_path / "checkpoints")
    shutil.move(tmp_path / "savepoint", tmp_path / "moved")
    before = content(tmp_path / "moved")
    let_go(tmp_path)
    finished = start(parallelism=3, storage="others", restore=str(tmp_path / "moved")).wait(60)
    assert finished.status is JobStatus.FINISHED
    assert compare(CASES["keyed"], COUNT, 3, tmp_path) == (0, 0)
    assert content(tmp_path / "moved") == before


@pytest.mark.parametrize("mode", ["unaligned", "aligned", *soaked(None, MODES["unaligned"])])
def test_a_job_goes_on_after_a_savepoint_that_outlives_its_checkpoints(start, tmp_path, mode):
    job = start()
    wait_until(put_out(tmp_path), "the first output")
    copied = job.savepoint(tmp_path / "copy", mode, timeout=60)
    stays = job.savepoint(mode=mode, timeout=60)
    assert isinstance(copied, Savepoint)
    assert copied.bytes > 0
    let_go(tmp_path)
    assert job.wait(60).savepoint is None
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)
    assert kept(tmp_path) == 2, "the newest checkpoint, and the savepoint that stays"
    whole = before = len(read_files(tmp_path / "ledger"))
    for number, restored_from in enumerate((copied, stays)):
        start(storage=f"others-{number}", restore=restored_from.path).wait(60)
        after = len(read_files(tmp_path / "ledger"))
        assert 0 < after - before < whole
        before = after


def test_a_restart_goes_on_from_the_savepoint_as_long_as_there_is_nothing_newer(start, tmp_path):
    job = start()
    wait_until(put_out(tmp_path), "the first output")
    savepoint = job.stop(tmp_path / "savepoint", timeout=60)
    job = start(storage="others", restore=savepoint.path)
    wait_until(lambda: job.status is JobStatus.RUNNING, "the restored job")
    os.kill(next(iter(job.progress.pids.values())), signal.SIGKILL)
    let_go(tmp_path)
    assert job.wait(60).restarts == 1
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)


# Under backpressure, barriers of an aligned savepoint wait for minutes.


@pytest.fixture
def congested(tmp_path: Path) -> Iterator[Job]:
    env = Environment()
    numbers = env.source(SequenceSource.endless(), uid="numbers").rebalance()
    slow = numbers.map(lambda n: f"{n:0200}").rebalance().map(ten_a_second, name="slow")
    slow.sink(DiscardSink())
    checkpointing = Checkpointing(tmp_path / "checkpoints", interval="1h", timeout="5s")
    job = env.start(checkpointing=checkpointing, options=FILES)

    def is_full() -> bool:
        figures = job.progress.metrics.values()
        return any(metrics.soft_backpressure_s > 0.5 for metrics in figures)

    wait_until(is_full, "backpressure")
    yield job
    job.cancel()
    job.wait(20)


def test_an_unaligned_savepoint_overtakes_what_an_aligned_one_waits_for(congested, tmp_path):
    savepoint = congested.savepoint(tmp_path / "overtaking", "unaligned", timeout=60)
    assert savepoint.bytes > 100_000
    with pytest.raises(SavepointFailedError, match="expired after 5 s"):
        congested.savepoint(tmp_path / "waiting", "aligned", timeout=60)
    assert not (tmp_path / "waiting" / "manifests").exists()
    assert congested.status is JobStatus.RUNNING


def test_a_savepoint_fails_with_the_worker_that_is_killed_and_the_job_goes_on(congested, tmp_path):
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(congested.savepoint, None, "aligned", timeout=60)
        part = "chk-00000001-*/*.part"
        wait_until(lambda: bool(list((tmp_path / "checkpoints").glob(part))), "the first part")
        os.kill(next(iter(congested.progress.pids.values())), signal.SIGKILL)
        with pytest.raises(SavepointFailedError, match="SIGKILL"):
            waiting.result(60)
    assert congested.savepoint(mode="unaligned", timeout=60).mode == "unaligned"
    assert congested.restarts == 1


# Drain.


class Spans(KeyedProcess):
    """Puts out the sum of each span of 1000 numbers, once event time has passed it."""

    def process(self, record: int, ctx: KeyedContext) -> Iterable[dict[str, int]]:
        ctx.set_timer(record // 1000 * 1000 + 999)
        return [{"seen": record}]

    def on_timer(self, timestamp: int, ctx: KeyedContext) -> Iterable[dict[str, int]]:
        return [{"until": timestamp}]


def test_a_drained_job_ends_event_time_and_goes_on_behind_what_it_has_read(tmp_path):
    def spans(source: SequenceSource, **settings: Any) -> Job:
        env = Environment(parallelism=2)
        watermarks = Watermarks.monotonous(timestamp=lambda n: n)
        numbers = env.source(source, uid="numbers", watermarks=watermarks)
        spans = numbers.key_by(lambda n: n % 3).process(Spans(), uid="spans")
        spans.sink(JsonlSink(tmp_path / "out"), uid="out")
        return env.start(**settings)

    checkpointing = Checkpointing(tmp_path / "checkpoints", interval="20ms")
    job = spans(SequenceSource.endless(splits=1), checkpointing=checkpointing)
    wait_until(lambda: bool(read_files(tmp_path / "out")), "the first output")
    savepoint = job.drain(timeout=60)
    assert job.wait(20).status is JobStatus.STOPPED
    rows = read_files(tmp_path / "out")
    seen = sorted(row["seen"] for row in rows if "seen" in row)
    assert seen == list(range(len(seen)))
    assert max(row["until"] for row in rows if "until" in row) >= seen[-1]

    elsewhere = Checkpointing(tmp_path / "others", interval="20ms")
    again = spans(SequenceSource.endless(splits=1), checkpointing=elsewhere, restore=savepoint.path)
    wait_until(lambda: len(read_files(tmp_path / "out")) > len(rows), "more output")
    again.stop(timeout=60)
    more = sorted(row["seen"] for row in read_files(tmp_path / "out") if "seen" in row)
    assert len(more) > len(seen)
    assert more == list(range(len(more)))


def spans_by_window(folder: Path) -> Callable[..., Job]:
    def started(**settings: Any) -> Job:
        env = Environment(parallelism=2)
        watermarks = Watermarks.monotonous(timestamp=lambda n: n)
        numbers = env.source(SequenceSource.endless(splits=1), uid="numbers", watermarks=watermarks)
        spans = numbers.key_by(lambda n: n % 3).process(Spans(), uid="spans")
        spans.sink(JsonlSink(folder / "out"), uid="out")
        checkpointing = Checkpointing(folder / "checkpoints", interval="20ms")
        return env.start(checkpointing=checkpointing, **settings)

    return started


def fired_twice(folder: Path) -> int:
    """Spans that more than the three keys have given out."""
    times = Counter(row["until"] for row in read_files(folder / "out") if "until" in row)
    return sum(count > 3 for count in times.values())


def test_a_worker_that_is_killed_while_a_drain_is_copied_changes_nothing(tmp_path, monkeypatch):
    publish = StorageTasks._publish

    def killing(self: StorageTasks, manifest: Any, path: str) -> Any:
        os.kill(next(iter(job.progress.pids.values())), signal.SIGKILL)
        time.sleep(0.5)
        return publish(self, manifest, path)

    monkeypatch.setattr(StorageTasks, "_publish", killing)
    job = spans_by_window(tmp_path)()
    wait_until(lambda: bool(read_files(tmp_path / "out")), "the first output")
    savepoint = job.drain(tmp_path / "savepoint", timeout=60)
    assert (job.wait(20).status, job.restarts) == (JobStatus.STOPPED, 0)
    assert savepoint.path == str(tmp_path / "savepoint")
    assert fired_twice(tmp_path) == 0


def test_the_next_start_completes_a_drain_whose_program_died(tmp_path, monkeypatch):
    start, to_be_copied = spans_by_window(tmp_path), threading.Event()
    with monkeypatch.context() as dying, ThreadPoolExecutor(1) as thread:
        dying.setattr(StorageTasks, "_publish", lambda self, manifest, path: to_be_copied.set())
        job = start()
        wait_until(lambda: bool(read_files(tmp_path / "out")), "the first output")
        drained = thread.submit(job.drain, tmp_path / "savepoint", timeout=60)
        wait_until(to_be_copied.is_set, "the drain to be stored and committed")
        job.cancel()
        job.wait(20)
        with pytest.raises(SavepointFailedError, match="the job was cancelled"):
            drained.result(20)
    rows = read_files(tmp_path / "out")
    (tmp_path / "savepoint" / "manifests").mkdir(parents=True)
    again = start(restore="latest").wait(60)
    assert again.status is JobStatus.STOPPED
    assert again.savepoint is not None
    assert again.savepoint.path == str(tmp_path / "savepoint")
    assert read_files(tmp_path / "out") == rows
    third = start(restore="latest")  # The drain is over: whoever starts now wants to read on.
    wait_until(lambda: len(read_files(tmp_path / "out")) > len(rows), "more output")
    third.cancel()
    third.wait(20)


# What is refused.


def test_a_savepoint_that_cannot_work_is_refused_before_the_job_notices(start, tmp_path):
    job = start()
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "photo.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(ConfigurationError, match=f"{taken} is not empty"):
        job.savepoint(taken)
    with pytest.raises(StorageError, match="cannot"):
        job.stop(taken / "photo.jpg" / "below")
    with pytest.raises(ConfigurationError, match="do not know the checkpoint mode 'none'; they"):
        job.savepoint(mode="none")
    other = r"know .* aligned_with_timeout as .*, not as .*'5s'.*: give its name, 'aligned_with"
    with pytest.raises(ConfigurationError, match=other):
        job.savepoint(mode=AlignedWithTimeout("5s"))
    let_go(tmp_path)
    assert job.wait(60).status is JobStatus.FINISHED


@pytest.mark.parametrize(
    ("of_job", "given"),
    [
        ("aligned", Aligned()),
        ("aligned", AlignedWithTimeout()),
        (AlignedWithTimeout("20ms"), AlignedWithTimeout("20ms")),
        (AlignedWithTimeout("20ms"), AlignedWithTimeout(0.02)),
    ],
)
def test_a_mode_that_is_equal_to_one_of_the_job_is_the_same(tmp_path, of_job, given):
    env = Environment()
    env.source(SequenceSource.endless(splits=1), uid="numbers").sink(DiscardSink(), uid="out")
    job = env.start(checkpointing=Checkpointing(tmp_path, mode=of_job))
    assert job.savepoint(mode=given, timeout=60).mode == given.name
    job.cancel()
    job.wait(20)


def test_a_job_without_checkpointing_has_no_savepoints():
    env = Environment()
    env.source(SequenceSource.endless()).sink(DiscardSink())
    job = env.start()
    for ask in (job.savepoint, job.stop, job.drain):
        with pytest.raises(ConfigurationError, match="needs a job with checkpointing"):
            ask()
    job.cancel()
    job.wait(20)
    with pytest.raises(ConfigurationError, match="needs a job with checkpointing"):
        job.savepoint()


def test_a_job_that_has_ended_has_no_savepoints(start):
    job = start()
    job.cancel()
    job.wait(20)
    with pytest.raises(SavepointFailedError, match="the job has ended: cancelled"):
        job.savepoint()


def test_a_path_that_fills_up_meanwhile_fails_a_stop_and_the_job_goes_on(
    start, tmp_path, monkeypatch
):
    publish = StorageTasks._publish

    def disturbed(self: StorageTasks, manifest: Any, path: str) -> Any:
        (Path(path) / "stranger").write_text("I was here first")
        return publish(self, manifest, path)

    monkeypatch.setattr(StorageTasks, "_publish", disturbed)
    job = start()
    wait_until(put_out(tmp_path), "the first output")
    with pytest.raises(SavepointFailedError, match=r"is not empty.*the checkpoint itself is"):
        job.stop(tmp_path / "savepoint", timeout=60)
    let_go(tmp_path)
    assert job.wait(60).status is JobStatus.FINISHED
    assert compare(CASES["keyed"], COUNT, 2, tmp_path) == (0, 0)
