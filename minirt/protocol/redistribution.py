"""Which in-flight records of a checkpoint each subtask of a restored job consumes before anything new.

The job may run at another parallelism, and may have been edited since. What holds in any case: each
record gets once to the operator that it was on its way to, and records of one key keep their order where
the old edge and the new one promise it. Where that cannot be had, or where it is not sure which operator
is meant, the restore is refused, with the ways out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from minirt.errors import ConfigurationError
from minirt.protocol.ids import SubtaskId
from minirt.protocol.manifest import ChannelData, Manifest, SnapshotRef
from minirt.protocol.stored_edges import StoredEdge, doubtful_uids, stored_edges
from minirt.protocol.topology import EdgeFacts, InFlight, Order, Topology, differ
from minirt.wording import given


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


def plan_in_flight(manifest: Manifest, topology: Topology) -> InFlightPlan:
    """Deal the in-flight data of a checkpoint to the subtasks of a job.

    At unchanged partitioning and parallelism every channel goes to its old receiver, otherwise as the
    edge's `InFlight` says. Raises ConfigurationError if an edge is gone, if it is in doubt which one is
    meant, or if records cannot be dealt right.
    """
    edges, old = topology.edges(), stored_edges(manifest)
    _check_edges(manifest, topology, edges)
    plan: dict[SubtaskId, list[RecoveredChannel]] = {}
    for captured in manifest.in_flight:
        for place, data in enumerate(captured.channels):
            edge = edges[data.link]
            try:
                receivers = _receivers(data, edge, old.get(data.link, StoredEdge()))
            except _CannotDealError as error:
                raise _refused(manifest, {data.link}, *error.args) from None
            for receiver, deal_again in receivers:
                channel = RecoveredChannel(data, captured.stored, str(place), deal_again)
                plan.setdefault(SubtaskId(edge.target, receiver), []).append(channel)
    return {
        subtask: tuple(sorted(channels, key=lambda one: _order(one, edges[one.data.link])))
        for subtask, channels in plan.items()
    }


def dealt_otherwise(manifest: Manifest, topology: Topology) -> set[str]:
    """The edges whose key or function is another one than at the checkpoint."""
    old = stored_edges(manifest)
    return {
        key
        for key, edge in topology.edges().items()
        if key in old and differ(old[key].dealing, edge.dealing)
    }


class _CannotDealError(Exception):
    """What is wrong with the edge, and the way out that is its own."""


def _check_edges(manifest: Manifest, topology: Topology, edges: Mapping[str, EdgeFacts]) -> None:
    """Records are not state: a user who gives up the state of an operator keeps its input."""
    held = {data.link for captured in manifest.in_flight for data in captured.channels}
    lost = held - edges.keys()
    if lost:
        unnamed = (entry for vertex in manifest.vertices for entry in vertex.unnamed)
        uids = {entry.uid for entry in unnamed if lost & {*entry.edges}}
        raise _refused(manifest, lost, "this job does not have them", _name_them(uids))
    doubtful = doubtful_uids(manifest, topology)
    for key in sorted(held):
        edge = edges[key]
        uids = {edge.source_uid, edge.target_uid} & doubtful
        if uids:
            raise _refused(
                manifest,
                {key},
                "its operators cannot be told for sure, as uids were made from names and such operators "
                "have come, gone or changed places",
                _name_them(uids),
            )


def _name_them(uids: set[str]) -> str:
    """The way out where uids that nobody gave may mean other operators by now."""
    made = " and ".join(f"uid={uid!r}" for uid in sorted(uids))
    return made and f"give {made} to the operators that had them when the checkpoint was taken"


def _refused(manifest: Manifest, keys: set[str], reason: str, hint: str = "") -> ConfigurationError:
    sizes = Counter[str]()
    for captured in manifest.in_flight:
        for data in captured.channels:
            sizes[data.link] += data.bytes
    edges = ", ".join(f"{key!r} ({sizes[key]} bytes)" for key in sorted(keys))
    return ConfigurationError(
        f"checkpoint {manifest.checkpoint_id} holds in-flight records of edges that cannot be restored: "
        f"{edges}: {reason}; {hint + '; or ' if hint else ''}restore it in the job that took it, and "
        "change the job after an aligned checkpoint; or give up all its in-flight records with "
        f"{given('ignore_in_flight_data_of', manifest.checkpoint_id)}"
    )


def _receivers(data: ChannelData, link: EdgeFacts, old: StoredEdge) -> list[tuple[int, bool]]:
    """Who reads a captured channel, and whether its records are dealt again among them."""
    if _deals_as_before(data, link, old):
        return [(data.receiver, False)]
    everyone = range(link.receivers)
    if old.held_copies(data) and data.receivers > 1:
        if link.in_flight is not InFlight.ONE_COPY:
            raise _CannotDealError(
                f"its records were broadcast to {data.receivers} subtasks, each of which had seen as many "
                "as it had come to, and are not broadcast any more",
                f"deal them by {data.partitioning}() once more",
            )
        return [(r, False) for r in everyone if r % data.receivers == data.receiver]
    match link.in_flight:
        case InFlight.DEALT_AGAIN:
            return [(receiver, True) for receiver in everyone]
        case InFlight.ONE_COPY:
            return [(receiver, False) for receiver in everyone]
    if link.order is Order.STRAIGHT and link.receivers > 1 and old.keeps_order(data):
        declare = f"; if their order does not matter, declare {link.unordered} there"
        raise _CannotDealError(
            f"the {link.kind} edge would lose the order of records of one key, as it does not look at "
            "keys",
            f"restore it at the old parallelism first{declare if link.unordered else ''}",
        )
    return [(data.receiver % link.receivers, False)]


def _deals_as_before(data: ChannelData, link: EdgeFacts, old: StoredEdge) -> bool:
    """Whether each record of the channel would go to its old receiver again."""
    if link.kind != data.partitioning or link.receivers != data.receivers:
        return False
    return old.reached_as_now(link) and not differ(old.dealing, link.dealing)


def _order(channel: RecoveredChannel, edge: EdgeFacts) -> tuple[int, int, str, int, int, bool]:
    """Channel by channel; what had reached the receiver's end before what had not.

    What was on its way to a later operator of the chain comes first, as the rest flows into it. Then
    comes what an earlier job had captured: its senders' indexes say nothing about those of now.
    """
    data = channel.data
    older = (-edge.target_place, -data.recoveries)
    return (*older, data.link, data.sender, data.receiver, data.side == "out")
