"""A stream cut into windows."""

from __future__ import annotations

from typing import Literal

from minirt.aggregates import Aggregate
from minirt.api.draft import Settings
from minirt.api.stream import Stream
from minirt.errors import ConfigurationError
from minirt.operators.window import WindowAllSpec, WindowSpec
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
        if self._keyed:
            spec = WindowSpec(aggregates, self._window, emission)
            return self._stream._then(spec, Settings(uid, name, parallelism, chain))
        if parallelism not in (None, 1):
            raise ConfigurationError(
                f"window_all on {self._stream!r}: one subtask sees all records, so its parallelism is 1, "
                f"not {parallelism!r}; with key_by and window there can be more"
            )
        everything = WindowAllSpec(aggregates, self._window, emission)
        return self._stream._then(everything, Settings(uid, name, 1, chain))
