"""Job graphs that do not hold together, however they were made."""

from __future__ import annotations

import pytest

from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph
from minirt.graph.planner import build_execution_graph
from minirt.graph.validate import validate
from minirt.partitionings import Rebalance


def refused(pattern):
    return pytest.raises(ConfigurationError, match=pattern)


def test_a_whole_graph_is_accepted(job, edge):
    graph = job(
        ["source1", "source2", "co_map", "sink"],
        [edge("source1", "co_map"), edge("source2", "co_map", into=1), edge("co_map", "sink")],
    )
    validate(graph)


def test_a_graph_without_source_is_refused(job):
    with refused("job job has no source"):
        validate(job(["sink"], []))


def test_a_sink_with_a_consumer_is_refused(job, edge):
    graph = job(["source", "sink1", "sink2"], [edge("source", "sink1"), edge("sink1", "sink2")])
    with refused("sink1 is a sink: nothing can follow it"):
        validate(graph)


def test_an_output_that_goes_nowhere_is_refused(job, edge):
    with refused("map: its output goes nowhere"):
        validate(job(["source", "map"], [edge("source", "map")]))
    with refused("source: its output goes nowhere"):
        validate(job(["source", "sink"], [edge("source", "sink", tag="errors")]))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "map has 1 input, but edges lead into none"),
        ([("source", "map", 1)], r"map has 1 input, but edges lead into \[1\]"),
        ([("source", "map", 0), ("source", "map", 1)], r"edges lead into \[0, 1\]"),
    ],
)
def test_an_operator_with_the_wrong_inputs_is_refused(job, edge, edges, message):
    inputs = [edge(source, target, into=into) for source, target, into in edges]
    with refused(message):
        validate(
            job(["source", "map", "sink"], [*inputs, edge("map", "sink"), edge("source", "sink")])
        )


def test_a_two_input_operator_with_one_input_is_refused(job, edge):
    graph = job(["source", "co_map", "sink"], [edge("source", "co_map"), edge("co_map", "sink")])
    with refused("co_map has 2 inputs"):
        validate(graph)


def test_a_source_with_an_input_is_refused(job, edge):
    graph = job(
        ["source1", "source2", "sink"], [edge("source1", "source2"), edge("source2", "sink")]
    )
    with refused("source2 has 0 inputs"):
        validate(graph)


def test_an_edge_to_an_unknown_operator_is_refused(job, edge):
    with refused("no operator has uid gone"):
        validate(job(["source", "sink"], [edge("source", "gone"), edge("source", "sink")]))


def test_operators_out_of_order_are_refused(job, edge):
    with refused("edge source -> sink leads backwards"):
        validate(job(["sink", "source"], [edge("source", "sink")]))


def test_an_operator_listed_under_another_uid_is_refused(node):
    with refused("source is listed under another uid, other"):
        validate(JobGraph("job", {"other": node("source")}, ()))


def test_forward_between_different_parallelism_is_refused(job, node, edge):
    nodes = [node("source", 2), node("sink", 3)]
    with refused(r"sink: forward\(\) needs equal parallelism"):
        validate(job(nodes, [edge("source", "sink")]))
    validate(job(nodes, [edge("source", "sink", Rebalance())]))


@pytest.mark.parametrize(
    ("parallelism", "most", "message"),
    [
        (0, 128, "sink: parallelism must be"),
        (129, 128, "sink: parallelism 129 is above max_parallelism 128"),
        (1, 32769, "sink: max_parallelism must be"),
    ],
)
def test_parallelism_out_of_bounds_is_refused(job, node, edge, parallelism, most, message):
    sink = node("sink", parallelism, max_parallelism=most)
    with refused(message):
        validate(job(["source", sink], [edge("source", "sink", Rebalance())]))


def test_the_planner_refuses_what_does_not_hold_together(job):
    with refused("goes nowhere"):
        build_execution_graph(job(["source"], []))
