"""Mode epoch in a whole job: sources stand still while an epoch is stored, and read on behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

import minirt as rt
from minirt.testing import TransactionalSink
from tests.runtime.stepped import SteppedJob

COUNT = 1000


def job_of(sink: TransactionalSink, folder: Path, mode: str) -> SteppedJob:
    env = rt.Environment(parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT, splits=2), uid="numbers")
    numbers.rebalance().map(lambda n: n, uid="same").sink(sink, uid="out")
    return SteppedJob(env, folder, mode=mode)


def read_by_sources(job: SteppedJob) -> int:
    return sum(s.metrics.records_out for s in job.subtasks if s.input.is_source)


@pytest.mark.parametrize("mode", ["epoch", "aligned"])
def test_all_that_was_read_is_committed_and_nothing_else_was_read(
    mode: str, tmp_path: Path
) -> None:
    sink = TransactionalSink()
    job = job_of(sink, tmp_path, mode)
    job.work(5)
    before = read_by_sources(job)
    job.checkpoint(working=True)
    assert len(sink.rows) == before > 0
    assert (read_by_sources(job) == before) == (mode == "epoch")
    job.work(5)
    assert read_by_sources(job) > before
    job.finish()
    assert sorted(sink.rows) == [*range(COUNT)]
