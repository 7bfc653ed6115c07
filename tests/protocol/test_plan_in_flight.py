"""Who reads captured records when a job is restored, at the same or another parallelism."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.graph.job_graph import OperatorNode
from minirt.graph.keys import KeySelector
from minirt.operators.map import MapSpec
from minirt.partitionings import Broadcast, Custom, Forward, Hash, Partitioning, Rebalance
from minirt.protocol.manifest import (
    ChannelData,
    InFlightRef,
    Manifest,
    SnapshotRef,
    VertexEntry,
)
from minirt.protocol.plain import from_plain
from minirt.protocol.redistribution import plan_in_flight
from minirt.protocol.stored_edges import EdgeEntry, edge_entries

KEY = KeySelector(("k",))


def graph(partitioning: Partitioning, senders: int, receivers: int) -> ExecutionGraph:
    def vertex(place: int, uid: str, parallelism: int) -> Vertex:
        node = OperatorNode(uid, uid, MapSpec(str), parallelism, 128)
        return Vertex(place, (node,), (), parallelism, 128)

    link = Link(0, 0, "a", 1, 0, partitioning, None, senders, receivers, 128)
    return ExecutionGraph("job", (vertex(0, "a", senders), vertex(1, "b", receivers)), (link,))


def captured(*channels: tuple[int, int, str], kind: str, receivers: int) -> Manifest:
    """A checkpoint with in-flight data of (sender, receiver, side), one object for each sender."""
    stored = []
    for sender, receiver, side in channels:
        data = ChannelData("a > b:0", kind, sender, receiver, receivers, side, 10)  # type: ignore[arg-type]
        vertex, subtask = (0, sender) if side == "out" else (1, receiver)
        ref = SnapshotRef(vertex, subtask, f"{side}-{sender}-{receiver}", None, 10, 0)
        stored.append(InFlightRef(ref, (data,)))
    return Manifest(
        1, "job", 7, 1, "unaligned", "checkpoint", 0.0, 1.0, (), (), (), (), tuple(stored)
    )


def readers(manifest: Manifest, graph: ExecutionGraph) -> dict[int, list[tuple[str | None, bool]]]:
    """Per receiver: the objects that it reads, in order, and whether their records are dealt again."""
    plan = plan_in_flight(manifest, graph.topology)
    assert all(subtask.vertex == 1 for subtask in plan)
    return {
        subtask.index: [(channel.stored.path, channel.deal_again) for channel in channels]
        for subtask, channels in plan.items()
    }


@pytest.mark.parametrize("kind", [Forward(), Rebalance(), Broadcast(), Hash(KEY), Custom(max, KEY)])
def test_unchanged_link_gives_each_channel_to_its_old_receiver(kind: Partitioning) -> None:
    job = graph(kind, 2, 2)
    manifest = captured(
        (0, 1, "out"), (0, 1, "in"), (1, 0, "out"), kind=job.links[0].kind, receivers=2
    )
    assert readers(manifest, job) == {
        1: [("in-0-1", False), ("out-0-1", False)],
        0: [("out-1-0", False)],
    }


@pytest.mark.parametrize("kind", [Hash(KEY), Custom(max, KEY)])
def test_records_with_a_key_are_dealt_again_when_parallelism_changes(kind: Partitioning) -> None:
    job = graph(kind, 2, 3)
    manifest = captured((1, 0, "out"), kind=job.links[0].kind, receivers=2)
    assert readers(manifest, job) == {index: [("out-1-0", True)] for index in range(3)}


def test_what_was_captured_again_comes_before_what_was_sent_since_the_restore() -> None:
    """The lower index of a newer sender must not let its records overtake older ones of their key."""
    manifest = captured((2, 0, "in"), (0, 0, "in"), (1, 0, "in"), kind="hash", receivers=1)
    older, *newer = manifest.in_flight
    again = replace(older, channels=(replace(older.channels[0], recoveries=1),))
    job = graph(Hash(KEY), 2, 2)
    plan = readers(replace(manifest, in_flight=(*newer, again)), job)
    assert plan[1] == [("in-2-0", True), ("in-0-0", True), ("in-1-0", True)]


def test_records_without_a_key_come_in_whole_channels() -> None:
    manifest = captured((0, 2, "in"), (0, 1, "in"), (0, 0, "in"), kind="rebalance", receivers=3)
    assert readers(manifest, graph(Rebalance(), 1, 2)) == {
        0: [("in-0-0", False), ("in-0-2", False)],
        1: [("in-0-1", False)],
    }


def test_new_subtasks_of_a_broadcast_take_what_one_old_subtask_had_to_see() -> None:
    manifest = captured((0, 0, "in"), (0, 1, "in"), kind="broadcast", receivers=2)
    assert readers(manifest, graph(Broadcast(), 1, 5)) == {
        0: [("in-0-0", False)],
        1: [("in-0-1", False)],
        2: [("in-0-0", False)],
        3: [("in-0-1", False)],
        4: [("in-0-0", False)],
    }
    assert readers(manifest, graph(Broadcast(), 1, 1)) == {0: [("in-0-0", False)]}


def test_records_of_another_partitioning_are_dealt_by_the_new_one() -> None:
    manifest = captured((0, 1, "in"), kind="rebalance", receivers=2)
    assert readers(manifest, graph(Hash(KEY), 1, 2)) == {
        0: [("in-0-1", True)],
        1: [("in-0-1", True)],
    }


def test_an_impure_partitioner_is_never_asked_again() -> None:
    manifest = captured((0, 1, "in"), (0, 2, "in"), kind="custom", receivers=3)
    assert readers(manifest, graph(Custom(max, KEY, pure=False), 1, 2)) == {
        0: [("in-0-2", False)],
        1: [("in-0-1", False)],
    }


def test_lost_link_is_refused_with_its_name() -> None:
    job = graph(Rebalance(), 1, 1)
    other = ExecutionGraph("job", job.vertices, ())
    with pytest.raises(ConfigurationError, match=r"'a > b:0' \(10 bytes\)"):
        plan_in_flight(captured((0, 0, "in"), kind="rebalance", receivers=1), other.topology)


def test_nothing_captured_is_nothing_to_plan() -> None:
    assert plan_in_flight(captured(kind="hash", receivers=1), graph(Hash(KEY), 1, 1).topology) == {}


def stored_as(manifest: Manifest, in_flight: str, order: str) -> Manifest:
    """The checkpoint with what it remembers of its edge, as `InFlight` and `Order` call it."""
    edge = EdgeEntry("a > b:0", 2, "", in_flight, order)
    vertex = VertexEntry(1, ("b",), "b", 2, 128, (edge,))
    return replace(manifest, vertices=(vertex,))


@pytest.mark.parametrize(("in_flight", "order"), [("", ""), ("WHOLE_CHANNELS", "NONE")])
def test_an_unknown_name_tells_nothing_but_that_dealing_has_changed(
    in_flight: str, order: str
) -> None:
    manifest = stored_as(captured((0, 1, "in"), kind="own", receivers=2), in_flight, order)
    assert readers(manifest, graph(Rebalance(), 2, 1)) == {0: [("in-0-1", False)]}
    assert readers(manifest, graph(Hash(KEY), 2, 1)) == {0: [("in-0-1", True)]}


def test_copies_that_a_partitioning_of_another_package_made_are_told_by_what_it_said() -> None:
    manifest = captured((0, 0, "in"), (0, 1, "in"), kind="everywhere", receivers=2)
    copies = stored_as(manifest, "ONE_COPY", "NONE")
    assert readers(copies, graph(Broadcast(), 2, 3))[2] == [("in-0-0", False)]
    with pytest.raises(ConfigurationError, match=r"deal them by everywhere\(\) once more"):
        plan_in_flight(copies, graph(Rebalance(), 2, 3).topology)


def test_order_that_a_partitioning_of_another_package_kept_is_not_lost() -> None:
    manifest = captured((0, 1, "in"), kind="range", receivers=2)
    ordered = graph(Forward(), 3, 3)
    with pytest.raises(ConfigurationError, match="would lose the order of records of one key"):
        plan_in_flight(stored_as(manifest, "DEALT_AGAIN", "BY_KEY"), ordered.topology)
    unordered = stored_as(manifest, "WHOLE_CHANNELS", "NONE")
    assert readers(unordered, ordered) == {1: [("in-0-1", False)]}


def test_manifests_tell_what_their_edges_were() -> None:
    job = graph(Custom(max, KEY, pure=False), 2, 2).topology
    [entry] = edge_entries(job, job.vertices[1])
    assert (entry.in_flight, entry.order) == ("UNCAPTURED", "NONE")
    older = {"key": "a > b:0", "senders": 2, "dealing": ""}
    assert from_plain(EdgeEntry, older) == EdgeEntry("a > b:0", 2, "")
