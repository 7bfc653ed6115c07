"""Checks whether a job graph holds together, as far as that shows without running it."""

from __future__ import annotations

from collections import defaultdict

from minirt.errors import ConfigurationError
from minirt.graph.drift import check_drift
from minirt.graph.job_graph import Edge, JobGraph, OperatorNode
from minirt.graph.partitioning import Partitioning, Wiring, check_wiring
from minirt.protocol.key_groups import MAX_PARALLELISM_LIMIT


def validate(graph: JobGraph) -> None:
    """Raise ConfigurationError, naming the operator, unless every record has a way to a sink."""
    if all(node.spec.inputs for node in graph.operators.values()):
        raise ConfigurationError(f"job {graph.name} has no source: begin with Environment.source")
    _check_order(graph)
    for edge in graph.edges:
        _check_edge(graph, edge)
    inputs: dict[str, set[int]] = defaultdict(set)
    for edge in graph.edges:
        inputs[edge.target].add(edge.target_input)
    consumed = {edge.source for edge in graph.edges if edge.tag is None}
    for uid, node in graph.operators.items():
        check_parallelism(node)
        _check_inputs(node, inputs[uid])
        _check_outputs(node, uid in consumed)
    _check_event_time(graph)
    check_drift(graph)


def check_parallelism(node: OperatorNode) -> None:
    """Raise ConfigurationError unless 1 <= parallelism <= max_parallelism <= 32768."""
    check_max_parallelism(node.max_parallelism, node.label)
    value = node.parallelism
    if not _is_whole(value) or value < 1:
        raise ConfigurationError(
            f"{node.label}: parallelism must be a whole number above 0, got {value!r}"
        )
    if value > node.max_parallelism:
        raise ConfigurationError(
            f"{node.label}: parallelism {value} is above max_parallelism {node.max_parallelism}, "
            "the number of key groups; raise max_parallelism of the Environment"
        )


def check_max_parallelism(value: object, label: str) -> None:
    """Raise ConfigurationError unless the value is a whole number from 1 to 32768."""
    if (
        not isinstance(value, int)
        or not _is_whole(value)
        or not 1 <= value <= MAX_PARALLELISM_LIMIT
    ):
        raise ConfigurationError(
            f"{label}: max_parallelism must be a whole number from 1 to {MAX_PARALLELISM_LIMIT}, "
            f"got {value!r}"
        )


def _check_order(graph: JobGraph) -> None:
    place = {uid: index for index, uid in enumerate(graph.operators)}
    for uid, node in graph.operators.items():
        if uid != node.uid:
            raise ConfigurationError(f"{node.label} is listed under another uid, {uid}")
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in place:
                raise ConfigurationError(
                    f"edge {edge.source} -> {edge.target}: no operator has uid {end}"
                )
        if place[edge.source] >= place[edge.target]:
            raise ConfigurationError(
                f"edge {edge.source} -> {edge.target} leads backwards: "
                "operators must be in topological order"
            )


def _check_edge(graph: JobGraph, edge: Edge) -> None:
    source, target = graph.operators[edge.source], graph.operators[edge.target]
    if not source.spec.emits:
        raise ConfigurationError(f"{source.label} is a sink: nothing can follow it")
    check_partitioning(edge.partitioning, source, target)


def check_partitioning(
    partitioning: Partitioning, source: OperatorNode, target: OperatorNode
) -> None:
    """Raise ConfigurationError unless the partitioning can deal the records of one to the other."""
    one_to_one = partitioning.wiring is Wiring.ONE_TO_ONE
    if one_to_one and source.parallelism != target.parallelism:
        raise ConfigurationError(
            f"{target.label}: {partitioning.name}() needs equal parallelism, but {source.label} has "
            f"{source.parallelism} and {target.label} has {target.parallelism}; use rescale() or "
            "rebalance()"
        )
    check_wiring(partitioning, source.parallelism, target.parallelism, target.label)


def _check_inputs(node: OperatorNode, inputs: set[int]) -> None:
    expected = node.spec.inputs
    if inputs != set(range(expected)):
        raise ConfigurationError(
            f"{node.label} has {expected} input{'s' * (expected != 1)}, "
            f"but edges lead into {sorted(inputs) or 'none'}"
        )


def _check_outputs(node: OperatorNode, consumed: bool) -> None:
    if not consumed and node.spec.emits:
        raise ConfigurationError(
            f"{node.label}: its output goes nowhere; end the stream with .sink(...), "
            "DiscardSink() if it is not needed"
        )


def _check_event_time(graph: JobGraph) -> None:
    """Without the watermarks of a source, operators that wait for them would wait until all input ends."""
    timeless: dict[str, OperatorNode] = {}
    for uid, node in graph.operators.items():
        if node.spec.timeless:
            timeless[uid] = node
        for edge in graph.edges:
            if edge.target == uid and edge.source in timeless:
                timeless[uid] = timeless[edge.source]
        if node.spec.needs_event_time and uid in timeless:
            raise ConfigurationError(
                f"{node.label}: a {node.spec.kind} needs event time, but {timeless[uid].label} gives none; "
                "give that source watermarks=..."
            )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
