"""`Quantile`: a median, a 99th percentile, by a sketch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.aggregates.basic import NUMBERS, Accumulated, is_number, unfit, whole_number
from minirt.aggregates.sketches import check_sketches
from minirt.errors import ConfigurationError
from minirt.state.accumulator import Accumulator, ObjectsByKey
from minirt.state.numbers import to_numbers


@dataclass(frozen=True)
class Quantile(Accumulated):
    """The value that a share `q` of all values is not above, approximately, in float64.

    By a KLL sketch, which keeps some 3 * `k` values and more of them for smaller errors: with 200, the rank
    of the result is within 1.7 % of `q` with a probability of 99 %. Up to `k` values it is exact. It
    needs the extra `sketches`. NaN is left out. Which values the sketch keeps is drawn at random.
    """

    q: float = 0.5
    k: int = 200

    def __post_init__(self) -> None:
        what = f"Quantile of column {self.column!r}"
        if isinstance(self.q, bool) or not isinstance(self.q, int | float) or not 0 <= self.q <= 1:
            raise ConfigurationError(f"{what}: q must be 0 to 1, got {self.q!r}")
        whole_number(what, "k", self.k, 8, 65535)
        check_sketches(what)

    @property
    def computes(self) -> str:
        return f"{super().computes}, {self.k}"

    def result_type(self, type: pa.DataType) -> pa.DataType:
        if is_number(type):
            return pa.float64()
        raise unfit(self, type, NUMBERS)

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _Sketches(type, self.q, self.k)


class _Sketches(ObjectsByKey):
    def __init__(self, type: pa.DataType, q: float, k: int) -> None:
        super().__init__(type, pa.float64())
        self._q = q
        self._k = k

    def of(self, values: pa.Array) -> Any:
        from datasketches import kll_doubles_sketch

        numbers = to_numbers(values.drop_null())[0].astype(np.float64)
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return None
        sketch = kll_doubles_sketch(self._k)
        sketch.update(numbers)
        return sketch

    def united(self, earlier: Any, later: Any) -> Any:
        earlier.merge(later)
        return earlier

    def shown(self, held: Any) -> Any:
        return held.get_quantile(self._q, True)

    def pack(self, held: Any) -> bytes:
        return bytes(held.serialize())

    def unpack(self, packed: bytes) -> Any:
        from datasketches import kll_doubles_sketch

        return kll_doubles_sketch.deserialize(packed)
