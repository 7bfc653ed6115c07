"""Tells a job from every other, whatever they and their storages are called."""

from __future__ import annotations

from hashlib import blake2b
from uuid import uuid4

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.storage.store import ObjectMissingError, ObjectStore


def job_identity(store: ObjectStore) -> str:
    """The identity of the job that has its checkpoints in this storage, the same in each generation.

    A path alone would not do: two machines may call different storages the same. Neither would what
    is stored: a storage may be copied as a whole, and both be used.
    """
    path = CheckpointPaths.IDENTITY
    try:
        known = store.read(path)
    except ObjectMissingError:
        store.create(path, uuid4().hex.encode())
        known = store.read(path)
    root = store.root.encode(errors="surrogatepass")
    return blake2b(root + b"\0" + known, digest_size=16).hexdigest()
