"""Looks at stored checkpoints for whoever chooses one to restore; decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from minirt.errors import CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import ManifestKey
from minirt.protocol.preparing_events import (
    CheckpointDamaged,
    CheckpointRead,
    CheckpointsListed,
    ReadCheckpoint,
)
from minirt.storage.snapshots import check_files

if TYPE_CHECKING:
    from minirt.storage.checkpoints import CheckpointStorage


def list_checkpoints(own: CheckpointStorage, root: str | None) -> CheckpointsListed:
    """What is in the storage at a root, by default in the job's own."""
    storage = own if root is None else own.at(root)
    return CheckpointsListed(
        tuple(storage.manifest_keys()),
        tuple(storage.claims()),
        storage.store.root,
        own=storage.store.root == own.store.root,
    )


def read_checkpoint(
    own: CheckpointStorage, command: ReadCheckpoint
) -> CheckpointRead | CheckpointDamaged:
    """The manifest of a checkpoint whose files are all there, or what is wrong with it."""
    storage = own if command.root is None else own.at(command.root)
    try:
        manifest = storage.read_manifest(command.key)
        needed = manifest if command.in_flight else replace(manifest, in_flight=())
        check_files(storage.store, needed)
    except CorruptCheckpointError as error:
        return CheckpointDamaged(error, deleted=not _exists(storage, command.key))
    return CheckpointRead(manifest)


def _exists(storage: CheckpointStorage, key: ManifestKey) -> bool:
    return storage.store.exists(CheckpointPaths.manifest(key))
