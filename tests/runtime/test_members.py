"""In which order the snapshots of a subtask build on older files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.families import local_id
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import ManifestKey
from minirt.runtime.subtask.members import Members

OWN = SubtaskId(1, 0)
LOCAL = [CheckpointPaths.snapshot(ManifestKey(local_id(1, n), 1), 1, 0) for n in (1, 2, 3)]
BARRIERS = [CheckpointPaths.snapshot(ManifestKey(n, g), 1, 0) for n, g in ((4, 1), (9, 2))]


@dataclass
class Builder:
    """Builds on all files that it has heard of, and names them in another order."""

    uid: str
    files: list[str] = field(default_factory=list)

    @property
    def ctx(self) -> Any:
        return SimpleNamespace(uid=self.uid, label=self.uid)

    def builds_on(self) -> Mapping[str, list[str]]:
        return {"state": self.files[::-1]}

    def on_stored(self, path: str) -> None:
        self.files.append(path)

    def restore(self, sections: Mapping[str, bytes], *, exact: bool) -> None:
        """What is in them does not matter."""


def built_on(members: Members) -> list[str]:
    return [reference.path for reference in members.references()]


def made(*members: Builder) -> Members:
    return Members(members)  # type: ignore[arg-type]


def test_files_come_in_the_order_in_which_they_were_stored_whatever_their_ids() -> None:
    members = made(Builder("one"), Builder("other"))
    stored = [LOCAL[0], BARRIERS[0], LOCAL[1], LOCAL[2]]
    for place, path in enumerate(stored, 1):
        members.on_stored(path)
        assert built_on(members) == stored[:place]


def test_restored_files_come_first_also_if_a_later_generation_counts_from_below() -> None:
    """As where a job goes on in a mode with barriers from a checkpoint of local snapshots."""
    members = made(Builder("one"), Builder("other"))
    for path in (LOCAL[0], BARRIERS[0], LOCAL[1]):
        for uid in ("one", "other"):
            # Not every file holds something of every operator.
            sections = {} if (path, uid) == (LOCAL[0], "one") else {f"{uid}\x1fstate": b""}
            members.restore(uid, sections, exact=True, path=path)
    members.on_stored(BARRIERS[1])
    assert built_on(members) == [LOCAL[0], BARRIERS[0], LOCAL[1], BARRIERS[1]]
