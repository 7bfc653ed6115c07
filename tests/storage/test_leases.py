"""The lease as an object of the checkpoint storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.lease import Lease, LeaseTimes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import read_lease, write_lease
from minirt.storage.store import ObjectStore

LEASE = Lease("naïve", "a", 3, 7, LeaseTimes(1.0, 4.0), "failed", "no\nroom", "place/1/2")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


def test_it_is_read_as_it_was_written(store: ObjectStore) -> None:
    assert read_lease(store) == (None, None)
    write_lease(store, LEASE)
    content, lease = read_lease(store)
    assert (content, lease) == (store.read(CheckpointPaths.LEASE), LEASE)


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
    store: ObjectStore, content: bytes
) -> None:
    store.write(CheckpointPaths.LEASE, content)
    assert read_lease(store) == (content, None)


def test_it_is_no_claim(store: ObjectStore) -> None:
    storage = CheckpointStorage(store, 1000)
    assert (storage.claim_generation(), storage.generation) == (1, 1)
    write_lease(store, LEASE)
    assert [claim.generation for claim in storage.claims()] == [1]
    assert storage.is_current(1)
