"""Contracts of storages and sinks, and a job whose worker is killed, on the clouds of Google and Azure."""

from __future__ import annotations

import signal

import pytest

import minirt as rt
from minirt.io import ParquetSink
from minirt.storage.store import ObjectStore
from tests.clouds.servers import Cloud
from tests.contracts.storage_contract import StorageContract
from tests.io.test_file_sinks import FileSinkContract
from tests.runtime.processes import needs_proc, send, workers
from tests.s3.jobs import check_output, environment, write_input
from tests.watch import Watch


class TestStorage(StorageContract):
    races = 10

    @pytest.fixture
    def store(self, cloud: Cloud, prefix: str) -> ObjectStore:
        return ObjectStore(f"{prefix}/checkpoints/job", cloud.options)


class TestParquetSink(FileSinkContract):
    sink_class = ParquetSink

    @pytest.fixture(autouse=True)
    def _target(self, cloud: Cloud, prefix: str) -> None:
        self.target = f"{prefix}/not/yet/there"
        self.storage_options = cloud.options


@pytest.mark.processes
@needs_proc
def test_a_job_whose_worker_is_killed_puts_out_everything_exactly_once(
    cloud: Cloud, prefix: str
) -> None:
    write_input(cloud, prefix)

    def kill() -> None:
        assert send(workers()[0], signal.SIGKILL)

    result = environment(prefix, cloud.options, parallelism=2, min_pause="100ms").execute(
        observer=Watch({("completed", 1): kill})
    )
    assert result.status is rt.JobStatus.FINISHED
    assert result.restarts >= 1
    check_output(cloud, prefix)
    assert not [path for path in cloud.filesystem().find(prefix) if "/_minirt/" in path]
