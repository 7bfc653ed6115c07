"""The job graph: operators and edges exactly as the user wrote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec, StateDealing

# How records are dealt to the subtasks of the next operator.


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i to subtask i. `ordered`: records of one key keep their order at every restore."""

    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Round robin to all subtasks."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """Round robin to the subtasks of one's own block; `ordered` as for Forward, where that is one."""

    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every record to every subtask."""


@dataclass(frozen=True, slots=True)
class Hash:
    """By key group of the key."""

    key: KeySelector


@dataclass(frozen=True, slots=True)
class Custom:
    """`function(key, parallelism)` gives the index of the subtask.

    A pure one gives the same index for the same arguments, always and everywhere.
    """

    function: Callable[[Any, int], int]
    key: KeySelector
    pure: bool = True


Partitioning = Forward | Rebalance | Rescale | Broadcast | Hash | Custom


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator. `uid` owns its state; `name` is for people; `chain` lets it join its input's chain."""

    uid: str
    name: str
    spec: OperatorSpec
    parallelism: int
    max_parallelism: int
    chain: bool = True
    schema: pa.Schema | None = None
    """The columns of its output, where known."""
    keys: tuple[KeySelector | None, ...] = ()
    """How the records of each input are keyed; None for one that is not."""
    stem: str | None = None
    """The name that its uid was numbered from; None if the user gave the uid, or state is stored under it.
    """

    @property
    def keyed(self) -> bool:
        """Whether its state is dealt by key group."""
        return self.spec.state is StateDealing.BY_KEY_GROUP

    @property
    def stateful(self) -> bool:
        """Whether a checkpoint holds something of it that a restore must not lose."""
        return self.spec.state is not StateDealing.NONE

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.name} (uid {self.uid})" if self.name != self.uid else self.name


@dataclass(frozen=True, slots=True)
class Edge:
    """Records from one operator to input `target_input` of another; `tag` names a side output."""

    source: str
    target: str
    partitioning: Partitioning
    target_input: int = 0
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Operators in topological order, by uid, and the edges between them."""

    name: str
    operators: dict[str, OperatorNode]
    edges: tuple[Edge, ...]
