"""What a job answers that is not the job any more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import minirt as rt
from minirt.operations.exchange import JobHasEndedError
from minirt.operations.registry import Registry
from minirt.operations.running import LocalJob
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import LeaseReader
from minirt.storage.store import ObjectStore
from tests.runtime.processes import wait_until

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("request_", ["cancel", "savepoint"])
def test_who_was_replaced_does_nothing_in_the_name_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    """It has not noticed yet: neither a lease nor a checkpoint was due since."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    env = rt.Environment("replaced")
    env.source(rt.SequenceSource.endless()).sink(rt.DiscardSink())
    storage = tmp_path / "checkpoints"
    job = env.start(
        checkpointing=rt.Checkpointing(storage, interval="1h"),
        options=rt.Options(limits=rt.Limits(lease_s=1000.0, lease_timeout_s=3000.0)),
    )
    try:
        wait_until(lambda: job.status is rt.JobStatus.RUNNING, "the job runs")
        registry = Registry.of_user()
        [entry] = registry.entries()
        known = LocalJob(entry, registry)
        assert known.ask({"request": "status"}, 30)["status"] == "running"
        store = ObjectStore(str(storage))
        wait_until(
            lambda: LeaseReader(store).read()[1] is not None, "the lease is written, for long"
        )
        CheckpointStorage(store, 1000).claim_generation()
        with pytest.raises(JobHasEndedError, match=f": process {os.getpid()} of host .*; ask that"):
            known.ask({"request": request_}, 30)
        assert job.status is rt.JobStatus.RUNNING, "it refuses before it acts"
    finally:
        job.cancel()
        job.wait_for_end()
