"""A keyed stream: records of the same key meet in the same subtask, with their state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, Unpack

import pyarrow as pa

from minirt.aggregates import Aggregate
from minirt.api.connected import ConnectedKeyedStreams
from minirt.api.draft import Draft, Port
from minirt.api.keywords import OperatorOptions
from minirt.api.stream import Row, Stream
from minirt.api.windowed_stream import WindowedStream
from minirt.errors import ConfigurationError
from minirt.functions import KeyedProcess, Process
from minirt.generics import K_co, T_co, U
from minirt.graph.keys import KeySelector
from minirt.operators.aggregate import AggregateSpec
from minirt.operators.common.checks import check_instance
from minirt.operators.common.ranking import Direction, order_by
from minirt.operators.distinct import DistinctSpec
from minirt.operators.keyed_process import KeyedProcessSpec
from minirt.operators.reduce import ReduceSpec
from minirt.operators.top_n import TopNSpec
from minirt.units import Duration, milliseconds, seconds
from minirt.windows import Window


class KeyedStream(Stream[T_co], Generic[K_co, T_co]):
    """As Stream; the next operator receives its records by key, of type `K_co`."""

    __slots__ = ("_keyed_by",)

    def __init__(
        self, draft: Draft, ports: tuple[Port, ...], schema: pa.Schema | None, key: KeySelector
    ) -> None:
        super().__init__(draft, ports, schema)
        self._keyed_by = key

    @property
    def _key(self) -> KeySelector:
        return self._keyed_by

    def process(
        self,
        process: Process[T_co, U] | KeyedProcess[K_co, T_co, U],
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """The records that a process function emits; a KeyedProcess has state and timers per key."""
        if isinstance(process, Process):
            return super().process(process, **options)
        return self._then(KeyedProcessSpec(process), options)

    def reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        **options: Unpack[OperatorOptions],
    ) -> Stream[T_co]:
        """After every record the value of its key so far, `function(value so far, record)`."""
        return self._then(ReduceSpec(function), options)

    def aggregate(
        self,
        *aggregates: Aggregate,
        emit: Literal["updates", "end"] | Duration = "updates",
        ttl: Duration | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """Columns with the key and what the aggregates have come to so far.

        `emit` says when: "updates" after every batch, one row for each key that the batch has changed;
        a duration such as "1s" for the keys that changed within it; "end" once, after the end of input.
        Each row has the event time of the newest record that is in it.

        With `ttl`, a key for which nothing has come for so long is forgotten, by the processing clock: a
        record that comes later begins anew. What was held back of it by `emit` is given out before.
        """
        ttl_ms = None if ttl is None else milliseconds(ttl, f"aggregate on {self._label}: ttl")
        return self._then(AggregateSpec(aggregates, _emission(emit), ttl_ms), options)

    def distinct(
        self, *, within: Duration | None = None, **options: Unpack[OperatorOptions]
    ) -> Stream[T_co]:
        """The first record of each key, as it is: rows or columns.

        With `within`, a record is a repetition only if one of its key was given out whose event time is
        less than that apart, and keys are forgotten once the watermark is so much further. The side output
        "late" then has the records behind the watermark, as what they may repeat is forgotten.
        """
        within_ms = (
            None if within is None else milliseconds(within, f"distinct on {self._label}: within")
        )
        return self._then(DistinctSpec(within_ms), options)

    def top_n(
        self,
        n: int,
        by: str | Sequence[str | tuple[str, Direction]],
        *,
        rank: str = "rank",
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """The records of each key that are among its first `n` so far, with their rank from 1 on.

        `by="price"` begins with the greatest price; several columns decide in turn, and a pair says the
        direction: `by=["price", ("at", "ascending")]`. Of equal records those come first that came first.
        After every batch a record is given out whose rank has changed: what was given out last of a key
        and a rank counts. Records without a value to go by have no rank.
        """
        spec = TopNSpec(n, order_by(by, f"top_n on {self._label}"), rank)
        return self._then(spec, options)

    def window(self, window: Window) -> WindowedStream[K_co, T_co]:
        """The records of each key in windows; say next what to compute from them."""
        check_instance(window, Window, f"window on {self._label}")
        return WindowedStream(self, window)

    def connect(self, other: Stream[U]) -> ConnectedKeyedStreams[K_co, T_co, U]:
        """Both streams as the two inputs of one operator; if both are keyed they share state.

        If the other is broadcast, each subtask gets all of it: `.process(BroadcastProcess)`.
        """
        self._check_same_environment(other, "connect")
        return ConnectedKeyedStreams(self, other)


def _emission(emit: Literal["updates", "end"] | Duration) -> Literal["updates", "end"] | float:
    """When results are given out. Raises ConfigurationError."""
    if emit == "updates":
        return "updates"
    if emit == "end":
        return "end"
    interval = seconds(emit, 'emit, which is "updates", "end" or a duration,')
    if interval < 0.001:
        raise ConfigurationError(f"emit: an interval must be at least 1ms, got {emit!r}")
    return interval
