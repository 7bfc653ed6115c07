"""What is remembered of checkpoints, and that it outlives the job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from minirt import Checkpointing, CollectSink, Environment, Limits, Options, Restart
from minirt.storage.checkpoints import COMMITTED, CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.runtime.jobs import CASES, build, numbers_of

RUNNERS = ["inline", pytest.param("processes", marks=pytest.mark.processes)]


def history(folder: Path) -> list[dict[str, Any]]:
    return CheckpointStorage(ObjectStore(str(folder)), 0).history()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("mode", ["aligned", "at_least_once"])
def test_the_history_has_the_parts_of_every_subtask_and_survives_the_job(runner, mode, tmp_path):
    env = Environment(parallelism=2)
    for stream in build(CASES["keyed"], env, 600, per_second=2000).values():
        stream.sink(CollectSink())
    result = env.execute(
        runner=runner,
        checkpointing=Checkpointing(str(tmp_path), interval="30ms", mode=mode),
        options=Options(limits=Limits(inline_snapshot_bytes=0)),
    )
    entries = history(tmp_path)
    told = [{name: entry[name] for name in entry if name != COMMITTED} for entry in entries]
    assert told == [report.to_plain() for report in result.checkpoints]
    assert all(entry[COMMITTED] for entry in entries)
    assert [entry["status"] for entry in entries] == ["completed"] * len(entries)
    assert [entry["checkpoint_id"] for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry["kind"] for entry in entries][-1] == "final"
    for entry in entries:
        assert entry["mode"] == mode
        parts = entry["subtasks"]
        assert len(parts) == 4
        assert entry["bytes"] == sum(part["state_bytes"] for part in parts)
        for part in parts:
            durations = [
                part[name] for name in ("start_delay_s", "alignment_s", "sync_s", "async_s")
            ]
            assert all(duration >= 0 for duration in durations)
            # Each ran after the one before it, and the acknowledgement came last.
            assert sum(durations) <= part["acknowledged_after_s"] + 0.001
            assert part["acknowledged_after_s"] <= entry["duration_s"] + 0.001
            assert part["in_flight_bytes"] == 0
            assert not part["unaligned"]
    last = {part["name"]: part["state_bytes"] for part in entries[-1]["subtasks"]}
    assert all(size > 0 for size in last.values())


@pytest.mark.processes  # Inline, whatever holds a checkpoint up holds its coordinator up as well.
def test_a_checkpoint_that_takes_too_long_is_given_up_with_its_reason(tmp_path):
    def slow_at_times(record: int) -> int:
        if record in (50, 100, 150):
            time.sleep(0.5)
        return record

    env, sink = Environment(), CollectSink()
    numbers = numbers_of(env, 300, "numbers", per_second=500)
    numbers.rebalance().map(slow_at_times).sink(sink)
    env.execute(checkpointing=Checkpointing(str(tmp_path), interval="20ms", timeout="200ms"))
    entries = history(tmp_path)
    expired = [entry for entry in entries if entry["status"] == "failed"]
    assert expired
    assert "expired after 0.2 s with" in expired[0]["reason"]
    assert entries[-1]["status"] == "completed"
    assert sorted(sink.rows) == list(range(300))


@pytest.mark.processes
def test_a_checkpoint_that_a_failure_cut_short_is_recorded_with_the_failure(tmp_path):
    flag = tmp_path / "flag"

    def fail_once(record: int) -> int:
        if record == 100 and not flag.exists():
            flag.touch()
            time.sleep(0.3)
            raise RuntimeError("disturbed")
        return record

    env = Environment()
    numbers_of(env, 200, "numbers", per_second=1000).map(fail_once).sink(CollectSink())
    folder = tmp_path / "checkpoints"
    env.execute(
        checkpointing=Checkpointing(str(folder), interval="10ms"),
        restart=Restart.fixed_delay(1, "10ms"),
    )
    (failed,) = [entry for entry in history(folder) if entry["status"] == "failed"]
    assert "RuntimeError: disturbed" in failed["reason"]
    assert failed["generation"] == 1
    assert history(folder)[-1]["generation"] == 2
