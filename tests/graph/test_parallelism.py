"""A job at another parallelism is what its program would have written."""

from __future__ import annotations

import pytest

import minirt as rt
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph
from minirt.graph.parallelism import at_parallelism, following
from minirt.graph.planner import build_execution_graph


def job(parallelism: int) -> JobGraph:
    """Edges by key, by default, chosen, and to an operator with a parallelism of its own."""
    env = rt.Environment("job", parallelism=parallelism)
    numbers = env.source(rt.SequenceSource(10, splits=2), uid="numbers", parallelism=2)
    doubled = numbers.map(lambda n: n * 2, uid="doubled")
    dealt = doubled.rebalance().map(str, uid="dealt")
    dealt.key_by(len).reduce(max, uid="longest").sink(rt.DiscardSink(), uid="out", parallelism=1)
    return env.graph()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("written", [1, 2, 4])
def test_it_is_planned_as_if_it_had_been_written_so(written: int, parallelism: int) -> None:
    found = build_execution_graph(at_parallelism(job(written), parallelism))
    wanted = build_execution_graph(job(parallelism))
    assert [(v.name, v.parallelism) for v in found.vertices] == [
        (v.name, v.parallelism) for v in wanted.vertices
    ]
    assert [
        (found.link_key(link), link.kind, link.senders, link.receivers) for link in found.links
    ] == [(wanted.link_key(link), link.kind, link.senders, link.receivers) for link in wanted.links]


def test_operators_with_a_parallelism_of_their_own_do_not_follow() -> None:
    assert {node.uid for node in following(job(2))} == {"doubled", "dealt", "longest"}


def test_a_partitioning_that_was_chosen_stays() -> None:
    env = rt.Environment("job", parallelism=2)
    stream = env.source(rt.SequenceSource(10), parallelism=2).forward()
    stream.map(str).sink(rt.DiscardSink())
    graph = env.graph()
    with pytest.raises(ConfigurationError, match="needs equal parallelism"):
        build_execution_graph(at_parallelism(graph, 3))
