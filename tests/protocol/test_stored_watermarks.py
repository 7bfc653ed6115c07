"""What holds of stored watermarks for the subtasks of a restored job."""

from __future__ import annotations

from itertools import pairwise

import pytest

from minirt.graph.execution import ExecutionGraph, Link, Vertex
from minirt.graph.job_graph import OperatorNode
from minirt.graph.keys import KeySelector
from minirt.operators.map import MapSpec
from minirt.partitionings import Forward, Hash, Partitioning, Rebalance, Rescale
from minirt.protocol.ids import SubtaskId
from minirt.protocol.stored_watermarks import (
    LinkWatermarks,
    RestoredWatermarks,
    SubtaskWatermarks,
    plan_watermarks,
)
from minirt.protocol.watermarks import MAX_WATERMARK

HASH = Hash(KeySelector(("k",)))
Known = int | None


def graph(*parallelism: int, partitioning: Partitioning = HASH) -> ExecutionGraph:
    """Operators `a`, `b` and so on, each linked to the one before."""

    def vertex(place: int, count: int) -> Vertex:
        uid = "abc"[place]
        return Vertex(place, (OperatorNode(uid, uid, MapSpec(str), count, 128),), (), count, 128)

    vertices = tuple(vertex(place, count) for place, count in enumerate(parallelism))
    links = tuple(
        Link(i, i, "abc"[i], i + 1, 0, partitioning, None, senders, receivers, 128)
        for i, (senders, receivers) in enumerate(pairwise(parallelism))
    )
    return ExecutionGraph("job", vertices, links)


def of_source(*watermarks: Known) -> list[SubtaskWatermarks]:
    return [SubtaskWatermarks("a", index, known) for index, known in enumerate(watermarks)]


def of_receiver(
    *subtasks: tuple[Known, tuple[Known, ...]], kind: str = "hash", senders: int | None = None
) -> list[SubtaskWatermarks]:
    """The subtasks of `b`: its watermark, and those of its channels from `a`."""
    return [
        SubtaskWatermarks(
            "b",
            index,
            known,
            (LinkWatermarks.of("a > b:0", kind, senders or len(channels), channels),),
        )
        for index, (known, channels) in enumerate(subtasks)
    ]


def restored(
    stored: list[SubtaskWatermarks], graph: ExecutionGraph, vertex: int
) -> list[tuple[Known, tuple[Known, ...]]]:
    plan = plan_watermarks(stored, graph.topology)
    of_vertex = [
        plan.get(id, RestoredWatermarks(None)) for id in graph.subtasks() if id.vertex == vertex
    ]
    return [(one.watermark, one.channels) for one in of_vertex]


def test_at_the_same_parallelism_all_go_on_where_they_were() -> None:
    stored = of_source(10, 20) + of_receiver((5, (5, 7)), (6, (8, 6)))
    assert restored(stored, graph(2, 2), 0) == [(10, ()), (20, ())]
    assert restored(stored, graph(2, 2), 1) == [(5, (5, 7)), (6, (8, 6))]


@pytest.mark.parametrize("now", [1, 3])
def test_at_another_parallelism_all_start_from_the_least(now: int) -> None:
    stored = of_source(10, 20) + of_receiver((5, (9, 7)), (6, (8, 6)))
    assert restored(stored, graph(now, now), 0) == [(10, ())] * now
    assert restored(stored, graph(now, now), 1) == [(5, (6,) * now)] * now


def test_with_other_senders_only_the_channels_are_others() -> None:
    stored = of_receiver((5, (9, 7)), (6, (8, 6)))
    assert restored(stored, graph(3, 2), 1) == [(5, (6, 6, 6)), (6, (6, 6, 6))]


def test_as_many_channels_from_other_senders_are_not_the_same_channels() -> None:
    stored = of_receiver((5, (5,)), (6, (8,)), kind="rescale", senders=1)
    assert restored(stored, graph(2, 2, partitioning=Rescale()), 1) == [(5, (5,)), (6, (5,))]


def test_records_that_are_dealt_otherwise_bring_the_least_watermark_to_all() -> None:
    stored = of_receiver((5, (9, 7)), (6, (8, 6)))
    assert restored(stored, graph(2, 2, partitioning=Rebalance()), 1) == [(5, (6, 6)), (5, (6, 6))]


def test_what_one_subtask_did_not_know_no_other_one_knows() -> None:
    stored = of_source(10, None) + of_receiver((None, (9, None)), (6, (8, 6)))
    assert restored(stored, graph(2, 2), 0) == [(10, ()), (None, ())]
    assert restored(stored, graph(3, 3), 0) == [(None, ())] * 3
    assert restored(stored, graph(2, 2), 1) == [(None, (9, None)), (6, (8, 6))]
    assert restored(stored, graph(1, 1), 1) == [(None, (None,))]


def test_the_end_of_event_time_is_told_again_by_who_has_ended() -> None:
    end = MAX_WATERMARK
    stored = of_source(10, end) + of_receiver((5, (5, end)), (end, (end, end)))
    assert restored(stored, graph(2, 2), 0) == [(10, ()), (None, ())]
    assert restored(stored, graph(2, 2), 1) == [(5, (5, None)), (None, (None, None))]
    assert restored(stored, graph(1, 1), 0) == [(10, ())]
    assert restored(stored, graph(1, 1), 1) == [(5, (5,))]
    assert restored(of_source(end, end), graph(1), 0) == [(None, ())]


