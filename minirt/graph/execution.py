"""The execution graph: chains of operators, their parallel subtasks and the channels between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minirt.graph.fingerprint import fingerprint
from minirt.graph.job_graph import OperatorNode
from minirt.graph.partitioning import Partitioning, Wiring
from minirt.protocol.ids import ChannelId, SubtaskId
from minirt.protocol.topology import EdgeFacts, OperatorFacts, Order, Topology, VertexFacts


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain of operators that run as one; records pass between them as function calls.

    An operator may feed several others: the chain then has *branches*. Each operator comes before those
    that it feeds, and a branch stands in one piece.
    """

    id: int
    operators: tuple[OperatorNode, ...]
    feeders: tuple[int, ...]
    """The place of the operator that feeds it, for each operator but the first."""
    parallelism: int
    max_parallelism: int

    @property
    def name(self) -> str:
        """Its operators as people read them: `numbers > (map > sink, sink-2)`."""
        return self._name_from(0)

    def _name_from(self, place: int) -> str:
        own, fed = self.operators[place].name, self.fed_by(place)
        if not fed:
            return own
        behind = ", ".join(map(self._name_from, fed))
        return f"{own} > ({behind})" if len(fed) > 1 else f"{own} > {behind}"

    def fed_by(self, place: int) -> list[int]:
        """The places of the operators that the one at this place feeds by calls."""
        return [at for at, feeder in enumerate(self.feeders, 1) if feeder == place]

    @property
    def margins(self) -> list[str]:
        """What stands left of each operator in a list of them: a dash where a branch begins.

        All are empty where there are no branches.
        """
        margins = [""]
        for feeder in self.feeders:
            behind = margins[feeder].replace("-", " ")
            margins.append(f"{behind}- " if len(self.fed_by(feeder)) > 1 else behind)
        return margins

    @property
    def is_source(self) -> bool:
        return self.operators[0].spec.inputs == 0

    @property
    def queue_s(self) -> float | None:
        """The least of what its operators say of the queues before them."""
        targets = (node.spec.queue_s for node in self.operators)
        return min((target for target in targets if target is not None), default=None)

    def subtasks(self) -> Iterator[SubtaskId]:
        return (SubtaskId(self.id, index) for index in range(self.parallelism))


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of the job graph, from operator `source_uid` inside `source`.

    It crosses channels, unless it is a call: one to an operator behind the first of its chain.
    """

    id: int
    source: int
    source_uid: str
    target: int
    target_input: int
    partitioning: Partitioning
    tag: str | None
    senders: int
    receivers: int
    max_parallelism: int
    """The max parallelism of the target: how many key groups there are."""
    target_place: int = 0
    """Where in the chain of `target` the operator is that gets the records."""

    @property
    def kind(self) -> str:
        """The name of its partitioning: "forward", "rebalance", "hash" and so on."""
        return self.partitioning.name

    @property
    def dealing(self) -> str:
        """A fingerprint of what decides where a record goes; "" if kind and wiring tell all."""
        identity = self.partitioning.identity(self.max_parallelism)
        return "" if identity is None else fingerprint(identity)

    @property
    def order(self) -> Order:
        """Which records that one subtask sends keep their order."""
        return self.partitioning.order(self.senders, self.receivers)

    @property
    def capturable(self) -> bool:
        """Whether a barrier may overtake its records, which are then dealt again after a restore.

        Not those of a call: they would lie between two operators of one snapshot.
        """
        if self.target_place:
            return False
        return self.partitioning.capturable(self.senders, self.receivers)

    def receivers_of(self, sender: int) -> range:
        """The subtasks of the target that this sender is connected to."""
        return self.partitioning.receivers_of(sender, self.senders, self.receivers)

    def channels_into(self, receiver: int) -> Iterator[ChannelId]:
        """The channels that one subtask of the target reads."""
        for sender in range(self.senders):
            if receiver in self.receivers_of(sender):
                yield ChannelId(self.id, sender, receiver)

    def channels(self) -> Iterator[ChannelId]:
        for sender in range(self.senders):
            for receiver in self.receivers_of(sender):
                yield ChannelId(self.id, sender, receiver)


@dataclass(frozen=True)
class ExecutionGraph:
    """Vertices in topological order; a vertex's id is its place in `vertices`, likewise for links."""

    name: str
    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    calls: tuple[Link, ...] = ()
    """Edges within vertices. They have no channels; records in flight there come from older jobs."""

    @cached_property
    def topology(self) -> Topology:
        """What the protocol knows of it. Fingerprints take their time, so it is made once."""
        return Topology(
            vertices=tuple(_vertex_facts(vertex) for vertex in self.vertices),
            links=tuple(self._edge_facts(link) for link in self.links),
            calls=tuple(self._edge_facts(call) for call in self.calls),
        )

    @cached_property
    def in_order(self) -> frozenset[str]:
        """The operators, by uid, to which records of one key may come in order.

        They do from a source, and where a key decides on the subtask. Once records were dealt out by
        something else, what goes straight on from there has no order to lose.
        """
        found = {vertex.operators[0].uid for vertex in self.vertices if vertex.is_source}
        into: dict[str, list[Link]] = {}
        for edge in (*self.links, *self.calls):
            target = self.vertices[edge.target].operators[edge.target_place]
            into.setdefault(target.uid, []).append(edge)
        for node in (node for vertex in self.vertices for node in vertex.operators):
            straight = {e.source_uid for e in into.get(node.uid, ()) if e.order is Order.STRAIGHT}
            by_key = any(e.order is Order.BY_KEY for e in into.get(node.uid, ()))
            if by_key or straight & found:
                found.add(node.uid)
        return frozenset(found)

    def _edge_facts(self, edge: Link) -> EdgeFacts:
        fan_in = Counter(channel.receiver for channel in edge.channels())
        return EdgeFacts(
            key=self.link_key(edge),
            source=edge.source,
            source_uid=edge.source_uid,
            target=edge.target,
            target_uid=self.vertices[edge.target].operators[edge.target_place].uid,
            kind=edge.kind,
            senders=edge.senders,
            receivers=edge.receivers,
            fan_in=tuple(fan_in[receiver] for receiver in range(edge.receivers)),
            in_flight=edge.partitioning.in_flight,
            order=edge.order,
            pointwise=edge.partitioning.wiring is Wiring.POINTWISE,
            dealing=edge.dealing,
            target_place=edge.target_place,
            unordered=edge.partitioning.unordered,
            capturable=edge.capturable,
        )

    def subtasks(self) -> Iterator[SubtaskId]:
        return (subtask for vertex in self.vertices for subtask in vertex.subtasks())

    def inputs_of(self, vertex: int) -> list[Link]:
        return [link for link in self.links if link.target == vertex]

    def outputs_of(self, vertex: int) -> list[Link]:
        return [link for link in self.links if link.source == vertex]

    def edges_into(self, vertex: int) -> dict[str, Link]:
        """The links and calls by which records come to operators of a vertex, by their keys."""
        edges = (edge for edge in (*self.links, *self.calls) if edge.target == vertex)
        return {self.link_key(edge): edge for edge in edges}

    def edges(self) -> dict[str, Link]:
        """All links and calls, by their keys."""
        return {self.link_key(edge): edge for edge in (*self.links, *self.calls)}

    def link_key(self, link: Link) -> str:
        """The name of a link in stored checkpoints; it survives changes elsewhere in the job."""
        target = self.vertices[link.target].operators[link.target_place].uid
        alike = [other for other in self.links if _ends(other) == _ends(link)]
        tag = "" if link.tag is None else f"[{link.tag}]"
        place = f"#{alike.index(link)}" if len(alike) > 1 else ""
        return f"{link.source_uid}{tag} > {target}:{link.target_input}{place}"

    def subtask_names(self) -> dict[SubtaskId, str]:
        return {id: self.subtask_name(id) for id in self.subtasks()}

    def subtask_name(self, subtask: SubtaskId) -> str:
        vertex = self.vertices[subtask.vertex]
        return f"{vertex.name} ({subtask.index + 1}/{vertex.parallelism})"


def _ends(link: Link) -> tuple[Any, ...]:
    target = (link.target, link.target_place, link.target_input)
    return (link.source_uid, link.tag, *target)


def _vertex_facts(vertex: Vertex) -> VertexFacts:
    return VertexFacts(
        id=vertex.id,
        name=vertex.name,
        operators=tuple(_operator_facts(node) for node in vertex.operators),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
    )


def _operator_facts(node: OperatorNode) -> OperatorFacts:
    return OperatorFacts(
        uid=node.uid,
        stateful=node.stateful,
        keyed=node.keyed,
        to_all=node.to_all,
        reads=node.spec.reads_from is not None,
        writes=node.spec.writes_to is not None,
        stem=node.stem,
        code="" if node.stem is None else fingerprint(node.spec),
    )
