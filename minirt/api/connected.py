"""Two streams of different records as the two inputs of one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Unpack

from minirt.api.dealing import is_broadcast, uncaptured
from minirt.api.keys import KeySpec, key_parts
from minirt.api.keywords import OperatorOptions, operator_settings
from minirt.api.stream import Stream, added
from minirt.errors import ConfigurationError
from minirt.functions import BroadcastProcess, KeyedCoProcess
from minirt.generics import K, L, R, U
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.broadcast_process import BroadcastProcessSpec
from minirt.operators.common.checks import check_instance
from minirt.operators.flat_map import CoFlatMapSpec
from minirt.operators.keyed_process import KeyedCoProcessSpec
from minirt.operators.map import CoMapSpec

if TYPE_CHECKING:
    from minirt.api.keyed_stream import KeyedStream


class ConnectedStreams(Generic[L, R]):
    """A left and a right stream. Its operator methods take the same options as those of Stream."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Stream[L], right: Stream[R]) -> None:
        self._left = left
        self._right = right

    def map(
        self,
        left: Callable[[L], U],
        right: Callable[[R], U],
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """One record for each, by the function of its side."""
        return self._then(CoMapSpec(left, right), options)

    def flat_map(
        self,
        left: Callable[[L], Iterable[U]],
        right: Callable[[R], Iterable[U]],
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """Any number of records for each, by the function of its side."""
        return self._then(CoFlatMapSpec(left, right), options)

    def key_by(
        self, left: KeySpec, right: KeySpec | None = None
    ) -> ConnectedKeyedStreams[Any, L, R]:
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
        return keyed.connect(self._right)

    def apply(self, operator: OperatorSpec, **options: Unpack[OperatorOptions]) -> Stream[Any]:
        """The records that an operator with two inputs emits: one of any kind, such as one from another
        package."""
        check_instance(operator, OperatorSpec, f"apply on {self._left!r} and {self._right!r}")
        return self._then(operator, options)

    def _then(self, spec: OperatorSpec, options: OperatorOptions) -> Stream[Any]:
        inputs = self._left._input, self._right._input
        return added(self._left._draft, spec, operator_settings(options), *inputs)


class ConnectedKeyedStreams(ConnectedStreams[L, R], Generic[K, L, R]):
    """A keyed stream, and one that is keyed alike, or broadcast: each subtask then gets all of it."""

    __slots__ = ()

    def __init__(self, left: KeyedStream[K, L], right: Stream[R]) -> None:
        super().__init__(left, right)
        counts = len(left._key.columns), 0 if right._key is None else len(right._key.columns)
        if all(counts) and counts[0] != counts[1]:
            raise ConfigurationError(
                f"{left!r} is keyed by {counts[0]} columns and {right!r} by {counts[1]}: "
                "no key of one side can equal one of the other"
            )

    def process(
        self,
        process: KeyedCoProcess[K, L, R, U] | BroadcastProcess[K, L, R, U],
        **options: Unpack[OperatorOptions],
    ) -> Stream[U]:
        """The records that a process function over both sides emits.

        A KeyedCoProcess, of two keyed streams, has state and timers per key: records of equal keys share
        them. A BroadcastProcess also has state that broadcast records write in every subtask.
        """
        # The draft refuses a process of the other kind, with advice.
        if self._right._key is not None:
            return self._then(KeyedCoProcessSpec(process), options)
        if not is_broadcast(self._right._ports):
            raise ConfigurationError(
                f"process on {self._left!r} and {self._right!r}: only one side has keys; call key_by on "
                "the other, or broadcast() if each subtask is to get all of it"
            )
        right = replace(self._right._input, ports=uncaptured(self._right._ports))
        spec = BroadcastProcessSpec(process)
        settings = operator_settings(options)
        return added(self._left._draft, spec, settings, self._left._input, right)
