"""The job while it is being written: operators in the order of the calls, and what feeds them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from minirt.api.checks import check_operator, check_side_output
from minirt.api.pickling import check_picklable
from minirt.errors import ConfigurationError
from minirt.graph.describe import default_name, kind_of
from minirt.graph.job_graph import (
    Edge,
    Forward,
    JobGraph,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    OperatorNode,
    OperatorSpec,
    Partitioning,
    ProcessSpec,
    Rebalance,
    SinkSpec,
    SourceSpec,
)
from minirt.graph.validate import check_forward, check_parallelism, validate

_UID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What every operator method takes by keyword; None is the default of the environment."""

    uid: str | None = None
    name: str | None = None
    parallelism: int | None = None
    chain: bool = True


@dataclass(frozen=True, slots=True)
class Port:
    """An output of a drafted operator, by its place, and how the next edge is to deal its records."""

    operator: int
    tag: str | None = None
    partitioning: Partitioning | None = None


@dataclass(frozen=True, slots=True)
class _Feed:
    port: Port
    partitioning: Partitioning
    target_input: int


@dataclass(frozen=True, slots=True)
class _Drafted:
    node: OperatorNode
    """Its uid is provisional unless `settled`: an explicit uid that comes later takes precedence."""
    settled: bool
    feeds: tuple[_Feed, ...]


