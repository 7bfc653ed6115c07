"""Copies of checkpoints that stand alone: they can be moved, and restored without the original."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from minirt.errors import ConfigurationError, StorageError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import Manifest
from minirt.storage.manifests import encode_manifest
from minirt.storage.parts import check_parts
from minirt.storage.store import ObjectStore

_PROBE = "probe"


def check_target(target: ObjectStore) -> None:
    """Raise ConfigurationError if something is there, StorageError if nothing can be stored there."""
    _check_vacant(target, set())
    target.write(_PROBE, b"")
    target.delete(_PROBE)


def copy_checkpoint(manifest: Manifest, source: ObjectStore, target: ObjectStore) -> None:
    """Copy all that the manifest refers to, then the manifest itself, which completes the copy.

    Checksums are verified on the way. Raises ConfigurationError unless the target is empty; files of an
    earlier attempt at the same copy may be there. On a StorageError it removes what it has copied, so that
    the user can try the same path again. The copy of a drain stays: another coordinator may be about to
    complete it.
    """
    completed_by = CheckpointPaths.manifest(manifest.key)
    paths = sorted(manifest.summary().paths)
    _check_vacant(target, {completed_by, *paths})
    try:
        for path in paths:
            data = source.read(path)
            check_parts(data, source.full_path(path))
            target.write(path, data)
        target.write(completed_by, encode_manifest(replace(manifest, drain=None)))
    except StorageError:
        if manifest.drain is None:
            with suppress(StorageError):
                for path in (completed_by, *paths):
                    target.delete(path)
        raise


def _check_vacant(target: ObjectStore, own: set[str]) -> None:
    if set(target.list()) - own:
        raise ConfigurationError(
            f"{target.root} is not empty; give each savepoint a path of its own"
        )
