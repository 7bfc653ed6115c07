"""Reading the snapshots that manifests refer to, all checksums verified."""

from __future__ import annotations

from minirt.errors import CorruptCheckpointError
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.manifest import (
    Manifest,
    ManifestKey,
    Reference,
    SnapshotRef,
)
from minirt.protocol.part_paths import file_of
from minirt.storage.part_files import must_exist, read_stored, size_left
from minirt.storage.parts import decode_part, part_checksum
from minirt.storage.store import ObjectStore


def read_sections(
    store: ObjectStore, ref: SnapshotRef, checkpoint: ManifestKey
) -> dict[str, bytes]:
    """The sections that a snapshot of the checkpoint holds itself. Raises CorruptCheckpointError."""
    if ref.path is not None:
        path = store.full_path(ref.path)
        data = read_stored(store, ref.path)
    else:
        manifest = store.full_path(CheckpointPaths.manifest(checkpoint))
        path = f"{manifest} (inlined: vertex {ref.vertex}, subtask {ref.subtask})"
        data = ref.inline or b""
    sections = decode_part(data, path)
    if len(data) != ref.bytes or part_checksum(data) != ref.crc:
        raise CorruptCheckpointError("not the snapshot that the manifest refers to", path)
    return sections


def read_referenced(store: ObjectStore, reference: Reference) -> dict[str, bytes]:
    """The sections of an older snapshot that are referred to. Raises CorruptCheckpointError."""
    path = store.full_path(reference.path)
    sections = decode_part(read_stored(store, reference.path), path)
    missing = sorted(set(reference.sections) - sections.keys())
    if missing:
        raise CorruptCheckpointError(f"has no section {missing[0]!r}", path)
    return {name: sections[name] for name in reference.sections}


def check_files(store: ObjectStore, manifest: Manifest) -> None:
    """Raise CorruptCheckpointError unless all files of the checkpoint are there, with the right size."""
    sizes: dict[str, int] = {}
    paths = manifest.summary().paths
    for key in {CheckpointPaths.parse_file(path) for path in paths}:
        if key is None:
            raise CorruptCheckpointError(
                "refers to files outside of all checkpoints",
                store.full_path(CheckpointPaths.manifest(manifest.key)),
            )
        sizes.update(store.sizes(CheckpointPaths.folder(key)))
    for path in sorted(paths - sizes.keys()):
        with must_exist(store, path):
            sizes[path] = store.size(path)
    for ref in manifest.stored():
        if ref.path is None:
            continue
        size = size_left(ref.path, sizes[file_of(ref.path)])
        if size != ref.bytes:
            raise CorruptCheckpointError(
                f"has {size} bytes instead of {ref.bytes}", store.full_path(ref.path)
            )
