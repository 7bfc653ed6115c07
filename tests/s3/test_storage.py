"""The contracts of storages and sinks, on S3."""

from __future__ import annotations

import pytest

from minirt.io import JsonlSink, ParquetSink
from minirt.storage.store import ObjectStore
from tests.contracts.storage_contract import StorageContract
from tests.io.test_file_sinks import FileSinkContract


class TestStorage(StorageContract):
    @pytest.fixture
    def store(self, prefix: str) -> ObjectStore:
        return ObjectStore(f"{prefix}/checkpoints/job")


class _SinkContract(FileSinkContract):
    @pytest.fixture(autouse=True)
    def _target(self, prefix: str) -> None:
        self.target = f"{prefix}/not/yet/there"


class TestParquetSink(_SinkContract):
    sink_class = ParquetSink


class TestJsonlSink(_SinkContract):
    sink_class = JsonlSink
