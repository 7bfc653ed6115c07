"""A long history read piece by piece tells what the whole history tells."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from minirt.inspect import Checkpoints, open_checkpoints
from minirt.inspect import summaries as module
from minirt.inspect.summaries import StoredSummaries, Summary
from minirt.operations.details import summary
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.reports import CheckpointReport, SubtaskReport
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.history import Run
from minirt.storage.store import ObjectStore
from minirt.ui.stored import StoredJob

_FAILURE = CheckpointFailure(CheckpointFailureReason.EXPIRED, "it expired", ("slow (2/2)",), 2)


def _report(id: int) -> CheckpointReport:
    parts = tuple(
        SubtaskReport("slow", 0, n, in_flight_bytes=id, unaligned=id % 3 == 0) for n in range(2)
    )
    failed = id % 7 == 0
    return CheckpointReport(
        *(id, 1, "unaligned", "checkpoint", 100.0 + id, 0.5, None if failed else 9),
        parts,
        _FAILURE if failed else None,
    )


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"memory://{tmp_path}"


@pytest.fixture
def storage(root: str) -> CheckpointStorage:
    """Some runs of 64 entries."""
    stored = CheckpointStorage(ObjectStore(root), 0)
    for id in range(1, 201):
        stored.append_history(_report(id).to_plain())
    return stored


@pytest.fixture
def checkpoints(storage: CheckpointStorage, root: str) -> Checkpoints:
    return open_checkpoints(root)


def test_each_call_reads_for_a_while_the_newest_first(checkpoints: Checkpoints) -> None:
    read = StoredSummaries(checkpoints, read_s=0.0)
    seen = []
    while not read.complete:
        ids = [one.checkpoint_id for one, _ in read.read()]
        assert ids == [*range(ids[0], 201)]
        seen.append(len(ids))
    assert len(seen) > 3
    assert seen == sorted(set(seen))
    assert seen[-1] == 200


def test_summaries_are_those_of_the_whole_history(checkpoints: Checkpoints) -> None:
    found = StoredSummaries(checkpoints).read()
    whole = checkpoints.history()
    assert found == [(Summary.of(report), report.stored) for report in whole]
    assert [stored for _, stored in found[5:8]] == ["deleted", "no", "deleted"]


def test_a_page_of_storage_shows_what_a_running_job_would_tell(checkpoints: Checkpoints) -> None:
    told = StoredJob(checkpoints).read()
    assert told.checkpoints == [summary(report) for report in checkpoints.history()]
    assert set(asdict(Summary.of(_report(1)))) - {"completed"} < set(told.checkpoints[0])


def test_only_runs_that_have_grown_are_read_again(
    checkpoints: Checkpoints, storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoredSummaries(checkpoints)
    read.read()
    storage.append_history(_report(201).to_plain())
    asked: list[Run] = []
    whole = CheckpointStorage.history_of

    def noted(self: CheckpointStorage, run: Run) -> list[dict[str, object]]:
        asked.append(run)
        return whole(self, run)

    monkeypatch.setattr(CheckpointStorage, "history_of", noted)
    assert read.read()[-1][0].checkpoint_id == 201
    assert len(asked) == 1
    assert read.read()[-1][0].checkpoint_id == 201
    assert len(asked) == 1


def test_one_checkpoint_is_found_with_its_parts(checkpoints: Checkpoints) -> None:
    read = StoredSummaries(checkpoints)
    read.read()
    found = read.report(ManifestKey(17, 1))
    assert found == replace(_report(17), stored=None)
    assert read.report(ManifestKey(17, 2)) is None


def test_no_more_than_the_newest_are_kept(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUMMARIES_MAX", 70)
    read = StoredSummaries(checkpoints)
    ids = [one.checkpoint_id for one, _ in read.read()]
    assert read.complete
    assert ids == [*range(131, 201)]


def test_a_history_longer_than_the_default_is_read_whole(root: str) -> None:
    stored = CheckpointStorage(ObjectStore(root), 0, history_entries=1500)
    for id in range(1, 1051):
        stored.append_history(replace(_report(id), subtasks=()).to_plain())
    assert len(open_checkpoints(root).history()) == 1050
