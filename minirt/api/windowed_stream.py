"""A stream cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from minirt.aggregates import Aggregate
from minirt.api.draft import Settings
from minirt.api.stream import Stream
from minirt.errors import ConfigurationError
from minirt.functions import WindowProcess
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.window import WindowAllSpec, WindowSpec
from minirt.operators.window_rows import RowWindowAllSpec, RowWindowSpec
from minirt.units import Duration
from minirt.windows import Clock, Emission, Window


class WindowedStream:
    """The result of `KeyedStream.window` or `Stream.window_all`: say what to compute from each window."""

    __slots__ = ("_keyed", "_stream", "_window")

    def __init__(self, stream: Stream, window: Window, *, keyed: bool = True) -> None:
        self._stream = stream
        self._window = window
        self._keyed = keyed

    def aggregate(
        self,
        *aggregates: Aggregate,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
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
        return self._then(spec, Settings(uid, name, parallelism, chain))

    def reduce(
        self,
        function: Callable[[Any, Any], Any],
        process: WindowProcess | None = None,
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """One value of all records of a window: `function(value so far, record)`, the first as it is.

        The function must be associative, as sliding windows and sessions combine values with it, in the
        order of event time. With a `process` the value is handed to that, which knows the key and the
        window. `emit` and `clock` as in `aggregate`; without a process, results do not say which they
        are. The side output "late" has the records that came too late.
        """
        emission = Emission.parse(emit, clock)
        return self._of_rows(function, process, emission, Settings(uid, name, parallelism, chain))

    def process(
        self,
        process: WindowProcess,
        *,
        emit: Literal["end", "updates"] | Duration = "end",
        clock: Clock = "processing",
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """What a WindowProcess makes of all records of a window, which are kept until it is closed.

        `emit` and `clock` as in `aggregate`; the context says which result of its window one is. The side
        output "late" has the records that came too late.
        """
        emission = Emission.parse(emit, clock)
        return self._of_rows(None, process, emission, Settings(uid, name, parallelism, chain))

    def _of_rows(
        self,
        function: Callable[[Any, Any], Any] | None,
        process: WindowProcess | None,
        emission: Emission,
        settings: Settings,
    ) -> Stream:
        kind = RowWindowSpec if self._keyed else RowWindowAllSpec
        return self._then(kind(self._window, function, process, emission), settings)

    def _then(self, spec: OperatorSpec, settings: Settings) -> Stream:
        if self._keyed:
            return self._stream._then(spec, settings)
        if settings.parallelism not in (None, 1):
            raise ConfigurationError(
                f"window_all on {self._stream!r}: one subtask sees all records, so its parallelism is 1, "
                f"not {settings.parallelism!r}; with key_by and window there can be more"
            )
        return self._stream._then(spec, replace(settings, parallelism=1))