def test_a_vertex_with_an_input_that_is_new_starts_without_a_watermark() -> None:
    stored = [SubtaskWatermarks("b", 0, 5, (LinkWatermarks("x > b:0", "hash", 1, (5,)),))]
    assert plan_watermarks(stored, graph(1, 1).topology) == {}


def test_a_vertex_that_has_lost_an_input_goes_on_with_the_others() -> None:
    inputs = (
        LinkWatermarks("x > b:0", "rebalance", 1, (5,)),
        LinkWatermarks("a > b:0", "hash", 1, (7,)),
    )
    stored = [SubtaskWatermarks("b", 0, 5, inputs)]
    assert plan_watermarks(stored, graph(1, 1).topology) == {
        SubtaskId(1, 0): RestoredWatermarks(5, (7,)),
    }


def test_channels_of_a_forward_link_stay_with_their_subtask() -> None:
    stored = of_receiver((5, (5,)), (6, (6,)), kind="forward", senders=2)
    assert restored(stored, graph(2, 2, partitioning=Forward()), 1) == [(5, (5,)), (6, (6,))]


def test_a_rescale_link_from_other_senders_brings_the_least_watermark_to_all() -> None:
    stored = of_source(10, 10, 1000, 1000) + of_receiver(
        (10, (10, 10)), (1000, (1000, 1000)), kind="rescale", senders=4
    )
    fewer = graph(2, 2, partitioning=Rescale())
    assert restored(stored, fewer, 1) == [(10, (10,)), (10, (10,))]
    same = graph(4, 2, partitioning=Rescale())
    assert restored(stored, same, 1) == [(10, (10, 10)), (1000, (1000, 1000))]


def test_so_do_links_from_subtasks_that_start_from_the_least_themselves() -> None:
    """Three operators; only the sources change, and the last link joins equal indexes."""
    stored = of_source(10, 10, 1000, 1000) + of_receiver(
        (10, (10, 10)), (1000, (1000, 1000)), kind="rescale", senders=4
    )
    stored += [
        SubtaskWatermarks("c", index, known, (LinkWatermarks("b > c:0", "rescale", 2, (known,)),))
        for index, known in enumerate((10, 1000))
    ]
    assert restored(stored, graph(2, 2, 2, partitioning=Rescale()), 2) == [(10, (10,))] * 2


def test_a_channel_from_a_subtask_that_starts_from_the_least_does_too() -> None:
    stored = of_source(10, 1000) + of_receiver((10, (10, 1000)), (10, (10, 1000)))
    stored += [
        SubtaskWatermarks("c", index, 10, (LinkWatermarks("b > c:0", "hash", 2, (10, 500)),))
        for index in range(2)
    ]
    dealt_by_another_key = plan_watermarks(stored, graph(2, 2, 2).topology, {"a > b:0"})
    assert dealt_by_another_key[SubtaskId(1, 1)] == RestoredWatermarks(10, (10, 10))
    assert dealt_by_another_key[SubtaskId(2, 0)] == RestoredWatermarks(10, (10, 10))


def test_operators_that_are_chained_now_start_from_the_least_of_what_they_had() -> None:
    chained = graph(2, 2)
    head, behind = (vertex.operators[0] for vertex in chained.vertices)
    vertex = Vertex(0, (head, behind), (0,), 2, 128)
    stored = of_source(10, 1000) + of_receiver((5, (5, 7)), (6, (8, 6)))
    assert restored(stored, ExecutionGraph("job", (vertex,), ()), 0) == [(5, ()), (6, ())]


def test_what_follows_a_vertex_with_a_new_input_starts_without_a_watermark() -> None:
    stored = [SubtaskWatermarks("b", 0, 5, (LinkWatermarks("x > b:0", "hash", 1, (5,)),))]
    stored += [SubtaskWatermarks("c", 0, 5, (LinkWatermarks("b > c:0", "hash", 1, (5,)),))]
    assert plan_watermarks(stored, graph(1, 1, 1).topology) == {}


def test_channels_without_watermarks_take_no_room_however_many_there_are() -> None:
    none, one = (LinkWatermarks.of("x", "hash", 9, [known] * 9) for known in (None, 5))
    assert (none.watermarks, none.channels) == ((), (None,) * 9)
    assert (one.watermarks, one.unknown, one.channels) == ((5,) * 9, 0, (5,) * 9)
    mixed = LinkWatermarks.of("x", "hash", 2, [None, 5])
    assert mixed.channels == (None, 5)


def test_however_many_subtasks_there_are_each_old_channel_is_read_but_once_or_twice() -> None:
    reads = 0

    class Counted(LinkWatermarks):
        @property
        def channels(self) -> tuple[int | None, ...]:
            nonlocal reads
            reads += 1
            return super().channels

    count = 30
    inputs = (Counted("a > b:0", "hash", count, (7,) * count),)
    stored = of_source(*[10] * count)
    stored += [SubtaskWatermarks("b", index, 5, inputs) for index in range(count)]
    assert restored(stored, graph(40, 40), 1) == [(5, (7,) * 40)] * 40
    assert count <= reads <= 2 * count
