"""The execution graph: chains of operators, their parallel subtasks and the channels between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from minirt.graph.job_graph import (
    Custom,
    Forward,
    OperatorNode,
    Partitioning,
    Rescale,
    SourceSpec,
)


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """A parallel instance of a vertex."""

    vertex: int
    index: int


@dataclass(frozen=True, slots=True, order=True)
class ChannelId:
    """One directed connection: subtask `sender` of the link's source to `receiver` of its target."""

    link: int
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain of operators that run as one; records pass between them as function calls."""

    id: int
    operators: tuple[OperatorNode, ...]
    parallelism: int
    max_parallelism: int

    @property
    def name(self) -> str:
        return " > ".join(node.name for node in self.operators)

    @property
    def is_source(self) -> bool:
        return isinstance(self.operators[0].spec, SourceSpec)

    def subtasks(self) -> Iterator[SubtaskId]:
        return (SubtaskId(self.id, index) for index in range(self.parallelism))


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of the job graph that crosses channels, from operator `source_uid` inside `source`."""

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
    """That of the target: how many key groups there are."""

    @property
    def kind(self) -> str:
        """What its partitioning is called: "forward", "rebalance", "hash" and so on."""
        return type(self.partitioning).__name__.lower()

    @property
    def capturable(self) -> bool:
        """Whether a barrier may overtake its records, which are then dealt again after a restore.

        An impure partitioner would deal them differently at each receiver: some twice, some not at all.
        """
        return not isinstance(self.partitioning, Custom) or self.partitioning.pure

    def receivers_of(self, sender: int) -> range:
        """The subtasks of the target that this sender is connected to."""
        match self.partitioning:
            case Forward():
                return range(sender, sender + 1)
            case Rescale() if self.senders < self.receivers:
                return range(
                    sender * self.receivers // self.senders,
                    (sender + 1) * self.receivers // self.senders,
                )
            case Rescale():
                target = sender * self.receivers // self.senders
                return range(target, target + 1)
        return range(self.receivers)

    def channels(self) -> Iterator[ChannelId]:
        for sender in range(self.senders):
            for receiver in self.receivers_of(sender):
                yield ChannelId(self.id, sender, receiver)


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """Vertices in topological order; a vertex's id is its place in `vertices`, likewise for links."""

    name: str
    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]

    def subtasks(self) -> Iterator[SubtaskId]:
        return (subtask for vertex in self.vertices for subtask in vertex.subtasks())

    def inputs_of(self, vertex: int) -> list[Link]:
        return [link for link in self.links if link.target == vertex]

    def outputs_of(self, vertex: int) -> list[Link]:
        return [link for link in self.links if link.source == vertex]

    def link_key(self, link: Link) -> str:
        """What names a link in stored checkpoints; it survives changes elsewhere in the job."""
        target = self.vertices[link.target].operators[0].uid
        alike = [
            other
            for other in self.links
            if (other.source_uid, other.tag, other.target, other.target_input)
            == (link.source_uid, link.tag, link.target, link.target_input)
        ]
        tag = "" if link.tag is None else f"[{link.tag}]"
        place = f"#{alike.index(link)}" if len(alike) > 1 else ""
        return f"{link.source_uid}{tag} > {target}:{link.target_input}{place}"

    def chained_keys(self) -> set[str]:
        """What the links would be called that are function calls within a vertex."""
        return {
            f"{source.uid} > {target.uid}:0"
            for vertex in self.vertices
            for source, target in pairwise(vertex.operators)
        }

    def subtask_name(self, subtask: SubtaskId) -> str:
        vertex = self.vertices[subtask.vertex]
        return f"{vertex.name} ({subtask.index + 1}/{vertex.parallelism})"
