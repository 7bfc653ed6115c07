"""A stream: what one or several operators emit, and the operators that may follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, cast, overload

import pyarrow as pa
import pyarrow.compute as pc

from minirt.api.dealing import check_not_keyed, check_own, custom, dealt_ports
from minirt.api.draft import Draft, Input, Port, Settings
from minirt.api.joinable import Joinable
from minirt.api.keys import KeySpec, hash_key
from minirt.api.keywords import OperatorOptions, operator_settings
from minirt.api.trying import Trying
from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess, Process, Retry
from minirt.generics import K, T_co, U
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.graph.partitioning import Partitioning
from minirt.io.base import Sink
from minirt.notebook import table
from minirt.operators.common.checks import check_flag, check_instance
from minirt.operators.filter import FilterColumnsSpec, FilterSpec
from minirt.operators.flat_map import FlatMapSpec
from minirt.operators.map import MapSpec
from minirt.operators.map_async import MapAsyncSpec, OnTimeout
from minirt.operators.map_batches import MapBatchesSpec
from minirt.operators.process import ProcessSpec
from minirt.operators.project import SelectSpec, WithColumnSpec
from minirt.operators.sink import SinkSpec
from minirt.partitionings import (
    Broadcast,
    Forward,
    Hash,
    Rebalance,
    Rescale,
)
from minirt.units import Duration, seconds
from minirt.watermarks import TimestampSpec
from minirt.windows import Window

if TYPE_CHECKING:
    from minirt.api.connected import ConnectedStreams
    from minirt.api.keyed_stream import KeyedStream
    from minirt.api.windowed_stream import WindowedStream


Row = dict[str, Any]
"""What a function of single records gets of a batch of columns."""


class Stream(Joinable, Trying[T_co], Generic[T_co]):
    """An immutable view: calling two methods on one stream gives every record to both.

    `T_co` is the type of the records. All methods that add an operator take `OperatorOptions`: `uid`,
    `name`, `parallelism` and `chain`. They raise ConfigurationError for what cannot work.
    """

    __slots__ = ("_draft", "_ports", "_schema")

    def __init__(self, draft: Draft, ports: tuple[Port, ...], schema: pa.Schema | None) -> None:
        self._draft = draft
        self._ports = ports
        self._schema = schema

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._label}>"

    def _repr_html_(self) -> str:
        columns = () if self._schema is None else ((one.name, one.type) for one in self._schema)
        title = f"{repr(self)[1:-1]}; .preview() shows its records"
        return table(title, ("column", "type") if columns else (), columns)

    @property
    def uid(self) -> str:
        """The uid of the operator behind this stream; a union has none.

        A uid made from a name may still change when a later operator claims it explicitly.
        """
        return self._draft.node(self._only_operator("uid")).uid

    def map(self, function: Callable[[T_co], U], **options: Unpack[OperatorOptions]) -> Stream[U]:
        """One record for each."""
        return self._then(MapSpec(function), options)

    def flat_map(
        self, function: Callable[[T_co], Iterable[U]], **options: Unpack[OperatorOptions]
    ) -> Stream[U]:
        """Any number of records for each: those of the iterable that the function returns."""
        return self._then(FlatMapSpec(function), options)

    def filter(
        self,
        predicate: Callable[[T_co], object] | pc.Expression,
        **options: Unpack[OperatorOptions],
    ) -> Stream[T_co]:
        """The records for which the predicate is true: a function of the record, or an expression.

        An expression of columns, such as `pc.field("delay") > 15`, is evaluated on whole batches.
        """
        if isinstance(predicate, pc.Expression):
            return self._then(FilterColumnsSpec(predicate), options)
        return self._then(FilterSpec(predicate), options)

    def select(
        self,
        /,
        *columns: str,
        uid: str | pc.Expression | None = None,
        name: str | pc.Expression | None = None,
        parallelism: int | pc.Expression | None = None,
        chain: bool | pc.Expression = True,
        **computed: pc.Expression,
    ) -> Stream[Row]:
        """The columns named, then the computed ones: `select("a", total=pc.field("x") * 2)`.

        An expression always is a column: `name=pc.field("x")` computes one, `name="total"` names the
        operator. Columns with the name of an option come behind the others.
        """
        given: dict[str, Any] = {
            "uid": uid,
            "name": name,
            "parallelism": parallelism,
            "chain": chain,
        }
        computed |= {key: one for key, one in given.items() if isinstance(one, pc.Expression)}
        options = {key: one for key, one in given.items() if key not in computed}
        return self._then(
            SelectSpec(columns, tuple(computed.items())), cast("OperatorOptions", options)
        )

    def with_column(
        self,
        column: str,
        value: pc.Expression,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """All columns and one that is computed; it replaces a column of its name."""
        return self._then(WithColumnSpec(None, ((column, value),)), options)

    @overload
    def map_batches(
        self,
        function: Callable[[list[T_co]], Iterable[U]],
        format: Literal["rows"] = "rows",
        *,
        size: int | None = None,
        wait: Duration = 0,
        timestamp: TimestampSpec | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]: ...

    @overload
    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        format: Literal["columns"],
        *,
        size: int | None = None,
        wait: Duration = 0,
        timestamp: TimestampSpec | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]: ...

    def map_batches(
        self,
        function: Callable[[Any], Any],
        format: Literal["rows", "columns"] = "rows",
        *,
        size: int | None = None,
        wait: Duration = 0,
        timestamp: TimestampSpec | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Any]:
        """A batch for each: list to list, or with format "columns" RecordBatch to RecordBatch.

        The runtime decides how many records a batch has, unless you ask for a `size`: it then gathers so
        many, but gives out fewer once the first of them has waited for `wait`, and before a barrier
        that does not overtake or the end of a channel. Such an operator begins a chain of its own.

        `timestamp`, a column of the results or a function of each, tells their event time. Without it, a
        result keeps the event time of the record it was: by the column that holds it, if that is left as it
        is, or as the same object. Else there must be one result for each record, in their order. The job
        fails where nothing tells which event time results have.
        """
        spec = MapBatchesSpec(function, format, size, seconds(wait, "wait"), timestamp)
        return self._then(spec, options)

    def map_async(
        self,
        function: Callable[[T_co], Awaitable[U]],
        *,
        capacity: int = 100,
        timeout: Duration | None = "10s",
        on_timeout: OnTimeout = "fail",
        ordered: bool = True,
        retry: Retry | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """The answer for each record, of a coroutine function that waits for other systems.

        A subtask has at most `capacity` requests under way; a restore sends them again. Answers leave in
        order, or with `ordered=False` as they come, but never across a watermark. What takes longer than
        `timeout`, all attempts included, fails the job, or with "side" goes to the side output "timeout".
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        keyed = self._key is not None
        spec = MapAsyncSpec(function, capacity, timeout_s, on_timeout, ordered, retry, keyed)
        return self._then(spec, options)

    def process(
        self,
        process: Process[T_co, U] | KeyedProcess[Any, T_co, U],
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """The records that a process function emits; a KeyedProcess needs a keyed stream."""
        # The draft refuses a KeyedProcess here, with advice.
        return self._then(ProcessSpec(process), options)  # type: ignore[arg-type]

    def apply(self, operator: OperatorSpec, **options: Unpack[OperatorOptions]) -> Stream[Any]:
        """The records that an operator of any kind emits, such as one from another package."""
        check_instance(operator, OperatorSpec, f"apply on {self._label}")
        return self._then(operator, options)

    def sink(self, sink: Sink, **options: Unpack[OperatorOptions]) -> None:
        """The end of the stream: its records go to the outside world."""
        self._draft.add(SinkSpec(sink), operator_settings(options), (self._input,))

    def side_output(self, tag: str) -> Stream[Any]:
        """The records that the operator behind this stream emits to the side output `tag`."""
        operator = self._only_operator("side output")
        if any(port.tag is not None for port in self._ports):
            raise ConfigurationError(
                f"{self._label} is a side output; ask the stream of the operator itself for others"
            )
        return Stream(self._draft, (self._draft.side_output(operator, tag),), None)

    @overload
    def key_by(self, key: Callable[[T_co], K], /) -> KeyedStream[K, T_co]: ...

    @overload
    def key_by(self, *key: str) -> KeyedStream[Any, T_co]: ...

    def key_by(self, *key: str | Callable[[Any], Any]) -> KeyedStream[Any, T_co]:
        """Group by columns, or by one function of the record whose results hash stably.

        One column gives the value as key, several give a tuple.
        """
        from minirt.api.keyed_stream import KeyedStream

        selector = hash_key(key, self._schema, f"key_by on {self._label}")
        ports = self._dealt(Hash(selector))._ports
        return KeyedStream(self._draft, ports, self._schema, selector)

    def window_all(self, window: Window) -> WindowedStream[None, T_co]:
        """All records in windows, whatever their key: one subtask computes them."""
        from minirt.api.windowed_stream import WindowedStream

        label = f"window_all on {self._label}"
        check_instance(window, Window, label)
        check_not_keyed(self._ports, label, "with window(...) each key has windows of its own")
        return WindowedStream(self, window, keyed=False)

    def union(self, *others: Stream[U]) -> Stream[T_co | U]:
        """The records of all streams, in no order between them."""
        for other in others:
            self._check_same_environment(other, "union")
        streams: tuple[Stream[Any], ...] = (self, *others)
        ports = tuple(port for stream in streams for port in stream._ports)
        schemas = [stream._schema for stream in streams]
        common = all(schema is not None and schema == schemas[0] for schema in schemas)
        return Stream(self._draft, ports, schemas[0] if common else None)

    def connect(self, other: Stream[U]) -> ConnectedStreams[T_co, U]:
        """Both streams as the two inputs of one operator."""
        from minirt.api.connected import ConnectedStreams

        self._check_same_environment(other, "connect")
        return ConnectedStreams(self, other)

    def rebalance(self) -> Stream[T_co]:
        """The next operator's subtasks receive the records in turn."""
        return self._dealt(Rebalance())

    def rescale(self, *, ordered: bool = True) -> Stream[T_co]:
        """As rebalance, but only among a block of subtasks: fewer channels.

        Where each subtask has one receiver, records of a key keep their order, and `ordered` as for
        `forward`.
        """
        return self._dealt(Rescale(check_flag(ordered, "ordered", f"rescale on {self._label}")))

    def broadcast(self) -> Stream[T_co]:
        """Every subtask of the next operator receives every record."""
        return self._dealt(Broadcast())

    def forward(self, *, ordered: bool = True) -> Stream[T_co]:
        """Subtask i hands its records to subtask i of the next operator; parallelism must be equal.

        Records of a key keep their order, also when the job is restored at another parallelism: so no
        barrier overtakes them here. With `ordered=False` barriers may, and such a restore may change the
        order.
        """
        return self._dealt(Forward(check_flag(ordered, "ordered", f"forward on {self._label}")))

    def partition_custom(
        self, function: Callable[[Any, int], int], key: KeySpec, *, pure: bool = True
    ) -> Stream[T_co]:
        """`function(key, parallelism)` gives the index of the receiving subtask.

        Say `pure=False` if the index depends on anything else, such as a counter, a clock or chance:
        no barrier then overtakes records on their way to the next operator.
        """
        label = f"partition_custom on {self._label}"
        return self._dealt(custom(function, key, pure, self._schema, label))

    def partition_by(self, partitioning: Partitioning) -> Stream[T_co]:
        """The next operator's subtasks receive what a partitioning of your own says.

        For columns or a function of the record as a key there is `key_by`.
        """
        label = f"partition_by on {self._label}"
        check_own(partitioning, self._schema, label)
        return self._dealt(partitioning)

    def _then(self, spec: OperatorSpec, options: OperatorOptions) -> Stream[Any]:
        return added(self._draft, spec, operator_settings(options), self._input)

    @property
    def _input(self) -> Input:
        """This stream as what leads into an operator."""
        return Input(self._label, self._ports, self._key, self._schema)

    @property
    def _key(self) -> KeySelector | None:
        return None

    def _dealt(self, partitioning: Partitioning) -> Stream[T_co]:
        ports = dealt_ports(self._ports, partitioning, self._label)
        return Stream(self._draft, ports, self._schema)

    @property
    def _label(self) -> str:
        labels = [self._draft.node(port.operator).label for port in self._ports]
        return labels[0] if len(labels) == 1 else f"the union of {', '.join(labels)}"

    def _only_operator(self, wanted: str) -> int:
        if len(self._ports) > 1:
            raise ConfigurationError(f"{self._label} has no {wanted}; ask one of its streams")
        return self._ports[0].operator

    def _check_same_environment(self, other: Stream[Any], method: str) -> None:
        label = f"{method} on {self._label}"
        check_instance(other, Stream, label)
        if other._draft is not self._draft:
            raise ConfigurationError(
                f"{label}: {other._label} belongs to another Environment; use one"
            )


def added(draft: Draft, spec: OperatorSpec, settings: Settings, *inputs: Input) -> Stream[Any]:
    """The main output of an operator that is added behind these inputs."""
    operator = draft.add(spec, settings, inputs)
    return Stream(draft, (Port(operator),), draft.node(operator).schema)
