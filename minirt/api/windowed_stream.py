"""A keyed stream cut into windows."""

from __future__ import annotations

from minirt.aggregates import Aggregate
from minirt.api.aggregation import windowed_schema
from minirt.api.draft import Settings
from minirt.api.stream import Stream
from minirt.graph.job_graph import KeySelector, WindowSpec
from minirt.windows import Tumbling


class WindowedStream:
    """What `KeyedStream.window` gives: say what is to be computed of each key and window."""

    __slots__ = ("_key", "_stream", "_window")

    def __init__(self, stream: Stream, key: KeySelector, window: Tumbling) -> None:
        self._stream = stream
        self._key = key
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
        spec = WindowSpec(self._key, aggregates, self._window)
        settings = Settings(uid, name, parallelism, chain)
        label = self._stream._draft.label(spec, settings)
        schema = windowed_schema(spec, self._stream._schema, label)
        return self._stream._then(spec, settings, schema)
