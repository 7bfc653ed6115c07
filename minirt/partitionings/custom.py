"""`partition_custom`: a function of the user picks the subtask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from minirt.graph.describe import describe_function, describe_key
from minirt.graph.keys import KeySelector
from minirt.partitionings.common.by_key import KeyPartitioning
from minirt.protocol.topology import InFlight


@dataclass(frozen=True, slots=True)
class Custom(KeyPartitioning):
    """`function(key, parallelism)` gives the index of the subtask.

    A pure one gives the same index for the same arguments, always and everywhere.
    """

    name: ClassVar = "custom"
    unchained: ClassVar = "a function picks the subtask"

    function: Callable[[Any, int], int]
    key: KeySelector
    pure: bool = True

    def targets(self, keys: Sequence[Any], receivers: int) -> Sequence[int]:
        function = self.function
        return [function(key, receivers) for key in keys]

    def identity(self, max_parallelism: int) -> object:
        return (self.key.columns, self.key.function, self.function)

    @property
    def described(self) -> str:
        key, function = describe_key(self.key), describe_function(self.function)
        return f"{self.name} by {key} with {function}"

    @property
    def in_flight_described(self) -> str:
        again = self.in_flight is InFlight.DEALT_AGAIN
        return "each goes where the function sends it" if again else self.in_flight.value
