"""Storages to test with."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore
from tests.storage.scenario import CountingStore, complete, started


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStore:
    local = request.param == "local"
    return CountingStore(str(tmp_path / "chk") if local else f"memory://{uuid.uuid4()}")


@pytest.fixture
def storage(store: CountingStore) -> CheckpointStorage:
    return CheckpointStorage(store, inline_bytes_max=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "local" / "chk"


@pytest.fixture
def local(folder: Path) -> CheckpointStorage:
    """A local storage with checkpoints 1, 2 and 3 of generation 1."""
    storage = CheckpointStorage(ObjectStore(str(folder)), inline_bytes_max=0)
    started(storage)
    for checkpoint_id in (1, 2, 3):
        complete(storage, checkpoint_id, 1)
    return storage
