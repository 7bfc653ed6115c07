<<<<<<< HEAD
"""Who reads which snapshots when a job is restored, at the same or another parallelism."""

from __future__ import annotations

=======
"""Which stored snapshots each subtask reads, at the same and at another parallelism."""

from __future__ import annotations

from dataclasses import replace

>>>>>>> sim
import pytest
from hypothesis import given
from hypothesis import strategies as st

<<<<<<< HEAD
from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess
from minirt.graph.execution import ExecutionGraph, SubtaskId, Vertex
from minirt.graph.job_graph import (
    KeyedProcessSpec,
    KeySelector,
    MapSpec,
    OperatorNode,
    OperatorSpec,
    SinkSpec,
)
from minirt.graph.key_groups import group_range
from minirt.io.base import Sink, SinkContext, SinkWriter
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
    "keyed": KeyedProcessSpec(KeySelector(("k",)), Silent()),
    "sink": SinkSpec(Nowhere()),
}


def vertex(place: int, *uids: str, parallelism: int = 2, max_parallelism: int = 128) -> Vertex:
    """`keyed2` is a keyed operator: the uid without its digits says what it is."""
    nodes = tuple(
        OperatorNode(uid, uid, SPECS[uid.rstrip("0123456789")], parallelism, max_parallelism)
        for uid in uids
    )
    return Vertex(place, nodes, parallelism, max_parallelism)


def graph(*vertices: Vertex) -> ExecutionGraph:
    return ExecutionGraph("job", vertices, ())


def reference(vertex: int, subtask: int) -> SnapshotRef:
    return SnapshotRef(vertex, subtask, f"v{vertex}-s{subtask}", None, 10, 0)


def checkpoint(*vertices: Vertex) -> Manifest:
    """A checkpoint of the job with these vertices, with a snapshot of each subtask."""
    entries = vertex_entries(graph(*vertices))
    refs = tuple(reference(e.id, index) for e in entries for index in range(e.parallelism))
    return Manifest(1, "job", 7, 1, "aligned", "checkpoint", 0.0, 1.0, entries, refs, (), ())


def readers(
    manifest: Manifest, *vertices: Vertex, allow_non_restored_state: bool = False
) -> dict[tuple[str, int], tuple[list[str | None], bool]]:
    """Per uid and subtask: the paths that it reads, and whether they are exactly its own."""
    plan = plan_restore(
        manifest, graph(*vertices), allow_non_restored_state=allow_non_restored_state
    )
    return {
        (uid, subtask.index): ([ref.path for ref in part.snapshots], part.exact)
        for subtask, parts in plan.items()
        for uid, part in parts.items()
    }


