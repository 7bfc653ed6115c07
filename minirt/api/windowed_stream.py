"""A stream cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, Unpack, overload

from minirt.aggregates import Aggregate
from minirt.api.keywords import OperatorOptions
from minirt.api.stream import Row, Stream
from minirt.errors import ConfigurationError
from minirt.functions import WindowProcess
from minirt.generics import K_co, T_co, U
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.window import WindowAllSpec, WindowSpec
from minirt.operators.window_rows import RowWindowAllSpec, RowWindowSpec
from minirt.units import Duration
from minirt.windows import Clock, Emission, Window


class WindowedStream(Generic[K_co, T_co]):
    """The result of `KeyedStream.window` or `Stream.window_all`: say what to compute from each window."""

    __slots__ = ("_keyed", "_stream", "_window")

    def __init__(self, stream: Stream[T_co], window: Window, *, keyed: bool = True) -> None:
        self._stream = stream
        self._window = window
        self._keyed = keyed

    def aggregate(
        self,
        *aggregates: Aggregate,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        **options: Unpack[OperatorOptions],
    ) -> Stream[Row]:
        """Columns with the key, `window_start`, `window_end` and the results, once a window is over.

        Their event time is the last millisecond of the window. The side output "late" has the records
        that came too late for their window. With `emit="updates"` there are early results after every
        batch, of the keys that it has changed; with a duration such as "1s", so often by the `clock`.
        Then a column `pane` says of each result whether it is "early", "on_time" or "late", or
        "retracted": the window is no longer one, as it is part of a larger session.
        """
        emission = Emission.parse(emit, clock)
        kind = WindowSpec if self._keyed else WindowAllSpec
        spec = kind(aggregates, self._window, emission)
        return self._then(spec, options)

    @overload
    def reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        process: None = None,
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        **options: Unpack[OperatorOptions],
    ) -> Stream[T_co]: ...

    @overload
    def reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        process: WindowProcess[K_co, T_co, U],
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]: ...

    def reduce(
        self,
        function: Callable[[T_co, T_co], T_co],
        process: WindowProcess[K_co, T_co, U] | None = None,
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        **options: Unpack[OperatorOptions],
    ) -> Stream[Any]:
        """One value of all records of a window: `function(value so far, record)`, the first as it is.

        The function must be associative, as sliding windows and sessions combine values with it, in the
        order of event time. With a `process` the value is handed to that, which knows the key and the
        window. `emit` and `clock` as in `aggregate`; without a process, results do not say which they
        are. The side output "late" has the records that came too late.
        """
        emission = Emission.parse(emit, clock)
        return self._of_rows(function, process, emission, options)

    def process(
        self,
        process: WindowProcess[K_co, T_co, U],
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """What a WindowProcess makes of all records of a window, which are kept until it is closed.

        `emit` and `clock` as in `aggregate`; the context says which result of its window one is. The side
        output "late" has the records that came too late.
        """
        emission = Emission.parse(emit, clock)
        return self._of_rows(None, process, emission, options)

    def _of_rows(
        self,
        function: Callable[[Any, Any], Any] | None,
        process: WindowProcess | None,
        emission: Emission,
        options: OperatorOptions,
    ) -> Stream[Any]:
        kind = RowWindowSpec if self._keyed else RowWindowAllSpec
        return self._then(kind(self._window, function, process, emission), options)

    def _then(self, spec: OperatorSpec, options: OperatorOptions) -> Stream[Any]:
        if self._keyed:
            return self._stream._then(spec, options)
        if options.get("parallelism") not in (None, 1):
            raise ConfigurationError(
                f"window_all on {self._stream!r}: one subtask sees all records, so its parallelism is 1, "
                f"not {options['parallelism']!r}; with key_by and window there can be more"
            )
        alone: OperatorOptions = {**options, "parallelism": 1}
        return self._stream._then(spec, alone)
