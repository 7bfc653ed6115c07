"""Savepoints of jobs with direct delivery: what they hold is committed, and no transaction stays open."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import minirt as rt
from tests.kafka.broker import Cluster, ids
from tests.kafka.test_direct import direct, open_ones
from tests.runtime.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.processes]

SPLITS = 4


class Jobs:
    """Starts of one job, each with a storage of its own; it writes numbers to a topic."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.topic = cluster.topic(2)
        self.uid = f"out-{self.topic}"

    @contextmanager
    def started(
        self, parallelism: int, restore: Path | None = None, topic: str | None = None
    ) -> Iterator[rt.Job]:
        def slowly(number: int) -> dict[str, int]:
            time.sleep(0.002)
            return {"id": number}

        place = self.folder / f"chk-{time.monotonic_ns()}"
        sink = direct(self.cluster, topic or self.topic, ledger=f"ledger-{self.topic}")
        env = rt.Environment("direct", parallelism=parallelism)
        numbers = env.source(rt.SequenceSource.endless(splits=SPLITS), uid="numbers")
        numbers.map(slowly, uid="slowly").sink(sink, uid=self.uid)
        job = env.start(
            checkpointing=rt.Checkpointing(place, interval="100ms"),
            restore=None if restore is None else str(restore),
        )
        try:
            yield job
        finally:
            job.cancel()
            job.wait_for_end()

    def wait_for_more(self, topic: str | None = None) -> None:
        begin = len(ids(self.cluster, topic or self.topic))
        wait_until(
            lambda: len(ids(self.cluster, topic or self.topic)) > begin + 100, "records come", 60
        )

    def open_ones(self) -> list[str]:
        return [id for id in open_ones(self.cluster) if id.startswith(f"minirt-{self.uid[:30]}")]


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Jobs:
    return Jobs(cluster, tmp_path)


def without_gaps(numbers: set[int]) -> bool:
    """Whether each split has given its numbers from the first to the last."""
    by_split = [sorted(n for n in numbers if n % SPLITS == split) for split in range(SPLITS)]
    return all(
        own == list(range(split, split + SPLITS * len(own), SPLITS))
        for split, own in enumerate(by_split)
    )


def test_a_job_is_stopped_and_goes_on_elsewhere_at_another_parallelism(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
) -> None:
    with jobs.started(2) as job:
        jobs.wait_for_more()
        assert jobs.open_ones()
        job.stop(tmp_path / "first")
    assert jobs.open_ones() == []
    stopped = ids(cluster, jobs.topic)
    with jobs.started(3, restore=tmp_path / "first") as job:
        jobs.wait_for_more()
        job.stop(tmp_path / "second")
    found = ids(cluster, jobs.topic)
    assert len(found) > len(stopped)
    assert len(found) == len(set(found))
    assert without_gaps(set(found))


def test_an_older_savepoint_commits_nothing_again_and_repeats_what_came_since(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
) -> None:
    with jobs.started(2) as job:
        jobs.wait_for_more()
        job.stop(tmp_path / "first")
    before = set(ids(cluster, jobs.topic))
    for _ in range(2):
        with jobs.started(1, restore=tmp_path / "first") as job:
            jobs.wait_for_more()
            job.stop(tmp_path / f"later-{time.monotonic_ns()}")
    counted = Counter(ids(cluster, jobs.topic))
    assert {counted[number] for number in before} == {1}
    since = counted.keys() - before
    assert {counted[number] for number in since} <= {1, 2}
    assert 2 in {counted[number] for number in since}
    assert without_gaps(set(counted))


@pytest.mark.soak
def test_a_savepoint_of_a_job_that_goes_on_is_restored_beside_it_into_another_topic(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
) -> None:
    other = cluster.topic(2)
    with jobs.started(2) as job:
        jobs.wait_for_more()
        job.savepoint(tmp_path / "copy")
        with jobs.started(1, restore=tmp_path / "copy", topic=other) as fork:
            jobs.wait_for_more(other)
            jobs.wait_for_more()  # Nobody has ended the transactions of the first job.
            fork.stop(tmp_path / "of-fork")
        job.stop(tmp_path / "end")
    found, forked = ids(cluster, jobs.topic), ids(cluster, other)
    assert len(found) == len(set(found))
    assert len(forked) == len(set(forked))
    assert without_gaps(set(found))
    assert without_gaps({*found, *forked})
    assert min(forked) > 0
