"""Two streams of different records as the two inputs of one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minirt.api.draft import Port, Settings
from minirt.api.keys import KeySpec, key_parts
from minirt.api.stream import Stream
from minirt.errors import ConfigurationError
from minirt.functions import KeyedCoProcess
from minirt.graph.job_graph import CoMapSpec, KeyedCoProcessSpec, KeySelector, OperatorSpec


class ConnectedStreams:
    """A left and a right stream. Its operator methods take the same settings as those of Stream."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Stream, right: Stream) -> None:
        self._left = left
        self._right = right

    def map(
        self,
        left: Callable[[Any], Any],
        right: Callable[[Any], Any],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """One record for each, by the function of its side."""
        return self._then(CoMapSpec(left, right), Settings(uid, name, parallelism, chain))

    def flat_map(
        self,
        left: Callable[[Any], Iterable[Any]],
        right: Callable[[Any], Iterable[Any]],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """Any number of records for each, by the function of its side."""
        settings = Settings(uid, name, parallelism, chain)
        return self._then(CoMapSpec(left, right, flat=True), settings)

    def key_by(self, left: KeySpec, right: KeySpec) -> ConnectedKeyedStreams:
        """Group each side by columns, or by a function; equal keys of both sides meet."""
        return self._left.key_by(*key_parts(left)).connect(self._right.key_by(*key_parts(right)))

    def _then(self, spec: OperatorSpec, settings: Settings) -> Stream:
        draft = self._left._draft
        operator = draft.add(spec, settings, (self._left._ports, self._right._ports))
        return Stream(draft, (Port(operator),), None)


class ConnectedKeyedStreams(ConnectedStreams):
    """Two streams keyed alike: records of equal keys share one state."""

    __slots__ = ("_left_key", "_right_key")

    def __init__(
        self, left: Stream, right: Stream, left_key: KeySelector, right_key: KeySelector
    ) -> None:
        super().__init__(left, right)
        self._left_key = left_key
        self._right_key = right_key
        counts = len(left_key.columns), len(right_key.columns)
        if all(counts) and counts[0] != counts[1]:
            raise ConfigurationError(
                f"{left!r} is keyed by {counts[0]} columns and {right!r} by {counts[1]}: "
                "no key of one side can equal one of the other"
            )

    def process(
        self,
        process: KeyedCoProcess,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """What a process function over both sides emits; it has state and timers per key."""
        spec = KeyedCoProcessSpec(self._left_key, self._right_key, process)
        return self._then(spec, Settings(uid, name, parallelism, chain))
