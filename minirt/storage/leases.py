"""The lease of a job in its checkpoint storage: one small object, written over and over."""

from __future__ import annotations

import json

from minirt.protocol import plain
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.lease import Lease
from minirt.storage.store import ObjectMissingError, ObjectStore

RUN_VARIABLE = "_MINIRT_LEASE_RUN"
"""The environment variable by which a standby names the run that it starts, to know its lease again. Those
that begin with MINIRT_ are options."""

LEASE_VERSION = 1


def write_lease(store: ObjectStore, lease: Lease) -> None:
    """Durable on return. Raises StorageError."""
    said = {"version": LEASE_VERSION, **plain.to_plain(lease)}
    store.write(CheckpointPaths.LEASE, json.dumps(said).encode())


def read_lease(store: ObjectStore) -> tuple[bytes | None, Lease | None]:
    """What the object holds, None if there is none, and what that means, None if nobody knows.

    Raises StorageError.
    """
    try:
        found = store.read(CheckpointPaths.LEASE)
    except ObjectMissingError:
        return None, None
    return found, _parse(found)


def _parse(found: bytes) -> Lease | None:
    """A lease of another version, or a damaged one, means nothing, but it changes all the same."""
    try:
        said = json.loads(found)
        if not isinstance(said, dict) or said.pop("version", None) != LEASE_VERSION:
            return None
        return plain.from_plain(Lease, said)
    except (ValueError, RecursionError):
        return None
