"""Deletes checkpoints beyond those to be kept, and files that crashes left half written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.cleanup import CleanupPlan, outdated_leases, plan_cleanup
from minirt.protocol.manifest import (
    GenerationClaim,
    ManifestKey,
    ManifestSummary,
)
from minirt.storage.store import ObjectStore

_CRASHED_AFTER_S = 3600.0
"""A temporary file this old has no writer any more."""


def sweep(store: ObjectStore, generation: int) -> None:
    """Remove what crashed writers of generations before this one left half written."""

    def is_abandoned(path: str) -> bool:
        key = CheckpointPaths.parse_file(path) or CheckpointPaths.parse_manifest(path)
        return key is not None and key.generation < generation

    store.sweep(_CRASHED_AFTER_S, CheckpointPaths.is_own_folder, is_abandoned)


class Retention:
    """Remembers what a generation knows to be stored, so that it need not list the storage each time.

    Construct it once the generation is resolved. What an aborted checkpoint wrote is deleted as soon as the
    protocol knows it to be unneeded, all of it once a later one is complete. Files that arrive even later
    are deleted by the next generation, which begins with a full listing.
    """

    def __init__(
        self,
        store: ObjectStore,
        generation: int,
        claims: Sequence[GenerationClaim],
        manifests: Sequence[ManifestSummary],
        base: ManifestSummary | None = None,
    ) -> None:
        self._store = store
        self._generation = generation
        self._claims = claims
        self._manifests = {manifest.key: manifest for manifest in manifests}
        self._base = base
        """The checkpoint that the generation restored: its first own one builds on it, even if somebody
        deletes it."""
        stored = store.list()
        self._paths = {path for path in stored if CheckpointPaths.parse_file(path) is not None}
        self._newest_id = max((key.checkpoint_id for key in self._manifests), default=0)
        self._unfinished: set[ManifestKey] = set()
        self._unneeded = set(outdated_leases(stored))

    def add(self, manifest: ManifestSummary) -> None:
        """Take note of a completed checkpoint, and of those between it and the one before."""
        self._base = None
        self._manifests[manifest.key] = manifest
        self._paths |= manifest.paths
        checkpoint_id = manifest.key.checkpoint_id
        skipped = range(self._newest_id + 1, checkpoint_id)
        self._unfinished |= {ManifestKey(skip, self._generation) for skip in skipped}
        self._newest_id = max(self._newest_id, checkpoint_id)

    def add_file(self, path: str) -> None:
        """Take note of a file that no manifest refers to."""
        self._paths.add(path)

    def cleanup(
        self, retain: int, active: Collection[ManifestKey], unneeded: Collection[str]
    ) -> CleanupPlan:
        """Delete what need not be kept. The next call tries again what a failed deletion leaves."""
        self._look_for_leftovers(active)
        self._unneeded.update(unneeded)
        manifests = list(self._manifests.values())
        if self._base is not None and self._base.key not in self._manifests:
            manifests.append(replace(self._base, pinned=True))
        plan = plan_cleanup(
            manifests,
            self._claims,
            self._paths | self._unneeded,
            retain=retain,
            active=active,
            unneeded=self._unneeded,
        )
        for key in plan.manifests_to_delete:
            self._store.delete(CheckpointPaths.manifest(key))
            del self._manifests[key]
        self._store.delete_all(plan.files_to_delete)
        self._paths.difference_update(plan.files_to_delete)
        self._unneeded.difference_update(plan.files_to_delete)
        return plan

    def _look_for_leftovers(self, active: Collection[ManifestKey]) -> None:
        for key in sorted(self._unfinished.difference(active)):
            if key not in self._manifests:
                self._paths.update(self._store.list(CheckpointPaths.folder(key)))
            self._unfinished.discard(key)
