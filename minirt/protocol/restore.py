"""Which stored snapshots each subtask of a restored job reads, at the same or another parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minirt.errors import ConfigurationError
from minirt.protocol.ids import SubtaskId
from minirt.protocol.key_groups import group_range
from minirt.protocol.manifest import Manifest, SnapshotRef, VertexEntry
from minirt.protocol.stored_edges import edge_entries, unnamed_entries
from minirt.protocol.topology import OperatorFacts, Topology, VertexFacts
from minirt.wording import given


@dataclass(frozen=True, slots=True)
class RestorePart:
    """What one operator of one subtask reads.

    `exact` says that the single snapshot is precisely its own; otherwise it must pick from several
    what belongs to it: keys by key group, splits as dealt.
    """

    snapshots: tuple[SnapshotRef, ...]
    exact: bool


RestorePlan = Mapping[SubtaskId, Mapping[str, RestorePart]]
"""What each operator reads: by subtask, then by uid."""


def vertex_entries(topology: Topology) -> tuple[VertexEntry, ...]:
    """The vertices as manifests remember them; `uids` are those of operators that keep state."""
    return tuple(
        VertexEntry(
            id=vertex.id,
            uids=tuple(each.uid for each in vertex.operators if each.stateful),
            name=vertex.name,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            edges=edge_entries(topology, vertex),
            unnamed=unnamed_entries(topology, vertex),
        )
        for vertex in topology.vertices
    )


def plan_restore(
    manifest: Manifest, topology: Topology, *, allow_non_restored_state: bool
) -> RestorePlan:
    """Deal the snapshots of a checkpoint to the subtasks of a job.

    Raises ConfigurationError if state would be left over, or if key groups do not fit.
    """
    old_by_uid = {uid: entry for entry in manifest.vertices for uid in entry.uids}
    new_uids = {each.uid for vertex in topology.vertices for each in vertex.operators}
    lost = sorted(set(old_by_uid) - new_uids)
    if lost and not allow_non_restored_state:
        raise ConfigurationError(
            f"checkpoint {manifest.checkpoint_id} holds state of {', '.join(map(repr, lost))}, but "
            "no operator of this job has that uid; give the operator its old uid, or drop the "
            f"state with {given('allow_non_restored_state', True)}"
        )
    refs = {(ref.vertex, ref.subtask): ref for ref in manifest.snapshots}
    plan: dict[SubtaskId, dict[str, RestorePart]] = {}
    for vertex in topology.vertices:
        for operator in vertex.operators:
            old = old_by_uid.get(operator.uid)
            if old is None:
                continue
            _check_key_groups(old, vertex, operator.uid)
            for subtask in vertex.subtasks():
                old_indexes = _sources_of(old, vertex, subtask.index, operator)
                plan.setdefault(subtask, {})[operator.uid] = RestorePart(
                    tuple(refs[old.id, index] for index in old_indexes if (old.id, index) in refs),
                    exact=old.parallelism == vertex.parallelism and not operator.to_all,
                )
    return plan


def _check_key_groups(old: VertexEntry, vertex: VertexFacts, uid: str) -> None:
    if old.max_parallelism != vertex.max_parallelism:
        raise ConfigurationError(
            f"operator {uid!r} was checkpointed with max_parallelism {old.max_parallelism} and cannot "
            f"be restored with {vertex.max_parallelism}: it decides which keys belong together"
        )


def _sources_of(
    old: VertexEntry, vertex: VertexFacts, index: int, operator: OperatorFacts
) -> list[int]:
    """The old subtasks whose snapshots hold something for subtask `index`."""
    if old.parallelism == vertex.parallelism and not operator.to_all:
        return [index]
    if not operator.keyed:
        return list(range(old.parallelism))
    mine = group_range(index, vertex.parallelism, vertex.max_parallelism)
    return [
        candidate
        for candidate in range(old.parallelism)
        if _overlap(mine, group_range(candidate, old.parallelism, old.max_parallelism))
    ]


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)
