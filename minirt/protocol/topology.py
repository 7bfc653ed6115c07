"""A job as the protocol knows it: its shape, with nothing of what users handed over.

The execution graph makes it once. Functions, keys and specs stay there: here are their fingerprints, as
text, which tell whether a job that is restored still does what it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from minirt.protocol.ids import SubtaskId


class InFlight(Enum):
    """How in-flight records find receivers that are not the old ones; the values are for people."""

    DEALT_AGAIN = "each is dealt again"
    ONE_COPY = "each subtask gets what one old subtask had still to see"
    WHOLE_CHANNELS = "dealt out in whole channels, any subtask may have them"
    UNCAPTURED = "none are captured"
    """It would deal a record elsewhere the second time. What it gets from an edge that it was before an
    edit comes in whole channels."""


class Order(Enum):
    """Which records that one subtask sends keep their order; the values are for people."""

    BY_KEY = "those of a key, as all of them go to one subtask, also when dealt again"
    STRAIGHT = "all, as the subtask has one receiver; nothing tells their keys"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """An operator, by the uid that owns its state."""

    uid: str
    stateful: bool = False
    """Whether a checkpoint holds something of it that a restore must not lose."""
    keyed: bool = False
    """Whether its state is dealt by key group."""
    to_all: bool = False
    """Whether each subtask reads the state of all old ones, also at the old parallelism."""
    reads: bool = False
    """Whether it is a source, which plans splits."""
    writes: bool = False
    """Whether it is a sink, which commits handles."""
    stem: str | None = None
    """What its uid was made from by numbering; None if the user gave it, or its state goes by it."""
    code: str = ""
    """The fingerprint of what it does, where its uid was made from a stem."""


@dataclass(frozen=True, slots=True)
class VertexFacts:
    """A chain of operators that run as one."""

    id: int
    name: str
    operators: tuple[OperatorFacts, ...]
    parallelism: int
    max_parallelism: int

    def subtasks(self) -> Iterator[SubtaskId]:
        return (SubtaskId(self.id, index) for index in range(self.parallelism))


@dataclass(frozen=True, slots=True)
class EdgeFacts:
    """A way of records from one operator to another: a link, which has channels, or a call, which has none.

    `key` names it in stored checkpoints; it survives changes elsewhere in the job.
    """

    key: str
    source: int
    source_uid: str
    target: int
    target_uid: str
    kind: str
    """What its partitioning is called: "forward", "rebalance", "hash" and so on."""
    senders: int
    receivers: int
    fan_in: tuple[int, ...]
    """How many channels it has to each receiver."""
    in_flight: InFlight = field(kw_only=True)
    order: Order = field(kw_only=True)
    pointwise: bool = field(kw_only=True)
    """Whether a sender reaches some receivers only, which depend on how many senders there are."""
    dealing: str = ""
    """The fingerprint of what decides where a record goes; "" if that is told by the rest."""
    target_place: int = 0
    """Where in the chain of `target` the operator is that gets the records."""
    unordered: str = ""
    """How a user writes down that its order does not matter; "" if that cannot be said."""
    capturable: bool = True
    """Whether barriers overtake its records, so that checkpoints with barriers may hold some."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Vertices in topological order; a vertex's id is its place in `vertices`."""

    vertices: tuple[VertexFacts, ...]
    links: tuple[EdgeFacts, ...] = ()
    calls: tuple[EdgeFacts, ...] = ()

    def subtasks(self) -> frozenset[SubtaskId]:
        return frozenset(id for vertex in self.vertices for id in vertex.subtasks())

    def edges(self) -> dict[str, EdgeFacts]:
        """All links and calls, by their keys."""
        return {edge.key: edge for edge in (*self.links, *self.calls)}

    def edges_into(self, vertex: int) -> list[EdgeFacts]:
        """The links and calls by which records come to operators of a vertex."""
        return [edge for edge in (*self.links, *self.calls) if edge.target == vertex]

    def links_into(self, vertex: int) -> list[EdgeFacts]:
        return [link for link in self.links if link.target == vertex]


def differ(one: str, other: str) -> bool:
    """Whether two fingerprints show different values; those of two versions of Python show nothing."""
    return one != other and one.partition(":")[0] == other.partition(":")[0]
