"""Who reads which snapshots when a job is restored, at the same or another parallelism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess
from minirt.graph.execution import ExecutionGraph, Vertex
from minirt.graph.job_graph import OperatorNode
from minirt.graph.operator_spec import OperatorSpec
from minirt.io.base import Sink, SinkContext, SinkWriter
from minirt.operators.keyed_process import KeyedProcessSpec
from minirt.operators.map import MapSpec
from minirt.operators.sink import SinkSpec
from minirt.protocol.ids import SubtaskId
from minirt.protocol.key_groups import group_range
from minirt.protocol.manifest import Manifest, SnapshotRef, VertexEntry
from minirt.protocol.restore import RestorePart, plan_restore, vertex_entries


class Nowhere(Sink):
    def open_writer(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError


class Silent(KeyedProcess):
    def process(self, record: object, ctx: object) -> None:
        raise NotImplementedError


SPECS: dict[str, OperatorSpec] = {
    "map": MapSpec(str),
    "keyed": KeyedProcessSpec(Silent()),
    "sink": SinkSpec(Nowhere()),
}


def vertex(place: int, *uids: str, parallelism: int = 2, max_parallelism: int = 128) -> Vertex:
    """`keyed2` is a keyed operator: the uid without its digits says what it is."""
    nodes = tuple(
        OperatorNode(uid, uid, SPECS[uid.rstrip("0123456789")], parallelism, max_parallelism)
        for uid in uids
    )
    return Vertex(place, nodes, (*range(len(nodes) - 1),), parallelism, max_parallelism)


def graph(*vertices: Vertex) -> ExecutionGraph:
    return ExecutionGraph("job", vertices, ())


def reference(vertex: int, subtask: int) -> SnapshotRef:
    return SnapshotRef(vertex, subtask, f"v{vertex}-s{subtask}", None, 10, 0)


def checkpoint(*vertices: Vertex) -> Manifest:
    """A checkpoint of the job with these vertices, with a snapshot of each subtask."""
    entries = vertex_entries(graph(*vertices).topology)
    refs = tuple(reference(e.id, index) for e in entries for index in range(e.parallelism))
    return Manifest(1, "job", 7, 1, "aligned", "checkpoint", 0.0, 1.0, entries, refs, (), ())


def readers(
    manifest: Manifest, *vertices: Vertex, allow_non_restored_state: bool = False
) -> dict[tuple[str, int], tuple[list[str | None], bool]]:
    """Per uid and subtask: the paths that it reads, and whether they are exactly its own."""
    plan = plan_restore(
        manifest, graph(*vertices).topology, allow_non_restored_state=allow_non_restored_state
    )
    return {
        (uid, subtask.index): ([ref.path for ref in part.snapshots], part.exact)
        for subtask, parts in plan.items()
        for uid, part in parts.items()
    }


def test_vertices_are_remembered_with_the_uids_that_keep_state() -> None:
    entries = vertex_entries(
        graph(vertex(0, "keyed", "map", "sink"), vertex(1, "map2", parallelism=3)).topology
    )
    assert entries == (
        VertexEntry(0, ("keyed", "sink"), "keyed > map > sink", 2, 128),
        VertexEntry(1, (), "map2", 3, 128),
    )


def test_at_the_same_parallelism_each_subtask_reads_exactly_its_own_snapshot() -> None:
    job = vertex(0, "keyed", "map", "sink")
    assert readers(checkpoint(job), job) == {
        ("keyed", 0): (["v0-s0"], True),
        ("sink", 0): (["v0-s0"], True),
        ("keyed", 1): (["v0-s1"], True),
        ("sink", 1): (["v0-s1"], True),
    }


def test_parts_are_planned_by_subtask_and_uid() -> None:
    job = vertex(0, "keyed", parallelism=1)
    plan = plan_restore(checkpoint(job), graph(job).topology, allow_non_restored_state=False)
    assert plan == {SubtaskId(0, 0): {"keyed": RestorePart((reference(0, 0),), exact=True)}}


def test_operators_are_found_by_uid_whatever_vertex_they_are_in_now() -> None:
    old = checkpoint(vertex(0, "keyed", "sink"), vertex(1, "sink2"))
    assert readers(old, vertex(0, "sink2"), vertex(1, "map", "keyed"), vertex(2, "sink")) == {
        ("sink2", 0): (["v1-s0"], True),
        ("sink2", 1): (["v1-s1"], True),
        ("keyed", 0): (["v0-s0"], True),
        ("keyed", 1): (["v0-s1"], True),
        ("sink", 0): (["v0-s0"], True),
        ("sink", 1): (["v0-s1"], True),
    }


def test_operator_without_state_in_the_checkpoint_reads_nothing() -> None:
    assert readers(checkpoint(vertex(0, "map")), vertex(0, "map", "keyed")) == {}


def test_subtask_that_stored_no_snapshot_has_none_to_read() -> None:
    job = vertex(0, "keyed")
    manifest = checkpoint(job)
    without = Manifest(
        1, "job", 7, 1, "aligned", "checkpoint", 0.0, 1.0, manifest.vertices, (), (), ()
    )
    assert readers(without, job) == {("keyed", 0): ([], True), ("keyed", 1): ([], True)}


def test_more_keyed_subtasks_read_the_old_ones_whose_key_groups_they_take_over() -> None:
    old = checkpoint(vertex(0, "keyed", parallelism=2))
    assert readers(old, vertex(0, "keyed", parallelism=4)) == {
        ("keyed", 0): (["v0-s0"], False),
        ("keyed", 1): (["v0-s0"], False),
        ("keyed", 2): (["v0-s1"], False),
        ("keyed", 3): (["v0-s1"], False),
    }


def test_fewer_keyed_subtasks_read_all_old_ones_that_overlap_theirs() -> None:
    old = checkpoint(vertex(0, "keyed", parallelism=3))
    assert readers(old, vertex(0, "keyed", parallelism=2)) == {
        ("keyed", 0): (["v0-s0", "v0-s1"], False),
        ("keyed", 1): (["v0-s1", "v0-s2"], False),
    }


def test_operators_without_keys_read_everything_when_parallelism_changes() -> None:
    old = checkpoint(vertex(0, "sink", parallelism=3))
    everything: list[str | None] = ["v0-s0", "v0-s1", "v0-s2"]
    assert readers(old, vertex(0, "sink", parallelism=2)) == {
        ("sink", 0): (everything, False),
        ("sink", 1): (everything, False),
    }


@given(
    old_parallelism=st.integers(1, 9),
    new_parallelism=st.integers(1, 9),
    max_parallelism=st.integers(9, 40),
)
def test_every_key_group_is_read_by_its_new_owner_from_its_old_one(
    old_parallelism: int, new_parallelism: int, max_parallelism: int
) -> None:
    old = vertex(0, "keyed", parallelism=old_parallelism, max_parallelism=max_parallelism)
    new = vertex(0, "keyed", parallelism=new_parallelism, max_parallelism=max_parallelism)
    plan = plan_restore(checkpoint(old), graph(new).topology, allow_non_restored_state=False)
    for index in range(new_parallelism):
        mine = set(group_range(index, new_parallelism, max_parallelism))
        read = {ref.subtask for ref in plan[SubtaskId(0, index)]["keyed"].snapshots}
        owners = {
            candidate
            for candidate in range(old_parallelism)
            if mine & set(group_range(candidate, old_parallelism, max_parallelism))
        }
        assert read == owners


def test_state_of_an_operator_that_is_gone_is_refused_with_its_uid() -> None:
    old = checkpoint(vertex(0, "keyed", "keyed2", "sink"))
    with pytest.raises(ConfigurationError, match=r"checkpoint 7 .*'keyed', 'keyed2', but no"):
        readers(old, vertex(0, "map", "sink"))


def test_state_of_an_operator_that_is_gone_is_dropped_where_allowed() -> None:
    old = checkpoint(vertex(0, "keyed", "sink"))
    assert readers(old, vertex(0, "sink"), allow_non_restored_state=True) == {
        ("sink", 0): (["v0-s0"], True),
        ("sink", 1): (["v0-s1"], True),
    }


def test_operator_without_state_may_go() -> None:
    assert len(readers(checkpoint(vertex(0, "map", "sink")), vertex(0, "sink"))) == 2


@pytest.mark.parametrize("allowed", [True, False])
def test_changed_max_parallelism_is_refused(allowed: bool) -> None:
    old = checkpoint(vertex(0, "keyed", max_parallelism=128))
    with pytest.raises(ConfigurationError, match=r"'keyed'.*max_parallelism 128 .*with 64"):
        readers(old, vertex(0, "keyed", max_parallelism=64), allow_non_restored_state=allowed)
