"""Deleting one checkpoint on request, unless something else needs it."""

from __future__ import annotations

from dataclasses import dataclass

from minirt.errors import ConfigurationError, CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import ManifestKey, choose_restore_point
from minirt.storage.checkpoints import CheckpointStorage


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion removes: the manifest of a checkpoint, and the files in its folder.

    Deleting the newest checkpoint removes only its manifest: a running job may be about to store a
    checkpoint that builds on the files. The next clean-up of the job, in this run or the next one, finds
    out whether any file is needed.
    """

    key: ManifestKey
    files: tuple[str, ...]
    bytes: int
    left: tuple[str, ...] = ()
    """The files that are left to the clean-up of the job."""


def plan_deletion(storage: CheckpointStorage, key: ManifestKey, *, force: bool = False) -> Deletion:
    """Look what deleting the checkpoint would take away; nothing is changed yet.

    Raises ConfigurationError if another checkpoint refers to its files. Unless `force`: also if a restore
    of the latest would choose it, or if another manifest cannot be read, which may refer to them.
    """
    keys = storage.manifest_keys()
    newest = key == choose_restore_point(keys, storage.claims())
    if newest and not force:
        raise ConfigurationError(
            f"checkpoint {key.checkpoint_id} is the newest: the job would go on from it. To delete it all "
            "the same: --force"
        )
    sizes = storage.store.sizes(CheckpointPaths.folder(key))
    for other in keys:
        if other != key and (shared := _paths(storage, other, force) & sizes.keys()):
            raise ConfigurationError(
                f"checkpoint {other.checkpoint_id} builds on {len(shared)} files of checkpoint "
                f"{key.checkpoint_id}, such as {min(shared)}; delete that one first"
            )
    if newest:
        return Deletion(key, (), 0, left=tuple(sorted(sizes)))
    return Deletion(key, tuple(sorted(sizes)), sum(sizes.values()))


def delete(storage: CheckpointStorage, planned: Deletion) -> None:
    """Delete the manifest first, so that it never refers to a file that is gone. Raises StorageError.

    A job may have chosen the checkpoint for a restore since: then its files are left to its clean-up.
    """
    storage.store.delete(CheckpointPaths.manifest(planned.key))
    storage.store.delete(CheckpointPaths.drained(planned.key))
    resolved = [claim for claim in storage.claims() if claim.resolved]
    if resolved and resolved[-1].base == planned.key:
        return
    storage.store.delete_all(planned.files)


def _paths(storage: CheckpointStorage, key: ManifestKey, force: bool) -> frozenset[str]:
    """The files that a checkpoint refers to."""
    try:
        return storage.read_manifest(key).summary().paths
    except CorruptCheckpointError as error:
        if force:
            return frozenset()
        raise ConfigurationError(
            f"{error}; it may refer to files of other checkpoints: delete that one first, or use --force"
        ) from error