def test_vertices_are_remembered_with_the_uids_that_keep_state() -> None:
    entries = vertex_entries(
        graph(vertex(0, "keyed", "map", "sink"), vertex(1, "map2", parallelism=3))
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
    plan = plan_restore(checkpoint(job), graph(job), allow_non_restored_state=False)
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
    plan = plan_restore(checkpoint(old), graph(new), allow_non_restored_state=False)
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
=======
import minirt as rt
from minirt.graph.execution import ExecutionGraph, SubtaskId
from minirt.graph.key_groups import group_range
from minirt.graph.planner import build_execution_graph
from minirt.protocol.manifest import Manifest, SnapshotRef
from minirt.protocol.restore import RestorePart, RestorePlan, plan_restore, vertex_entries

MAX_PARALLELISM = 8


class Count(rt.KeyedProcess):
    def process(self, record: int, ctx: rt.KeyedContext) -> None:
        """Nothing."""


def graph(
    source: int = 2, keyed: int = 2, *, uid: str = "count", max_parallelism: int = MAX_PARALLELISM
) -> ExecutionGraph:
    """Vertex 0 is a source, vertex 1 a keyed operator with a sink chained to it."""
    env = rt.Environment(max_parallelism=max_parallelism)
    numbers = env.source(rt.SequenceSource(10), uid="numbers", parallelism=source)
    numbers.key_by(lambda n: n).process(Count(), uid=uid, parallelism=keyed).sink(
        rt.CollectSink(), uid="out", parallelism=keyed
    )
    return build_execution_graph(env.graph())


def ref(vertex: int, subtask: int) -> SnapshotRef:
    return SnapshotRef(vertex, subtask, f"v{vertex}-s{subtask}", None, 1, 0)


def manifest(of: ExecutionGraph) -> Manifest:
    refs = tuple(ref(id.vertex, id.index) for id in of.subtasks())
    return Manifest(
        1, "j", 5, 1, "aligned", "checkpoint", 0.0, 1.0, vertex_entries(of), refs, (), ()
    )


def plan(before: ExecutionGraph, after: ExecutionGraph, *, allow: bool = False) -> RestorePlan:
    return plan_restore(manifest(before), after, allow_non_restored_state=allow)


def parts(plan: RestorePlan, uid: str) -> dict[int, RestorePart]:
    """What an operator reads, by subtask."""
    return {id.index: found[uid] for id, found in plan.items() if uid in found}


def part(vertex: int, *subtasks: int, exact: bool) -> RestorePart:
    return RestorePart(tuple(ref(vertex, subtask) for subtask in subtasks), exact)


def test_manifests_remember_the_operators_that_keep_state_or_pending_output() -> None:
    entries = vertex_entries(graph(1, 3))
    assert [(e.id, e.uids, e.parallelism, e.max_parallelism) for e in entries] == [
        (0, ("numbers",), 1, MAX_PARALLELISM),
        (1, ("count", "out"), 3, MAX_PARALLELISM),
    ]


def test_at_the_same_parallelism_each_subtask_reads_exactly_its_own() -> None:
    own = {0: part(1, 0, exact=True), 1: part(1, 1, exact=True)}
    assert plan(graph(1, 2), graph(1, 2)) == {
        SubtaskId(0, 0): {"numbers": part(0, 0, exact=True)},
        SubtaskId(1, 0): {"count": own[0], "out": own[0]},
        SubtaskId(1, 1): {"count": own[1], "out": own[1]},
    }


def test_a_keyed_operator_that_grows_reads_those_whose_key_groups_it_takes_over() -> None:
    """8 key groups: two subtasks have 0-3 and 4-7; three have 0-2, 3-5 and 6-7."""
    assert parts(plan(graph(1, 2), graph(1, 3)), "count") == {
        0: part(1, 0, exact=False),
        1: part(1, 0, 1, exact=False),
        2: part(1, 1, exact=False),
    }


def test_a_keyed_operator_that_shrinks_reads_all_that_it_takes_over() -> None:
    found = plan(graph(1, 3), graph(1, 1))
    assert parts(found, "count") == {0: part(1, 0, 1, 2, exact=False)}


def test_each_subtask_of_a_source_that_changes_reads_all_and_picks_its_splits() -> None:
    found = parts(plan(graph(2, 1), graph(3, 1)), "numbers")
    assert found == dict.fromkeys(range(3), part(0, 0, 1, exact=False))


def test_one_operator_may_change_while_another_stays() -> None:
    found = plan(graph(2, 2), graph(2, 4))
    assert parts(found, "numbers")[1] == part(0, 1, exact=True)
    assert parts(found, "count")[3] == part(1, 1, exact=False)


def test_an_operator_is_found_by_its_uid_wherever_it_runs_now() -> None:
    env = rt.Environment(max_parallelism=MAX_PARALLELISM)
    more = env.source(rt.SequenceSource(1), uid="more")
    numbers = env.source(rt.SequenceSource(10), uid="numbers")
    union = numbers.union(more).key_by(lambda n: n).process(Count(), uid="count")
    union.sink(rt.CollectSink(), uid="out")
    after = build_execution_graph(env.graph())
    home = {node.uid: vertex.id for vertex in after.vertices for node in vertex.operators}
    own = part(1, 0, exact=True)
    assert plan(graph(1, 1), after) == {
        SubtaskId(home["numbers"], 0): {"numbers": part(0, 0, exact=True)},
        SubtaskId(home["count"], 0): {"count": own, "out": own},
    }


def test_state_that_no_operator_wants_is_refused_by_name() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"holds state of 'count'.*its old uid"):
        plan(graph(), graph(uid="renamed"))


def test_state_that_no_operator_wants_may_be_dropped_on_demand() -> None:
    found = plan(graph(1, 1), graph(1, 1, uid="renamed"), allow=True)
    assert parts(found, "numbers") == {0: part(0, 0, exact=True)}
    assert parts(found, "renamed") == {}


def test_another_number_of_key_groups_is_refused() -> None:
    with pytest.raises(rt.ConfigurationError, match=r"'numbers' was checkpointed with max_p.* 8"):
        plan(graph(), graph(max_parallelism=16))


def test_a_subtask_that_stored_nothing_is_left_out() -> None:
    before = graph(1, 2)
    found = manifest(before)
    without = tuple(ref for ref in found.snapshots if (ref.vertex, ref.subtask) != (1, 0))
    restored = plan_restore(
        replace(found, snapshots=without), before, allow_non_restored_state=False
    )
    assert parts(restored, "count") == {
        0: RestorePart((), exact=True),
        1: part(1, 1, exact=True),
    }


@given(before=st.integers(1, 5), after=st.integers(1, 5))
def test_every_key_group_finds_its_way(before: int, after: int) -> None:
    """Whatever old subtask holds a group, the new subtask that owns the group reads its snapshot."""
    found = plan(graph(1, before), graph(1, after))
    for group in range(MAX_PARALLELISM):
        old = _owner(group, before)
        new = _owner(group, after)
        assert ref(1, old) in found[SubtaskId(1, new)]["count"].snapshots


def _owner(group: int, parallelism: int) -> int:
    (owner,) = (
        subtask
        for subtask in range(parallelism)
        if group in group_range(subtask, parallelism, MAX_PARALLELISM)
    )
    return owner
>>>>>>> sim
