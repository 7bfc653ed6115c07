"""Which sources wait for each other: the drift groups of a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from minirt.errors import ConfigurationError
from minirt.graph.execution import ExecutionGraph
from minirt.graph.job_graph import JobGraph, OperatorNode
from minirt.protocol.drift import DriftGroup
from minirt.watermarks import Watermarks

UNNAMED = ""
"""The group of all sources whose watermarks name none."""


def check_drift(graph: JobGraph) -> None:
    """Raise ConfigurationError for groups that cannot wait for each other, or have nobody to wait for."""
    groups: dict[str, list[tuple[OperatorNode, Watermarks]]] = defaultdict(list)
    for node, marks in _drifting(graph.operators.values()):
        groups[group_of(marks)].append((node, marks))
    for name, members in groups.items():
        first, marks = members[0]
        for node, other in members:
            _check_member(node, other)
            if other.max_drift_ms != marks.max_drift_ms:
                raise ConfigurationError(
                    f"{node.label}: max_drift is {_seconds(other)} s here and {_seconds(marks)} s in "
                    f"{first.label}, but all sources of {_called(name)} share one"
                )
        reading = first.spec.reading
        assert reading is not None
        if len(members) == 1 and first.parallelism == 1 and not reading.source.reads_side_by_side:
            raise ConfigurationError(
                f"{first.label}: max_drift has no effect, since nothing else is in {_called(name)}, and "
                "this source reads one split after another in one subtask; give it to each of the sources "
                "that are to wait for each other"
            )


def drift_groups(graph: ExecutionGraph) -> list[DriftGroup]:
    """The groups, with their sources."""
    drifts: dict[str, int] = {}
    sources: dict[str, set[str]] = defaultdict(set)
    for vertex in graph.vertices:
        for node, marks in _drifting(vertex.operators[:1]):
            assert marks.max_drift_ms is not None
            drifts[group_of(marks)] = marks.max_drift_ms
            sources[group_of(marks)].add(node.uid)
    return [DriftGroup(name, drift, frozenset(sources[name])) for name, drift in drifts.items()]


def group_of(marks: Watermarks) -> str:
    return UNNAMED if marks.drift_group is None else marks.drift_group


def _drifting(nodes: Iterable[OperatorNode]) -> Iterable[tuple[OperatorNode, Watermarks]]:
    for node in nodes:
        reading = node.spec.reading
        marks = None if reading is None else reading.watermarks
        if marks is not None and marks.max_drift_ms is not None:
            yield node, marks


def _check_member(node: OperatorNode, marks: Watermarks) -> None:
    reading = node.spec.reading
    assert reading is not None
    if not reading.source.bounded and marks.idle_timeout is None:
        raise ConfigurationError(
            f"{node.label}: with max_drift, other sources would wait for this one for good where it falls "
            'silent; say after how long it counts as idle, such as idle_timeout="1min"'
        )


def _seconds(marks: Watermarks) -> str:
    assert marks.max_drift_ms is not None
    return f"{marks.max_drift_ms / 1000:g}"


def _called(group: str) -> str:
    return f"drift group {group!r}" if group else "the drift group without a name"
