"""The job graph: operators and edges exactly as the user wrote them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec, StateDealing
from minirt.graph.partitioning import Partitioning


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
    own_parallelism: bool = False
    """Whether the operator states its parallelism, so that it is the same whatever that of the job is."""

    @property
    def keyed(self) -> bool:
        """Whether its state is dealt by key group."""
        return self.spec.state is StateDealing.BY_KEY_GROUP

    @property
    def to_all(self) -> bool:
        """Whether each subtask sees the state of all, also where nothing was rescaled."""
        return self.spec.state is StateDealing.TO_ALL

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
    defaulted: bool = field(default=False, compare=False)
    """Whether nobody chose the partitioning: at another parallelism it may be another one."""


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Operators in topological order, by uid, and the edges between them."""

    name: str
    operators: dict[str, OperatorNode]
    edges: tuple[Edge, ...]
