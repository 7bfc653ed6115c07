"""A keyed stream cut into windows."""

from __future__ import annotations

from minirt.aggregates import Aggregate
from minirt.api.draft import Settings
from minirt.api.stream import Stream
from minirt.operators.window import WindowSpec
from minirt.windows import Tumbling


class WindowedStream:
    """The result of `KeyedStream.window`: say what to compute from each key and window."""

    __slots__ = ("_stream", "_window")

    def __init__(self, stream: Stream, window: Tumbling) -> None:
        self._stream = stream
        self._window = window

    def aggregate(
        self,
        *aggregates: Aggregate,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """Columns with the key, `window_start`, `window_end` and the results, once a window is over.

        Their event time is the last millisecond of the window. The side output "late" has the records
        that came too late for their window.
        """
        settings = Settings(uid, name, parallelism, chain)
        return self._stream._then(WindowSpec(aggregates, self._window), settings)
