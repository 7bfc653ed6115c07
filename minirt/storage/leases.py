"""The leases of a job in its checkpoint storage, one for each generation."""

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
    store.write(CheckpointPaths.lease(lease.generation), json.dumps(said).encode())


class LeaseReader:
    """Reads the lease of the newest generation that has one.

    Lists the storage at first, and as long as the newest claim has no lease. Afterwards two looks are
    enough to know that the lease is still the newest, as claims above an existing one have no gaps.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._claimed = self._leased = 0
        """The newest generation that is claimed, and the newest that has a lease; 0 if there is none."""

    def read(self) -> tuple[bytes | None, Lease | None]:
        """What the object holds, None if there is none, and what that means, None if nobody knows.

        Raises StorageError.
        """
        if not self._is_newest():
            self._list()
        if self._leased == 0:
            return None, None
        try:
            found = self._store.read(CheckpointPaths.lease(self._leased))
        except ObjectMissingError:  # Deleted since it was listed: the next look lists anew.
            self._claimed = 0
            raise
        return found, _parse(found)

    def _is_newest(self) -> bool:
        # Claims are deleted oldest first: of a generation that was replaced long ago, the next claim may
        # be gone, and then its own is gone as well.
        if not 0 < self._claimed == self._leased:
            return False
        own, following = map(CheckpointPaths.claim, (self._claimed, self._claimed + 1))
        return not self._store.exists(following) and self._store.exists(own)

    def _list(self) -> None:
        paths = self._store.list(CheckpointPaths.GENERATIONS)
        claims = CheckpointPaths.parse_claims(paths)
        leases = filter(None, map(CheckpointPaths.parse_lease, paths))
        self._claimed = max((claim.generation for claim in claims), default=0)
        self._leased = max(leases, default=0)


def _parse(found: bytes) -> Lease | None:
    """A lease of another version, or a damaged one, means nothing, but it changes all the same."""
    try:
        said = json.loads(found)
        if not isinstance(said, dict) or said.pop("version", None) != LEASE_VERSION:
            return None
        return plain.from_plain(Lease, said)
    except (ValueError, RecursionError):
        return None
