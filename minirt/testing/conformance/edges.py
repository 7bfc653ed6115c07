"""How records are dealt to the stages of random jobs: a class and a line here for each way.

`registered_edge` adds one for a partitioning of another package. As the draw depends on what is registered,
so do the jobs of seeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import minirt as rt

Key = str | Callable[[Any], Any]
"""A column of whole numbers from 0, or a function that finds such a number in a record."""


class EdgeKind(ABC):
    """One way to deal records. Has no state."""

    name: ClassVar[str]
    """What plans call it."""
    by_key: ClassVar[bool] = False
    """Whether it deals by the key that it is given, and records of a key keep their order."""
    copies: ClassVar[bool] = False
    """Whether each subtask gets every record."""
    equal: ClassVar[bool] = False
    """Whether it is itself only at equal parallelism, so that this is drawn more often."""

    @abstractmethod
    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        """The stream, dealt so."""

    def straight(self, senders: int, receivers: int) -> bool:
        """Whether each sender has one receiver, so that all of its records keep their order."""
        return False


class Unsaid(EdgeKind):
    """Nothing is said: straight on, or in turn where parallelism changes. Columns go by their key."""

    name: ClassVar = "plain"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.key_by(key) if isinstance(key, str) else stream

    def straight(self, senders: int, receivers: int) -> bool:
        return senders == receivers


class RebalanceEdge(EdgeKind):
    name: ClassVar = "rebalance"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.rebalance()


class RescaleEdge(EdgeKind):
    name: ClassVar = "rescale"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.rescale()

    def straight(self, senders: int, receivers: int) -> bool:
        return senders >= receivers


class BroadcastEdge(EdgeKind):
    name: ClassVar = "broadcast"
    copies: ClassVar = True

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.broadcast()


class ForwardEdge(EdgeKind):
    name: ClassVar = "forward"
    equal: ClassVar = True

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.forward() if senders == receivers else stream

    def straight(self, senders: int, receivers: int) -> bool:
        return senders == receivers


class CustomEdge(EdgeKind):
    name: ClassVar = "custom"
    by_key: ClassVar = True

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.partition_custom(choose, key)


class ImpureEdge(EdgeKind):
    name: ClassVar = "impure"

    def deal(self, stream: rt.Stream, key: Key, senders: int, receivers: int) -> rt.Stream:
        return stream.partition_custom(Turns(), key, pure=False)


def choose(key: int, parallelism: int) -> int:
    return (key * 5 + 1) % parallelism


class Turns:
    """An impure partitioner: it deals in turn, and each copy of it begins elsewhere."""

    copies = 0
    """How many copies were made since a job was last written, so that a seed does the same again."""

    def __init__(self) -> None:
        Turns.copies = self._turn = 0

    def __setstate__(self, state: object) -> None:
        Turns.copies += 1
        self._turn = Turns.copies

    def __call__(self, key: int, parallelism: int) -> int:
        self._turn += 1
        return self._turn % parallelism


EDGES: dict[str, EdgeKind] = {
    kind.name: kind
    for kind in (
        Unsaid(),
        RebalanceEdge(),
        RescaleEdge(),
        BroadcastEdge(),
        ForwardEdge(),
        CustomEdge(),
        ImpureEdge(),
    )
}


@contextmanager
def registered_edge(kind: EdgeKind) -> Iterator[EdgeKind]:
    """Have a way of dealing drawn into random jobs of this process, for as long as the block lasts."""
    if kind.name in EDGES:
        raise ValueError(f"there is a kind of edge called {kind.name!r} already")
    EDGES[kind.name] = kind
    try:
        yield kind
    finally:
        del EDGES[kind.name]
