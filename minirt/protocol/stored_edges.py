"""What checkpoints remember of a job's edges and of uids that nobody gave, to tell them after an edit.

A uid that is made from a name is numbered where names collide: `map`, `map-2`. An edit of the job may
move such uids from operator to operator. State never goes by them, but in-flight records do: an edge is
named by the uids of its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirt.protocol.topology import EdgeFacts, InFlight, Order, Topology, VertexFacts, differ

if TYPE_CHECKING:
    from minirt.protocol.manifest import ChannelData, Manifest


@dataclass(frozen=True, slots=True)
class EdgeEntry:
    """An edge as it was. `dealing` tells by which key and function, if any, it dealt its records.

    `in_flight` and `order` are names of those enums, as what an edge was called says nothing of
    partitionings of other packages; "" in checkpoints of versions that had their own only.
    """

    key: str
    senders: int
    dealing: str
    in_flight: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class UnnamedEntry:
    """An operator whose uid was made from `stem`, its name, with fingerprints to know it by.

    `code` is what it does, `edges` are the keys of those that lead to or from it.
    """

    uid: str
    stem: str
    code: str
    edges: tuple[str, ...]


def edge_entries(topology: Topology, vertex: VertexFacts) -> tuple[EdgeEntry, ...]:
    """The edges into a vertex as manifests remember them."""
    return tuple(
        EdgeEntry(edge.key, edge.senders, edge.dealing, edge.in_flight.name, edge.order.name)
        for edge in topology.edges_into(vertex.id)
    )


def unnamed_entries(topology: Topology, vertex: VertexFacts) -> tuple[UnnamedEntry, ...]:
    """The operators of a vertex whose uids nobody gave, as manifests remember them."""
    edges = (*topology.links, *topology.calls)
    return tuple(
        UnnamedEntry(
            uid=operator.uid,
            stem=operator.stem,
            code=operator.code,
            edges=tuple(
                sorted(e.key for e in edges if operator.uid in (e.source_uid, e.target_uid))
            ),
        )
        for operator in vertex.operators
        if operator.stem is not None
    )


_COPIES = ("broadcast",)
_ORDERED = ("hash", "custom", "forward")
"""Partitionings of versions that stored their names alone; those of "rescale" depend on the senders."""


@dataclass(frozen=True, slots=True)
class StoredEdge:
    """What is known of an edge as it was at a checkpoint; older checkpoints say less of it."""

    senders: int | None = None
    dealing: str = ""
    in_flight: str = ""
    order: str = ""

    def held_copies(self, data: ChannelData) -> bool:
        """Whether each of its subtasks got a copy of every record."""
        if self.in_flight:
            return self.in_flight == InFlight.ONE_COPY.name
        return data.partitioning in _COPIES

    def keeps_order(self, data: ChannelData) -> bool:
        """Whether records of one key that were sent over it come in order, as far as is known."""
        if self.order:
            return self.order != Order.NONE.name
        if data.partitioning == "rescale":
            return self.senders is None or self.senders >= data.receivers
        return data.partitioning in _ORDERED

    def reached_as_now(self, edge: EdgeFacts) -> bool:
        """Whether each sender reached the receivers that it reaches now, if there are as many."""
        return not edge.pointwise or self.senders == edge.senders


def stored_edges(manifest: Manifest) -> dict[str, StoredEdge]:
    """The edges of the job that took a checkpoint, by their keys."""
    edges = {
        link.link: StoredEdge(link.senders) for one in manifest.watermarks for link in one.inputs
    }
    for vertex in manifest.vertices:
        edges |= {
            edge.key: StoredEdge(edge.senders, edge.dealing, edge.in_flight, edge.order)
            for edge in vertex.edges
        }
    return edges


def doubtful_uids(manifest: Manifest, topology: Topology) -> set[str]:
    """The uids of this job that nobody gave and that may mean other operators than at the checkpoint.

    They mean the same if all uids that were made from one name are there again, and if of each either the
    code or the place among others is what it was: an operator was edited, or something near it was, but
    not both at once. Code that has moved from one uid to another shows that they do not. Uids that the
    user gave mean what the user says.
    """
    if not any(vertex.edges for vertex in manifest.vertices):
        return set()  # An older version has stored nothing to go by.
    old = [entry for vertex in manifest.vertices for entry in vertex.unnamed]
    new = [entry for vertex in topology.vertices for entry in unnamed_entries(topology, vertex)]
    return {
        entry.uid
        for stem in {entry.stem for entry in new}
        for entry in _doubtful(_of_stem(old, stem), _of_stem(new, stem))
    }


def _of_stem(entries: Sequence[UnnamedEntry], stem: str) -> list[UnnamedEntry]:
    return sorted((e for e in entries if e.stem == stem), key=lambda entry: entry.uid)


def _doubtful(old: Sequence[UnnamedEntry], new: Sequence[UnnamedEntry]) -> Sequence[UnnamedEntry]:
    if [entry.uid for entry in old] != [entry.uid for entry in new]:
        return new
    changed = [(a, b) for a, b in zip(old, new, strict=True) if differ(a.code, b.code)]
    moved = {a.code for a, _ in changed} & {b.code for _, b in changed}
    if moved or any(a.edges != b.edges for a, b in changed):
        return new
    return ()
