"""Which stored snapshots each subtask of a restored job reads, at the same or another parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph, Link, SubtaskId, Vertex
from minirt.graph.key_groups import group_range
from minirt.protocol.manifest import ChannelData, Manifest, SnapshotRef, VertexEntry


@dataclass(frozen=True, slots=True)
class RestorePart:
    """What one operator of one subtask reads.

    `exact` says that the single snapshot is precisely its own; otherwise it must pick from several
    what belongs to it: keys by key group, splits as dealt.
    """

    snapshots: tuple[SnapshotRef, ...]
    exact: bool


RestorePlan = Mapping[SubtaskId, Mapping[str, RestorePart]]
"""Per subtask, per uid."""


def vertex_entries(graph: ExecutionGraph) -> tuple[VertexEntry, ...]:
    """The vertices as manifests remember them; `uids` are those of operators that keep state."""
    return tuple(
        VertexEntry(
            id=vertex.id,
            uids=tuple(node.uid for node in vertex.operators if node.stateful),
            name=vertex.name,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
        )
        for vertex in graph.vertices
    )


def plan_restore(
    manifest: Manifest, graph: ExecutionGraph, *, allow_non_restored_state: bool
) -> RestorePlan:
    """Deal the snapshots of a checkpoint to the subtasks of a job graph.

    Raises ConfigurationError if state would be left over, or if key groups do not fit.
    """
    old_by_uid = {uid: entry for entry in manifest.vertices for uid in entry.uids}
    new_uids = {node.uid for vertex in graph.vertices for node in vertex.operators}
    lost = sorted(set(old_by_uid) - new_uids)
    if lost and not allow_non_restored_state:
        raise ConfigurationError(
            f"checkpoint {manifest.checkpoint_id} holds state of {', '.join(map(repr, lost))}, but no "
            "operator of this job has that uid; give the operator its old uid, or drop the state with "
            "allow_non_restored_state=True"
        )
    refs = {(ref.vertex, ref.subtask): ref for ref in manifest.snapshots}
    plan: dict[SubtaskId, dict[str, RestorePart]] = {}
    for vertex in graph.vertices:
        for node in vertex.operators:
            old = old_by_uid.get(node.uid)
            if old is None:
                continue
            _check_key_groups(old, vertex, node.uid)
            for subtask in vertex.subtasks():
                old_indexes = _sources_of(old, vertex, subtask.index, keyed=node.keyed)
                plan.setdefault(subtask, {})[node.uid] = RestorePart(
                    tuple(refs[old.id, index] for index in old_indexes if (old.id, index) in refs),
                    exact=old.parallelism == vertex.parallelism,
                )
    return plan


def _check_key_groups(old: VertexEntry, vertex: Vertex, uid: str) -> None:
    if old.max_parallelism != vertex.max_parallelism:
        raise ConfigurationError(
            f"operator {uid!r} was checkpointed with max_parallelism {old.max_parallelism} and cannot "
            f"be restored with {vertex.max_parallelism}: it decides which keys belong together"
        )


def _sources_of(old: VertexEntry, vertex: Vertex, index: int, *, keyed: bool) -> list[int]:
    """The old subtasks whose snapshots hold something for subtask `index`."""
    if old.parallelism == vertex.parallelism:
        return [index]
    if not keyed:
        return list(range(old.parallelism))
    mine = group_range(index, vertex.parallelism, vertex.max_parallelism)
    return [
        candidate
        for candidate in range(old.parallelism)
        if _overlap(mine, group_range(candidate, old.parallelism, old.max_parallelism))
    ]


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


class Redistribution(Enum):
    """How in-flight data finds its receivers when these are not the old ones; the values are for people."""

    BY_KEY_GROUP = "each goes to the subtask of its key"
    BY_FUNCTION = "each goes where the function sends it"
    ONE_COPY = "each subtask gets what one old subtask had still to see"
    WHOLE_CHANNELS = "dealt out in whole channels, any subtask may have them"


def redistribution(link: Link) -> Redistribution:
    """How the in-flight data of this link is dealt out at another parallelism or partitioning."""
    match link.kind:
        case "hash":
            return Redistribution.BY_KEY_GROUP
        case "custom" if link.capturable:
            return Redistribution.BY_FUNCTION
        case "broadcast":
            return Redistribution.ONE_COPY
    return Redistribution.WHOLE_CHANNELS


@dataclass(frozen=True, slots=True)
class RecoveredChannel:
    """In-flight data that one subtask consumes before anything new.

    `deal_again` says that its records must go through the link's partitioning once more, and that
    only those which fall to this subtask are its own.
    """

    data: ChannelData
    stored: SnapshotRef
    section: str
    deal_again: bool


InFlightPlan = Mapping[SubtaskId, tuple[RecoveredChannel, ...]]


def plan_in_flight(manifest: Manifest, graph: ExecutionGraph) -> InFlightPlan:
    """Deal the in-flight data of a checkpoint to the subtasks of a job graph.

    At unchanged partitioning and parallelism every channel goes to its old receiver, otherwise as
    `redistribution` says. Raises ConfigurationError if a link is gone.
    """
    links = {graph.link_key(link): link for link in graph.links}
    _check_links(manifest, graph, links)
    plan: dict[SubtaskId, list[RecoveredChannel]] = {}
    for captured in manifest.in_flight:
        for place, data in enumerate(captured.channels):
            link = links[data.link]
            for receiver, deal_again in _receivers(data, link):
                channel = RecoveredChannel(data, captured.stored, str(place), deal_again)
                plan.setdefault(SubtaskId(link.target, receiver), []).append(channel)
    return {subtask: tuple(sorted(channels, key=_order)) for subtask, channels in plan.items()}


def _check_links(manifest: Manifest, graph: ExecutionGraph, links: Collection[str]) -> None:
    """Records are not state: who gives up the state of an operator does not give up its input."""
    lost = Counter[str]()
    for captured in manifest.in_flight:
        for data in captured.channels:
            if data.link not in links:
                lost[data.link] += data.bytes
    if lost:
        edges = ", ".join(f"{link!r} ({lost[link]} bytes)" for link in sorted(lost))
        chained = sorted(lost.keys() & graph.chained_keys())
        hint = (
            f"{chained[0]!r} is chained here, give its second operator chain=False; "
            if chained
            else ""
        )
        raise ConfigurationError(
            f"checkpoint {manifest.checkpoint_id} holds in-flight records of edges that this job does "
            f"not have: {edges}; {hint}restore it in the job that took it, and change the job after an "
            "aligned checkpoint, or give up all its in-flight records with "
            f"ignore_in_flight_data_of={manifest.checkpoint_id}"
        )


def _receivers(data: ChannelData, link: Link) -> list[tuple[int, bool]]:
    """Who reads a captured channel, and whether its records are dealt again among them."""
    if link.kind == data.partitioning and link.receivers == data.receivers:
        return [(data.receiver, False)]
    everyone = range(link.receivers)
    match redistribution(link):
        case Redistribution.BY_KEY_GROUP | Redistribution.BY_FUNCTION:
            return [(receiver, True) for receiver in everyone]
        case Redistribution.ONE_COPY:
            return [(r, False) for r in everyone if r % data.receivers == data.receiver]
        case Redistribution.WHOLE_CHANNELS:
            return [(data.receiver % link.receivers, False)]


def _order(channel: RecoveredChannel) -> tuple[int, str, int, int, bool]:
    """Channel by channel; what had reached the receiver's end before what had not.

    What an earlier job had captured comes first: its senders' indexes say nothing about those of now.
    """
    data = channel.data
    return (-data.recoveries, data.link, data.sender, data.receiver, data.side == "out")
