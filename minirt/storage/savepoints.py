"""Copies of checkpoints that stand alone: they can be moved, and restored without the original."""

from __future__ import annotations

from contextlib import suppress

from minirt.errors import ConfigurationError, StorageError
from minirt.protocol.manifest import CheckpointPaths, Manifest
from minirt.storage.manifests import encode_manifest
from minirt.storage.parts import decode_part
from minirt.storage.store import ObjectStore

_PROBE = "probe"


def check_target(target: ObjectStore) -> None:
    """Raise ConfigurationError if something is there, StorageError if nothing can be stored there."""
    _check_vacant(target)
    target.write(_PROBE, b"")
    target.delete(_PROBE)


def copy_checkpoint(manifest: Manifest, source: ObjectStore, target: ObjectStore) -> None:
    """Copy all that the manifest refers to, then the manifest itself, which completes the copy.

    Checksums are verified on the way. Raises ConfigurationError unless the target is empty; and
    StorageError, having removed what was copied, so that the same path may be tried again.
    """
    _check_vacant(target)
    paths = sorted(manifest.summary().paths)
    try:
        for path in paths:
            data = source.read(path)
            decode_part(data, source.full_path(path))
            target.write(path, data)
        target.write(CheckpointPaths.manifest(manifest.key), encode_manifest(manifest))
    except StorageError:
        with suppress(StorageError):
            for path in (CheckpointPaths.manifest(manifest.key), *paths):
                target.delete(path)
        raise


def _check_vacant(target: ObjectStore) -> None:
    if target.list():
        raise ConfigurationError(
            f"{target.root} is not empty; give each savepoint a path of its own"
        )
