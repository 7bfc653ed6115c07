"""The contracts of storages and sinks, on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirt.errors import ConfigurationError
from minirt.io import JsonlSink, ParquetSink
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.savepoints import check_target, copy_checkpoint
from minirt.storage.store import ObjectStore
from tests.contracts.storage_contract import StorageContract
from tests.io.test_file_sinks import FileSinkContract
from tests.s3.endpoint import Endpoint
from tests.storage.scenario import complete, restore_point, started, storage_of


class TestStorage(StorageContract):
    races = 10

    @pytest.fixture
    def store(self, prefix: str) -> ObjectStore:
        return ObjectStore(f"{prefix}/checkpoints/job")


class _SinkContract(FileSinkContract):
    @pytest.fixture(autouse=True)
    def _target(self, prefix: str) -> None:
        self.target = f"{prefix}/not/yet/there"


class TestParquetSink(_SinkContract):
    sink_class = ParquetSink


@pytest.mark.soak  # How rows are written does not depend on the place: tests/io has both here.
class TestJsonlSink(_SinkContract):
    sink_class = JsonlSink


def test_a_savepoint_is_copied_to_s3_and_restored_from_there(
    prefix: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    own = CheckpointStorage(ObjectStore(str(tmp_path), endpoint.options), inline_bytes_max=0)
    saved = complete(own, 7, started(own), "savepoint")
    target = own.store.at(f"{prefix}/monday")
    check_target(target)
    copy_checkpoint(saved, own.store, target)
    point = restore_point(own, f"{prefix}/monday")
    assert point is not None
    assert point.manifest == saved
    assert storage_of(own, point).read_snapshot(saved.snapshots[0], saved.key) == {"state": b"7-0"}
    with pytest.raises(ConfigurationError, match="is not empty"):
        check_target(target)
