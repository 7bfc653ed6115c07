"""The leases as objects of the checkpoint storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from minirt.errors import StorageError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import LeaseReader, write_lease
from minirt.storage.store import ObjectStore

LEASE = Lease("naïve", "a", 1, 7, LeaseTimes(1.0, 4.0), "failed", "no\nroom", "place/1/2")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


@pytest.fixture
def reader(store: ObjectStore) -> LeaseReader:
    return LeaseReader(store)


def claimed(store: ObjectStore) -> int:
    """By a program of its own."""
    return CheckpointStorage(store, 1000).claim_generation()


def test_it_is_read_as_it_was_written(store: ObjectStore, reader: LeaseReader) -> None:
    assert reader.read() == (None, None)
    write_lease(store, LEASE)
    content, lease = reader.read()
    assert (content, lease) == (store.read(CheckpointPaths.lease(1)), LEASE)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"\xff", b'{"version": 2}', b'{"version": 1}', b"[" * 100_000),
        b'{"version": 1, "job": 5, "run": "a", "generation": 1, "renewals": 1, '
        b'"times": {"interval_s": 1.0, "timeout_s": 5.0}, "ended": null, "cause": null, "process": null}',
    ],
    ids=range(9),
)
def test_what_is_no_lease_means_nothing_and_can_still_change(
    store: ObjectStore, reader: LeaseReader, content: bytes
) -> None:
    store.write(CheckpointPaths.lease(1), content)
    assert reader.read() == (content, None)


def test_it_is_no_claim(store: ObjectStore) -> None:
    storage = CheckpointStorage(store, 1000)
    assert (storage.claim_generation(), storage.generation) == (1, 1)
    write_lease(store, LEASE)
    assert [claim.generation for claim in storage.claims()] == [1]
    assert storage.is_current(1)


def test_that_of_the_newest_generation_counts(store: ObjectStore, reader: LeaseReader) -> None:
    """Some have none: their programs died before they wrote one."""
    for generation in (1, 2, 3, 4):
        assert claimed(store) == generation
        assert reader.read()[1] == (None if generation == 1 else LEASE)
        if generation == 1:
            write_lease(store, LEASE)
    newer = replace(LEASE, generation=4)
    write_lease(store, newer)
    assert reader.read()[1] == newer
    write_lease(store, replace(LEASE, renewals=8))  # A program that was frozen meanwhile.
    assert reader.read()[1] == newer


def test_a_storage_that_is_begun_anew_has_a_new_lease(
    store: ObjectStore, reader: LeaseReader
) -> None:
    assert claimed(store) == 1
    write_lease(store, LEASE)
    assert reader.read()[1] == LEASE
    store.delete(CheckpointPaths.lease(1))
    with pytest.raises(StorageError, match="not found"):
        reader.read()
    assert reader.read() == (None, None)


def test_it_is_listed_only_when_somebody_has_claimed_the_job(
    store: ObjectStore, reader: LeaseReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is the dearest request of object storage, and a standby looks for months."""
    listings: list[str] = []
    real: Callable[[str], list[str]] = store.list
    monkeypatch.setattr(store, "list", lambda prefix: listings.append(prefix) or real(prefix))
    assert claimed(ObjectStore(store.root)) == 1
    write_lease(store, LEASE)
    for _ in range(5):
        assert reader.read()[1] == LEASE
    assert len(listings) == 1
    assert claimed(ObjectStore(store.root)) == 2
    reader.read()
    assert len(listings) == 2
    write_lease(store, replace(LEASE, generation=2))
    for _ in range(5):
        reader.read()
    assert len(listings) == 3
