"""The job graph: operators and edges exactly as the user wrote them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate
from minirt.functions import KeyedCoProcess, KeyedProcess, Process, Watermarks
from minirt.io.base import Sink, Source
from minirt.windows import Tumbling

ERRORS_TAG = "errors"
"""The side output that carries what a source could not parse."""

LATE_TAG = "late"
"""The side output that carries the records that came too late for their window."""

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""What the bounds of a window are called in its results; the end is the start of the next window."""

WINDOW_TIME = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class KeySelector:
    """How the key of a record is found: by columns (one value, or a tuple of several) or a function."""

    columns: tuple[str, ...] = ()
    function: Callable[[Any], Any] | None = None

    def on_rows(self) -> Callable[[Any], Any]:
        return self.function if self.function is not None else operator.itemgetter(*self.columns)


# What an operator does. The runtime has one implementation per class.


@dataclass(frozen=True, slots=True)
class SourceSpec:
    source: Source
    watermarks: Watermarks | None = None
    speed: float | None = None
    """Replay at this multiple of event time; None is as fast as possible."""


@dataclass(frozen=True, slots=True)
class MapSpec:
    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FlatMapSpec:
    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FilterSpec:
    predicate: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FilterColumnsSpec:
    """Keeps the records for which the column expression is true."""

    condition: pc.Expression


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    """Emits the columns `kept`, all with None, and those computed, which replace ones of their names."""

    kept: tuple[str, ...] | None
    computed: tuple[tuple[str, pc.Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class MapBatchesSpec:
    """`function` maps a list to a list, or with format "columns" a RecordBatch to a RecordBatch."""

    function: Callable[[Any], Any]
    format: Literal["rows", "columns"] = "rows"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    process: Process


@dataclass(frozen=True, slots=True)
class CoMapSpec:
    """One function per input; `flat` says that they return iterables to be flattened."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]
    flat: bool = False


@dataclass(frozen=True, slots=True)
class ReduceSpec:
    """Emits the combined value of the key after every record."""

    key: KeySelector
    function: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Computes aggregates of each key, whose parts are columns.

    `emit` says when results are given out: "updates" after every batch, of the keys that it has
    changed; a number of seconds after that time; "end" once all input has ended.
    """

    key: KeySelector
    aggregates: tuple[Aggregate, ...]
    emit: Literal["updates", "end"] | float


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Computes aggregates of each key, whose parts are columns, and window of event time."""

    key: KeySelector
    aggregates: tuple[Aggregate, ...]
    window: Tumbling


@dataclass(frozen=True, slots=True)
class KeyedProcessSpec:
    key: KeySelector
    process: KeyedProcess


@dataclass(frozen=True, slots=True)
class KeyedCoProcessSpec:
    left_key: KeySelector
    right_key: KeySelector
    process: KeyedCoProcess


@dataclass(frozen=True, slots=True)
class SinkSpec:
    sink: Sink


OperatorSpec = (
    SourceSpec
    | MapSpec
    | FlatMapSpec
    | FilterSpec
    | FilterColumnsSpec
    | ProjectSpec
    | MapBatchesSpec
    | ProcessSpec
    | CoMapSpec
    | ReduceSpec
    | AggregateSpec
    | WindowSpec
    | KeyedProcessSpec
    | KeyedCoProcessSpec
    | SinkSpec
)


# How records are dealt to the subtasks of the next operator.


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i to subtask i."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Round robin to all subtasks."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """Round robin to the subtasks of one's own block."""


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

    @property
    def keyed(self) -> bool:
        """Whether its state is dealt by key group."""
        kinds = ReduceSpec | AggregateSpec | WindowSpec | KeyedProcessSpec | KeyedCoProcessSpec
        return isinstance(self.spec, kinds)

    @property
    def stateful(self) -> bool:
        """Whether a checkpoint holds something of it that a restore must not lose."""
        return self.keyed or isinstance(self.spec, SourceSpec | SinkSpec)

    @property
    def label(self) -> str:
        """How messages call it."""
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
