"""A drain, and a savepoint, that has to wait behind full queues says so."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import minirt as rt
from minirt.monitoring.queued import queued_in_words
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.runtime.coordinator.observer import JobProgress
from minirt.runtime.program import job as job_module
from tests.runtime.processes import wait_until


def test_words_name_what_is_queued_and_before_whom_most_of_it() -> None:
    ids = [SubtaskId(0, 0), SubtaskId(1, 0), SubtaskId(1, 1)]
    queues = [(0, 500), (2000, 0), (30_000, 7)]
    metrics = {
        id: SubtaskMetrics(queued_in_bytes=in_bytes, queued_out_bytes=out_bytes)
        for id, (in_bytes, out_bytes) in zip(ids, queues, strict=True)
    }
    names = dict(zip(ids, ("source (1/1)", "slow (1/2)", "slow (2/2)"), strict=True))
    assert queued_in_words(JobProgress(metrics, names, {})) == (
        "32,507 bytes are queued, most of them before slow (2/2): 30,000"
    )
    assert queued_in_words(JobProgress({}, {}, {})) == "0 bytes are queued"


@pytest.mark.processes
def test_a_drain_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_module, "_SAYS_AFTER_S", 0.3)

    def slowly(number: int) -> int:
        time.sleep(0.002)
        return number

    env = rt.Environment()
    numbers = env.source(rt.SequenceSource.endless()).rebalance()
    numbers.map(slowly, uid="slow", name="slow", chain=False).sink(rt.DiscardSink())
    small = rt.Limits(input_queue_bytes=2000, output_queue_bytes=2000, frame_bytes=500)
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "store", interval="1h"),
        options=rt.Options(limits=small),
    )
    wait_until(
        lambda: any(one.queued_in_bytes > 1000 for one in job.progress.metrics.values()),
        "full queues",
    )
    with caplog.at_level(logging.WARNING, logger="minirt.job"):
        job.drain(tmp_path / "drained", timeout=60)
    said = [record.getMessage() for record in caplog.records]
    assert any("has no savepoint after" in words and "before slow" in words for words in said), said
