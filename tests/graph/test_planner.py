"""Which operators run as one, and which links remain between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.graph.chaining import chain_break
from minirt.graph.keys import KeySelector
from minirt.graph.planner import build_execution_graph
from minirt.partitionings import Broadcast, Custom, Forward, Hash, Rebalance, Rescale
from minirt.protocol.topology import Order

KEY = KeySelector(("k",))


def chains(execution):
    return [[node.uid for node in vertex.operators] for vertex in execution.vertices]


def ends(execution):
    return [(link.source_uid, link.target) for link in execution.links]


def test_a_line_of_forward_edges_becomes_one_vertex(job, edge):
    graph = job(["source", "map", "sink"], [edge("source", "map"), edge("map", "sink")])
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source", "map", "sink"]]
    assert execution.links == ()
    assert (execution.name, execution.vertices[0].parallelism) == ("job", 2)


@pytest.mark.parametrize(
    "partitioning", [Rebalance(), Rescale(), Broadcast(), Hash(KEY), Custom(max, KEY)]
)
def test_only_forward_edges_are_chained(job, edge, partitioning):
    graph = job(["source", "sink"], [edge("source", "sink", partitioning)])
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source"], ["sink"]]
    assert execution.links[0].partitioning == partitioning


@pytest.mark.parametrize(
    ("partitioning", "capturable"),
    [
        (Rebalance(), True),
        (Broadcast(), True),
        (Hash(KEY), True),
        (Custom(max, KEY), True),
        (Custom(max, KEY, pure=False), False),
        (Rescale(), False),
        (Rescale(ordered=False), True),
    ],
)
def test_impure_partitioners_and_pointwise_order_forbid_to_capture(
    job, edge, partitioning, capturable
):
    graph = job(["source", "sink"], [edge("source", "sink", partitioning)])
    (link,) = build_execution_graph(graph).links
    assert link.capturable is capturable


def test_an_operator_may_keep_out_of_the_chain_of_its_input(job, node, edge):
    graph = job(
        ["source", node("map", chain=False), "sink"], [edge("source", "map"), edge("map", "sink")]
    )
    assert chains(build_execution_graph(graph)) == [["source"], ["map", "sink"]]


def test_each_consumer_of_an_output_is_a_branch_of_the_chain(job, edge):
    graph = job(
        ["source", "map", "map2", "sink1", "sink2", "sink3"],
        [
            edge("source", "map"),
            edge("source", "map2"),
            edge("map", "sink1"),
            edge("map2", "sink2"),
            edge("map", "sink3"),
        ],
    )
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source", "map", "sink1", "sink3", "map2", "sink2"]]
    [vertex] = execution.vertices
    assert vertex.feeders == (0, 1, 1, 0, 4)
    assert vertex.name == "source > (map > (sink1, sink3), map2 > sink2)"
    assert vertex.margins == ["", "- ", "  - ", "  - ", "- ", "  "]
    assert execution.links == ()


def test_each_consumer_is_chained_or_not_by_itself(job, node, edge):
    graph = job(
        ["source", node("map", chain=False), "map2", "sink1", "sink2", "sink3"],
        [
            edge("source", "map"),
            edge("source", "map2"),
            edge("source", "sink3", Rebalance()),
            edge("map", "sink1"),
            edge("map2", "sink2"),
        ],
    )
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source", "map2", "sink2"], ["map", "sink1"], ["sink3"]]
    assert ends(execution) == [("source", 1), ("source", 2)]


def test_an_operator_with_two_input_edges_begins_a_chain(job, edge):
    graph = job(
        ["source1", "source2", "map", "sink"],
        [edge("source1", "map"), edge("source2", "map"), edge("map", "sink")],
    )
    assert chains(build_execution_graph(graph)) == [["source1"], ["source2"], ["map", "sink"]]


def test_the_same_upstream_connected_twice_gives_two_links(job, edge):
    graph = job(["source", "sink"], [edge("source", "sink"), edge("source", "sink")])
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source"], ["sink"]]
    assert ends(execution) == [("source", 1), ("source", 1)]


def test_a_two_input_operator_chains_to_none_but_its_consumer_chains_to_it(job, edge):
    graph = job(
        ["source1", "source2", "co_map", "sink"],
        [edge("source1", "co_map"), edge("source2", "co_map", into=1), edge("co_map", "sink")],
    )
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source1"], ["source2"], ["co_map", "sink"]]
    assert [link.target_input for link in execution.links] == [0, 1]


def test_a_side_output_never_chains_but_does_not_hinder_the_main_output(job, edge):
    graph = job(
        ["source", "map", "sink1", "sink2"],
        [edge("source", "map"), edge("source", "sink2", tag="errors"), edge("map", "sink1")],
    )
    execution = build_execution_graph(graph)
    assert chains(execution) == [["source", "map", "sink1"], ["sink2"]]
    assert [(link.source_uid, link.tag) for link in execution.links] == [("source", "errors")]


def test_links_know_the_parallelism_of_both_ends(job, node, edge):
    graph = job(
        [node("source", 2), node("sink", 3, max_parallelism=64)],
        [edge("source", "sink", Rebalance())],
    )
    [link] = build_execution_graph(graph).links
    assert (link.senders, link.receivers, link.max_parallelism) == (2, 3, 64)
    assert len(list(link.channels())) == 6


def test_the_head_of_a_chain_decides_on_its_key_groups(job, node, edge):
    nodes = ["source", node("map", max_parallelism=64), node("sink", max_parallelism=32)]
    graph = job(nodes, [edge("source", "map", Hash(KEY)), edge("map", "sink")])
    assert [v.max_parallelism for v in build_execution_graph(graph).vertices] == [128, 64]


def test_the_reason_against_a_chain_names_its_cause(node):
    def reason(partitioning=None, tag=None, source=None, target=None, inputs=1):
        return chain_break(
            partitioning or Forward(),
            tag,
            source or node("map1"),
            target or node("map2"),
            target_inputs=inputs,
        )

    assert reason() is None
    assert reason(tag="late") == "side outputs are sent over channels"
    assert reason(Hash(KEY)) == "records go to the subtask of their key"
    assert reason(Rescale()) == "records are dealt out in turn"
    assert reason(Broadcast()) == "every subtask gets every record"
    assert reason(Custom(max, KEY)) == "a function picks the subtask"
    assert reason(source=node("map1", 4)) == "parallelism changes from 4 to 2"
    assert reason(inputs=3) == "map2 has 3 input edges"
    assert reason(target=node("map2", chain=False)) == "map2 has chain=False"


PARTITIONINGS = st.sampled_from(
    [Forward(), Forward(), Rebalance(), Rescale(), Broadcast(), Hash(KEY)]
)


@st.composite
def shapes(draw):
    """Operators as (kind, parallelism, chain, inputs), inputs as (place, partitioning, tag)."""
    operators = [("source", draw(st.integers(1, 3)), True, [])]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["source", "map", "map", "co_map"]))
        count = {"source": 0, "map": draw(st.integers(1, 2)), "co_map": 2}[kind]
        inputs = [
            (
                draw(st.integers(0, len(operators) - 1)),
                draw(PARTITIONINGS),
                draw(st.sampled_from([None, None, None, "side"])),
            )
            for _ in range(count)
        ]
        operators.append((kind, draw(st.integers(1, 3)), draw(st.booleans()), inputs))
    return operators


def graph_of(shape, job, node, edge):
    """A valid graph of this shape: outputs without consumer get a sink, impossible forwards yield."""
    nodes, edges = [], []

    def connect(source, target, partitioning, into, tag):
        if isinstance(partitioning, Forward) and source.parallelism != target.parallelism:
            partitioning = Rebalance()
        edges.append(edge(source.uid, target.uid, partitioning, into=into, tag=tag))

    for place, (kind, parallelism, chain, inputs) in enumerate(shape):
        nodes.append(node(f"{kind}{place}", parallelism, chain=chain))
        for number, (source, partitioning, tag) in enumerate(inputs):
            into = number if kind == "co_map" else 0
            connect(nodes[source], nodes[place], partitioning, into, tag)
    consumed = {e.source for e in edges if e.tag is None}
    for place, source in enumerate(list(nodes)):
        if source.uid not in consumed:
            nodes.append(node(f"sink{place}", source.parallelism))
            connect(source, nodes[-1], Forward(), 0, None)
    return job(nodes, edges)


@given(shapes())
def test_every_plan_keeps_operators_and_edges_and_runs_from_front_to_back(job, node, edge, shape):
    graph = graph_of(shape, job, node, edge)
    execution = build_execution_graph(graph)
    assert execution == build_execution_graph(graph)

    planned = [uid for chain in chains(execution) for uid in chain]
    assert sorted(planned) == sorted(graph.operators)
    assert [v.id for v in execution.vertices] == list(range(len(execution.vertices)))
    assert [link.id for link in execution.links] == list(range(len(execution.links)))
    assert all(link.source < link.target for link in execution.links)

    crossing = [
        (
            link.source_uid,
            execution.vertices[link.target].operators[0].uid,
            link.target_input,
            link.tag,
        )
        for link in execution.links
    ]
    inside = [
        (vertex.operators[feeder].uid, node.uid, 0, None)
        for vertex in execution.vertices
        for feeder, node in zip(vertex.feeders, vertex.operators[1:], strict=True)
    ]
    written = [(e.source, e.target, e.target_input, e.tag) for e in graph.edges]
    assert sorted(crossing + inside, key=repr) == sorted(written, key=repr)
    for vertex in execution.vertices:
        assert {node.parallelism for node in vertex.operators} == {vertex.parallelism}
        for place, feeder in enumerate(vertex.feeders, 1):
            branch = {feeder}
            for at in range(feeder + 1, place):
                assert vertex.feeders[at - 1] in branch, "a branch stands in one piece"
                branch.add(at)


def test_a_sender_that_deals_in_turn_to_several_receivers_keeps_no_order(job, node, edge):
    nodes = ["source", node("map", parallelism=4), node("sink", parallelism=4)]
    graph = job(nodes, [edge("source", "map", Rescale()), edge("map", "sink")])
    (link,) = build_execution_graph(graph).links
    assert (link.senders, link.receivers, link.order) == (2, 4, Order.NONE)


def test_calls_within_a_chain_have_keys_as_links_have(job, node, edge):
    graph = job(
        ["source", "map", "sink2", node("map2", chain=False), "sink"],
        [
            edge("source", "map"),
            edge("source", "sink2"),
            edge("map", "map2"),
            edge("map2", "sink"),
        ],
    )
    execution = build_execution_graph(graph)
    assert {key: (e.target, e.target_place) for key, e in execution.edges().items()} == {
        "source > map:0": (0, 1),
        "source > sink2:0": (0, 2),
        "map > map2:0": (1, 0),
        "map2 > sink:0": (1, 1),
    }
    assert [link.id for link in execution.links] == [0]
