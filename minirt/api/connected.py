"""Two streams of different records as the two inputs of one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from minirt.api.dealing import is_broadcast, uncaptured
from minirt.api.draft import Settings
from minirt.api.keys import KeySpec, key_parts
from minirt.api.stream import Stream, added
from minirt.errors import ConfigurationError
from minirt.functions import BroadcastProcess, KeyedCoProcess
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.broadcast_process import BroadcastProcessSpec
from minirt.operators.common.checks import check_instance
from minirt.operators.flat_map import CoFlatMapSpec
from minirt.operators.keyed_process import KeyedCoProcessSpec
from minirt.operators.map import CoMapSpec

if TYPE_CHECKING:
    from minirt.api.keyed_stream import KeyedStream


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
        return self._then(CoFlatMapSpec(left, right), settings)

    @overload
    def key_by(self, left: KeySpec) -> ConnectedBroadcastStreams: ...

    @overload
    def key_by(self, left: KeySpec, right: KeySpec) -> ConnectedKeyedStreams: ...

    def key_by(
        self, left: KeySpec, right: KeySpec | None = None
    ) -> ConnectedKeyedStreams | ConnectedBroadcastStreams:
        """Group each side by columns, or by a function; equal keys of both sides meet.

        A right that is broadcast has no key: each subtask gets all of it.
        """
        keyed = self._left.key_by(*key_parts(left))
        if right is not None:
            return keyed.connect(self._right.key_by(*key_parts(right)))
        if not is_broadcast(self._right._ports):
            raise ConfigurationError(
                f"key_by on {self._left!r} and {self._right!r}: name the key of each side; only a right "
                "that is broadcast has none"
            )
        return ConnectedBroadcastStreams(keyed, self._right)

    def apply(
        self,
        operator: OperatorSpec,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """The records that an operator with two inputs emits: one of any kind, such as one from another
        package."""
        check_instance(operator, OperatorSpec, f"apply on {self._left!r} and {self._right!r}")
        return self._then(operator, Settings(uid, name, parallelism, chain))

    def _then(self, spec: OperatorSpec, settings: Settings) -> Stream:
        return added(self._left._draft, spec, settings, self._left._input, self._right._input)


class ConnectedBroadcastStreams(ConnectedStreams):
    """A keyed stream, and one that each subtask gets all of."""

    __slots__ = ()

    def process(
        self,
        process: BroadcastProcess,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        chain: bool = True,
    ) -> Stream:
        """The records that a process function emits: with state per key, and state that broadcast records
        write in every subtask."""
        if not is_broadcast(self._right._ports):
            raise ConfigurationError(
                f"process on {self._left!r} and {self._right!r}: only one side has keys; call key_by on "
                "the other, or broadcast() if each subtask is to get all of it"
            )
        right = replace(self._right._input, ports=uncaptured(self._right._ports))
        settings = Settings(uid, name, parallelism, chain)
        spec = BroadcastProcessSpec(process)
        return added(self._left._draft, spec, settings, self._left._input, right)


class ConnectedKeyedStreams(ConnectedStreams):
    """Two streams keyed alike: records of equal keys share one state."""

    __slots__ = ()

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        super().__init__(left, right)
        counts = len(left._key.columns), len(right._key.columns)
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
        """The records that a process function over both sides emits; it has state and timers per key."""
        return self._then(KeyedCoProcessSpec(process), Settings(uid, name, parallelism, chain))
