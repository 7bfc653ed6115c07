"""Checkpoints that start aligned and switch, in whole jobs, and what is remembered of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from minirt import (
    AlignedWithTimeout,
    Checkpointing,
    CollectSink,
    DiscardSink,
    Environment,
    Job,
    Limits,
    Options,
    SequenceSource,
)
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.runtime.jobs import numbers_of
from tests.runtime.processes import wait_until

SMALL = Options(limits=Limits(input_queue_bytes=32 * 1024, output_queue_bytes=32 * 1024))


def completed(folder: Path) -> list[dict[str, Any]]:
    entries = CheckpointStorage(ObjectStore(str(folder)), 0).history()
    return [entry for entry in entries if entry["status"] == "completed"]


def slowly(record: int) -> int:
    time.sleep(0.05)
    return record


def backpressured(mode: AlignedWithTimeout, folder: Path) -> Job:
    """A job whose queues would take minutes to empty."""
    env = Environment()
    numbers = env.source(SequenceSource.endless(), uid="numbers")
    numbers.rebalance().map(slowly, uid="slow").sink(DiscardSink(), uid="out")
    checkpointing = Checkpointing(str(folder), interval="500ms", mode=mode)
    return env.start(checkpointing=checkpointing, options=SMALL)


@pytest.mark.processes
def test_source_under_full_backpressure_completes_at_the_timeout(tmp_path: Path) -> None:
    job = backpressured(AlignedWithTimeout(timeout="300ms"), tmp_path)
    try:
        wait_until(lambda: len(completed(tmp_path)) >= 3, "three checkpoints")
    finally:
        job.cancel()
        job.wait(20)
    entry = completed(tmp_path)[2]
    source, slow = entry["subtasks"]
    (at_outputs,) = source["switches"]
    assert at_outputs["where"] == "outputs"
    assert at_outputs["after_s"] >= 0.3
    assert at_outputs["reason"].endswith("s passed the timeout 0.3 s")
    (at_inputs,) = slow["switches"]
    assert at_inputs["where"] == "inputs and outputs"
    assert at_inputs["after_s"] >= 0.3
    for subtask in (source, slow):
        assert subtask["unaligned"]
        assert subtask["in_flight_bytes"] > 0
        assert sum(part["bytes"] for part in subtask["channels"]) == subtask["in_flight_bytes"]
    assert [(part["side"], part["link"]) for part in source["channels"]] == [
        ("out", "numbers > slow:0")
    ]
    assert [part["side"] for part in slow["channels"]] == ["in"]
    # The source had nothing to wait for but its own barrier.
    assert source["alignment_s"] == 0


@pytest.mark.processes
def test_small_queues_are_captured_without_waiting_for_the_timeout(tmp_path: Path) -> None:
    job = backpressured(AlignedWithTimeout(timeout=None, switch_below="1MiB"), tmp_path)
    try:
        wait_until(lambda: len(completed(tmp_path)) >= 3, "three checkpoints")
    finally:
        job.cancel()
        job.wait(20)
    for subtask in completed(tmp_path)[2]["subtasks"]:
        (switch,) = subtask["switches"]
        assert switch["reason"].endswith("B <= switch_below 1048576 B")
        # What it was said to cost is what it cost.
        assert switch["reason"] == (
            f"size {subtask['in_flight_bytes']} B <= switch_below 1048576 B"
        )


RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]


@pytest.mark.parametrize("runner", RUNNERS)
def test_without_backpressure_nothing_switches(runner: str, tmp_path: Path) -> None:
    env, sink = Environment(parallelism=2), CollectSink()
    numbers_of(env, 400, "numbers", per_second=2000).rebalance().map(str).sink(sink)
    mode = AlignedWithTimeout(timeout="9min")
    checkpointing = Checkpointing(str(tmp_path), interval="30ms", mode=mode)
    env.execute(runner=runner, checkpointing=checkpointing)
    assert sorted(sink.rows) == sorted(map(str, range(400)))
    entries = completed(tmp_path)
    assert {entry["mode"] for entry in entries} == {"aligned_with_timeout"}
    for entry in entries:
        for subtask in entry["subtasks"]:
            assert (subtask["switches"], subtask["channels"]) == ([], [])
            assert not subtask["unaligned"]
