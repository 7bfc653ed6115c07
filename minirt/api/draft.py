"""The job while a user writes it: operators in the order of the calls, and the edges between them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import pyarrow as pa

from minirt.api.changed_variables import warn_of_changed_variables
from minirt.api.pickling import check_picklable
from minirt.config import Options
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import Edge, JobGraph, OperatorNode
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec, Site
from minirt.graph.partitioning import Partitioning
from minirt.graph.validate import check_parallelism, check_partitioning, validate
from minirt.partitionings import default_partitioning

_UID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class Settings:
    """The keywords of every operator method; None stands for the default of the environment."""

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
class Input:
    """An edge into one input of an operator: its records, their key and their columns, if known."""

    label: str
    ports: tuple[Port, ...]
    key: KeySelector | None = None
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class _Feed:
    port: Port
    partitioning: Partitioning
    target_input: int


@dataclass(frozen=True, slots=True)
class _Drafted:
    node: OperatorNode
    """The uid is provisional unless `settled`: an explicit uid that comes later takes precedence."""
    settled: bool
    feeds: tuple[_Feed, ...]


class Draft:
    """Grows by one operator per call, and refuses at the call whatever it can refuse there.

    Operators follow what feeds them, as streams exist before their consumers: the order of the
    calls is a topological order.
    """

    def __init__(self, parallelism: int, max_parallelism: int, options: Options) -> None:
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self.options = options
        """Those that runs of the job are given by default."""
        self._operators: list[_Drafted] = []
        self._side_outputs: dict[Port, None] = {}
        self._tried: set[int] = set()
        """Places of operators whose records somebody has looked at."""
        self._warned = False

    def add(
        self,
        spec: OperatorSpec,
        settings: Settings,
        inputs: Sequence[Input] = (),
    ) -> int:
        """Take up an operator and return its place."""
        spec.check_facts()
        keys = tuple(input.key for input in inputs)
        node, settled = self._node(spec, settings, keys)
        shown = node if settled else replace(node, uid=_free(node.uid, set(self._uids())))
        site = Site(
            shown.label,
            tuple(input.label for input in inputs),
            keys,
            tuple(input.schema for input in inputs),
        )
        check_parallelism(shown)
        _check_inputs(shown)
        spec.check(site)
        self._check_owned_is_new(shown)
        node = replace(node, schema=spec.output_schema(site))
        feeds = tuple(
            _Feed(port, self._partitioning(port, shown), target_input)
            for target_input, input in enumerate(inputs)
            for port in input.ports
        )
        self._operators.append(_Drafted(node, settled, feeds))
        return len(self._operators) - 1

    def side_output(self, operator: int, tag: str) -> Port:
        """The port of a side output. An operator must consume a side output that was asked for."""
        node = self.node(operator)
        if not isinstance(tag, str) or not tag:
            raise ConfigurationError(
                f"{node.label}: a side output is named by a string, not {tag!r}"
            )
        node.spec.side_output(tag, node.label)
        port = Port(operator, tag)
        self._side_outputs[port] = None
        return port

    def node(self, operator: int) -> OperatorNode:
        """The operator at a place, with the uid that it has as long as nobody else claims it."""
        return replace(self._operators[operator].node, uid=self._uids()[operator])

    def try_out(self, ports: Sequence[Port]) -> tuple[Draft, tuple[Port, ...]]:
        """A draft of only what leads to these ports, and the ports in it, dealt as the planner likes.

        What leads nowhere else is no part of the job from now on, instead of being refused.
        """
        wanted, found = [port.operator for port in ports], set[int]()
        while wanted:
            place = wanted.pop()
            if place not in found:
                found.add(place)
                wanted += [feed.port.operator for feed in self._operators[place].feeds]
        self._tried |= found
        for port in ports:
            self._side_outputs.pop(replace(port, partitioning=None), None)
        part, places = self._only(found)
        return part, tuple(replace(_moved(port, places), partitioning=None) for port in ports)

    def _only(self, kept: Set[int]) -> tuple[Draft, Mapping[int, int]]:
        """A draft of these operators and of what feeds them, and where each of them is in it."""
        places = {place: index for index, place in enumerate(sorted(kept))}
        part = Draft(self._parallelism, self._max_parallelism, self.options)
        for place in places:
            drafted = self._operators[place]
            feeds = tuple(replace(feed, port=_moved(feed.port, places)) for feed in drafted.feeds)
            part._operators.append(replace(drafted, feeds=feeds))
        return part, places

    def loose_ends(self) -> list[Port]:
        """The main outputs that nothing consumes."""
        consumed = {feed.port for drafted in self._operators for feed in drafted.feeds}
        ends = {replace(port, partitioning=None) for port in consumed}
        places = range(len(self._operators))
        emitting = (Port(at) for at in places if self._operators[at].node.spec.emits)
        return [port for port in emitting if port not in ends]

    def _part_of_the_job(self) -> set[int]:
        """All operators but those that were tried out, and lead nowhere else."""
        kept: set[int] = set()
        fed: set[int] = set()
        for place in reversed(range(len(self._operators))):
            drafted = self._operators[place]
            if place in fed or place not in self._tried or not drafted.node.spec.emits:
                kept.add(place)
                fed |= {feed.port.operator for feed in drafted.feeds}
        return kept

    def __len__(self) -> int:
        return len(self._operators)

    def graph(self, name: str) -> JobGraph:
        """The job as data, checked as a whole. Raises ConfigurationError."""
        kept = self._part_of_the_job()
        if len(kept) < len(self._operators):
            part, places = self._only(kept)
            sides = (port for port in self._side_outputs if port.operator in places)
            part._side_outputs = {_moved(port, places): None for port in sides}
            return part.graph(name)
        uids = self._uids()
        operators = {
            uid: replace(drafted.node, uid=uid)
            for uid, drafted in zip(uids, self._operators, strict=True)
        }
        edges = tuple(
            Edge(
                *(uids[feed.port.operator], uid, feed.partitioning, feed.target_input),
                *(feed.port.tag, feed.port.partitioning is None),
            )
            for uid, drafted in zip(uids, self._operators, strict=True)
            for feed in drafted.feeds
        )
        graph = JobGraph(name, operators, edges)
        validate(graph)
        self._check_side_outputs()
        for node in operators.values():
            node.spec.validate(node.label)
        check_picklable(graph)
        if not self._warned:
            warn_of_changed_variables(graph)
            self._warned = True
        return graph

    def _node(
        self, spec: OperatorSpec, settings: Settings, keys: tuple[KeySelector | None, ...]
    ) -> tuple[OperatorNode, bool]:
        name = spec.default_name if settings.name is None else settings.name
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{spec.kind}: name must be a string, got {name!r}")
        if not isinstance(settings.chain, bool):
            raise ConfigurationError(f"{name}: chain is True or False, not {settings.chain!r}")
        uid = _slug(name) or spec.kind if settings.uid is None else settings.uid
        parallelism = self._parallelism if settings.parallelism is None else settings.parallelism
        node = OperatorNode(
            *(uid, name, spec, parallelism, self._max_parallelism, settings.chain),
            keys=keys,
            own_parallelism=settings.parallelism is not None,
        )
        settled = settings.uid is not None or node.stateful
        if not settled:
            node = replace(node, stem=uid)
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
        """The uid of every operator. Settled uids stay; others get a number where they collide."""
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
            return default_partitioning(source.parallelism, target.parallelism)
        check_partitioning(port.partitioning, source, target)
        return port.partitioning

    def _check_owned_is_new(self, node: OperatorNode) -> None:
        owned = node.spec.owned
        for other in self._operators if owned is not None else ():
            if other.node.spec.owned is owned:
                raise ConfigurationError(
                    f"{node.label}: this {type(owned).__name__} object already works for "
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


def _check_inputs(node: OperatorNode) -> None:
    if len(node.keys) != node.spec.inputs:
        raise ConfigurationError(
            f"{node.label}: a {node.spec.kind} has {node.spec.inputs} inputs, but {len(node.keys)} lead "
            "into it; connect brings two streams together"
        )
    without = {number for number, key in enumerate(node.keys) if key is None}
    if node.keyed and without - node.spec.without_key:
        raise ConfigurationError(
            f"{node.label}: a {node.spec.kind} keeps state per key: call key_by before it"
        )


def _moved(port: Port, places: Mapping[int, int]) -> Port:
    return replace(port, operator=places[port.operator])


def _free(uid: str, taken: Set[str]) -> str:
    numbered = (f"{uid}-{number}" for number in itertools.count(2))
    return next(
        candidate for candidate in itertools.chain((uid,), numbered) if candidate not in taken
    )


def _slug(name: str) -> str:
    """`map: parseLine` as `map-parse-line`; empty if nothing of the name can be part of a uid."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")[:190]
