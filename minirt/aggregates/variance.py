"""`Variance` and `StdDev`.

Means and sums of squared deviations are combined as in Chan, Golub and LeVeque, "Updating Formulae and a
Pairwise Algorithm for Computing Sample Variances" (1979): squares of large values never cancel each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates.basic import NUMBERS, Accumulated, is_number, unfit
from minirt.errors import ConfigurationError
from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator, present
from minirt.state.numbers import to_numbers


@dataclass(frozen=True)
class Variance(Accumulated):
    """The variance, in float64: of a sample (`ddof=1`, as in SQL), or of all there is (`ddof=0`).

    Null for `ddof` values or fewer.
    """

    repeats: ClassVar = True

    ddof: int = 1

    def __post_init__(self) -> None:
        if self.ddof not in (0, 1) or isinstance(self.ddof, bool | float):
            raise ConfigurationError(
                f"{type(self).__name__} of column {self.column!r}: ddof is 0 or 1, not {self.ddof!r}"
            )

    def result_type(self, type: pa.DataType) -> pa.DataType:
        if is_number(type):
            return pa.float64()
        raise unfit(self, type, NUMBERS)

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _Moments(self.ddof, root=False)


class StdDev(Variance):
    """The standard deviation: the square root of the variance."""

    def accumulator(self, type: pa.DataType) -> Accumulator:
        return _Moments(self.ddof, root=True)


class _Moments(Accumulator):
    """How many values there are, their mean, and the sum of the squares of their distances from it."""

    def __init__(self, ddof: int, *, root: bool) -> None:
        super().__init__([(np.float64, 0), (np.float64, 0), (np.int64, 0)])
        self._ddof = ddof
        self._root = root

    def add(self, slots: Slots, values: pa.Array) -> None:
        slots, numbers = present(slots, values, self._arrays[0].dtype)
        distinct, places = np.unique(slots, return_inverse=True)
        counts = np.bincount(places, minlength=len(distinct))
        means = np.bincount(places, numbers, len(distinct)) / np.maximum(counts, 1)
        squares = np.bincount(places, (numbers - means[places]) ** 2, len(distinct))
        self._combine(distinct, means, squares, counts)

    def merge(self, slots: Slots, other: Any, others: Slots) -> None:
        self._combine(slots, *(array[others] for array in other._arrays))

    def _combine(
        self,
        slots: Slots,
        means: npt.NDArray[Any],
        squares: npt.NDArray[Any],
        counts: npt.NDArray[Any],
    ) -> None:
        before, known = self._arrays[0][slots], self._arrays[2][slots]
        total = known + counts
        some = np.maximum(total, 1)
        apart = means - before
        self._arrays[0][slots] = before + apart * counts / some
        self._arrays[1][slots] += squares + apart**2 * known * counts / some
        self._arrays[2][slots] = total

    def result(self, slots: Slots) -> pa.Array:
        freedom = self._arrays[2][slots] - self._ddof
        none = freedom < 1
        results = self._arrays[1][slots] / np.where(none, 1, freedom)
        if self._root:
            results = np.sqrt(results)
        return pa.array(results, mask=none if none.any() else None)

    def stored(self, slots: Slots) -> list[pa.Array]:
        return [pa.array(array[slots]) for array in self._arrays]

    def load(self, slots: Slots, stored: Sequence[pa.Array]) -> None:
        for array, values in zip(self._arrays, stored, strict=True):
            array[slots], _ = to_numbers(values)