class Draft:
    """Grows by one operator per call. What can be refused at the call is refused there.

    Operators follow what feeds them, as streams exist before their consumers: the order of the
    calls is a topological order.
    """

    def __init__(self, parallelism: int, max_parallelism: int) -> None:
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._operators: list[_Drafted] = []
        self._side_outputs: dict[Port, None] = {}

    def label(self, spec: OperatorSpec, settings: Settings) -> str:
        """How messages call an operator that is about to be added."""
        return self._node(spec, settings, None)[0].label

    def add(
        self,
        spec: OperatorSpec,
        settings: Settings,
        inputs: Sequence[Sequence[Port]] = (),
        schema: pa.Schema | None = None,
    ) -> int:
        """Take up an operator and return its place; `inputs` holds the ports of each input."""
        node, settled = self._node(spec, settings, schema)
        shown = node if settled else replace(node, uid=_free(node.uid, set(self._uids())))
        check_parallelism(shown)
        check_operator(shown)
        self._check_instance_is_new(shown)
        feeds = tuple(
            _Feed(port, self._partitioning(port, shown), target_input)
            for target_input, ports in enumerate(inputs)
            for port in ports
        )
        self._operators.append(_Drafted(node, settled, feeds))
        return len(self._operators) - 1

    def side_output(self, operator: int, tag: str) -> Port:
        """The port of a side output; once asked for, it has to be consumed."""
        check_side_output(self.node(operator), tag)
        port = Port(operator, tag)
        self._side_outputs[port] = None
        return port

    def node(self, operator: int) -> OperatorNode:
        """The operator at a place, with the uid that it has as long as nobody else claims it."""
        return replace(self._operators[operator].node, uid=self._uids()[operator])

    def graph(self, name: str) -> JobGraph:
        """The job as data, checked as a whole. Raises ConfigurationError."""
        uids = self._uids()
        operators = {
            uid: replace(drafted.node, uid=uid)
            for uid, drafted in zip(uids, self._operators, strict=True)
        }
        edges = tuple(
            Edge(uids[feed.port.operator], uid, feed.partitioning, feed.target_input, feed.port.tag)
            for uid, drafted in zip(uids, self._operators, strict=True)
            for feed in drafted.feeds
        )
        graph = JobGraph(name, operators, edges)
        validate(graph)
        self._check_side_outputs()
        _check_ends(graph)
        check_picklable(graph)
        return graph

    def _node(
        self, spec: OperatorSpec, settings: Settings, schema: pa.Schema | None
    ) -> tuple[OperatorNode, bool]:
        name = default_name(spec) if settings.name is None else settings.name
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{kind_of(spec)}: name must be a string, got {name!r}")
        if not isinstance(settings.chain, bool):
            raise ConfigurationError(f"{name}: chain is True or False, not {settings.chain!r}")
        uid = _slug(name) or kind_of(spec) if settings.uid is None else settings.uid
        parallelism = self._parallelism if settings.parallelism is None else settings.parallelism
        node = OperatorNode(
            uid, name, spec, parallelism, self._max_parallelism, settings.chain, schema
        )
        settled = settings.uid is not None or node.stateful
        if settled:
            self._check_uid(uid, name, explicit=settings.uid is not None)
        return node, settled

    def _check_uid(self, uid: object, name: str, *, explicit: bool) -> None:
        if not isinstance(uid, str) or not _UID.fullmatch(uid):
            raise ConfigurationError(
                f"{name}: a uid is made of up to 200 letters, digits, '_', '-' and '.', got {uid!r}"
            )
        taken = {other.node.uid: other.node for other in self._operators if other.settled}
        if uid not in taken:
            return
        if explicit:
            raise ConfigurationError(f"{name}: uid {uid!r} is taken by {taken[uid].label}")
        raise ConfigurationError(
            f"{name}: its state would go by the uid {uid!r}, which is taken by {taken[uid].label}; "
            "give it a uid of its own with uid=..."
        )

    def _uids(self) -> list[str]:
        """The uid of every operator: what is settled stays, the rest is numbered where it collides."""
        taken = {drafted.node.uid for drafted in self._operators if drafted.settled}
        uids = []
        for drafted in self._operators:
            uid = drafted.node.uid if drafted.settled else _free(drafted.node.uid, taken)
            taken.add(uid)
            uids.append(uid)
        return uids

    def _partitioning(self, port: Port, target: OperatorNode) -> Partitioning:
        source = self.node(port.operator)
        if port.partitioning is None:
            return Forward() if source.parallelism == target.parallelism else Rebalance()
        if isinstance(port.partitioning, Forward):
            check_forward(source, target)
        return port.partitioning

    def _check_instance_is_new(self, node: OperatorNode) -> None:
        instance = _instance(node.spec)
        for other in self._operators if instance is not None else ():
            if _instance(other.node.spec) is instance:
                raise ConfigurationError(
                    f"{node.label}: this {type(instance).__name__} object already works for "
                    f"{other.node.label}; create one per operator, or unite the streams first"
                )

    def _check_side_outputs(self) -> None:
        consumed = {
            (feed.port.operator, feed.port.tag)
            for drafted in self._operators
            for feed in drafted.feeds
        }
        for port in self._side_outputs:
            if (port.operator, port.tag) not in consumed:
                raise ConfigurationError(
                    f"{self.node(port.operator).label}: its side output {port.tag!r} goes nowhere; "
                    "end it with .sink(...), or do not ask for it"
                )


def _check_ends(graph: JobGraph) -> None:
    for node in graph.operators.values():
        match node.spec:
            case SourceSpec(source=end) | SinkSpec(sink=end):
                try:
                    end.validate()
                except ConfigurationError as error:
                    raise ConfigurationError(f"{node.label}: {error}") from error


def _instance(spec: OperatorSpec) -> object | None:
    """The object that works for one operator only: it holds, or hands over, what is under way."""
    match spec:
        case ProcessSpec(process=process):
            return process
        case KeyedProcessSpec(process=process) | KeyedCoProcessSpec(process=process):
            return process
        case SinkSpec(sink=sink):
            return sink
    return None


def _free(uid: str, taken: Set[str]) -> str:
    numbered = (f"{uid}-{number}" for number in itertools.count(2))
    return next(
        candidate for candidate in itertools.chain((uid,), numbered) if candidate not in taken
    )


def _slug(name: str) -> str:
    """`map: parseLine` as `map-parse-line`; empty if nothing of the name can be part of a uid."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")[:190]
