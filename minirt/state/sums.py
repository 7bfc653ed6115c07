"""Sums of whole numbers that never wrap around in silence: they stop at their range, or are wider."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.kernels.contract import Slots
from minirt.state.numbers import Mask, Numbers, to_numbers

HALF_BITS = 32
_HALF = (1 << HALF_BITS) - 1

Ints = npt.NDArray[np.int64]


class SumOverflowError(ArithmeticError):
    """The sum of one slot is beyond its range."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"the sum in slot {slot} is beyond its range")
        self.slot = slot


class TooWideError(OverflowError):
    """A value has more digits than sums of its kind can hold."""


class SumGuard:
    """Knows before numbers are added that no sum leaves the range of its type.

    It keeps a bound that no sum exceeds. Each batch raises the bound by what the whole batch can add to one
    slot. Once the bound is too coarse, it looks at the sums themselves: first at those of the batch's
    slots, now and then at all. It adds values exactly only where a sum really is near the end of its range.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        range = np.iinfo(dtype)
        self._least, self._greatest = int(range.min), int(range.max)
        self._bound = 0
        self._since = 0
        """Values since the bound was found anew, which costs as much as there are slots."""

    def loaded(self, numbers: Numbers) -> None:
        """These sums have replaced others."""
        self._bound = max(self._bound, _largest(numbers))

    def check(
        self, held: Numbers, count: int, slots: Slots, numbers: Numbers, *, distinct: bool = False
    ) -> None:
        """Raise SumOverflowError if the sums of the first `count` slots have no room for these numbers.

        `distinct` says that no slot is named twice.
        """
        added = _largest(numbers) * (1 if distinct else len(numbers))
        self._bound += added
        if self._bound > self._greatest:
            self._look_at_sums(held, count, slots, numbers, added)

    def _look_at_sums(
        self, held: Numbers, count: int, slots: Slots, numbers: Numbers, added: int
    ) -> None:
        self._since += len(numbers)
        if self._since >= count:
            self._since = 0
            self._bound = _largest(held[:count]) + added
        if min(self._bound, _largest(held[slots]) + added) > self._greatest:
            self._add_exactly(held, slots, numbers)

    def _add_exactly(self, held: Numbers, slots: Slots, numbers: Numbers) -> None:
        named = np.arange(len(held))[slots]  # It may be a range.
        distinct, places = np.unique(named, return_inverse=True)
        totals = held[distinct].astype(object)
        for half, shift in zip(halves(numbers), (HALF_BITS, 0), strict=True):
            sums = np.zeros(len(distinct), np.int64)
            np.add.at(sums, places, half)
            totals += sums.astype(object) << shift
        beyond = (totals < self._least) | (totals > self._greatest)
        if beyond.any():
            raise SumOverflowError(int(distinct[beyond.argmax()]))


def halves(numbers: Numbers) -> tuple[Ints, Ints]:
    """Each number as `high * 2**32 + low`, `low` below 2**32 and never negative."""
    high, low = numbers >> HALF_BITS, numbers & numbers.dtype.type(_HALF)
    return high.astype(np.int64, copy=False), low.astype(np.int64, copy=False)


def halves_of_column(array: pa.Array) -> tuple[Ints, Ints]:
    """As `halves`, of whole numbers or decimals without nulls. Raises as `halves_of_decimals`."""
    if pa.types.is_decimal(array.type):
        return halves_of_decimals(array)
    return halves(to_numbers(array)[0])


def halves_of_decimals(array: pa.Array) -> tuple[Ints, Ints]:
    """As `halves`, of decimal128 of scale 0. Raises TooWideError for those that are beyond 96 bits."""
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    low, high = words[array.offset : array.offset + len(array)].T
    beyond = (high < -(1 << 31)) | (high >= 1 << 31)
    if beyond.any():
        raise TooWideError(f"{array[int(beyond.argmax())].as_py()} is beyond 96 bits")
    return (high << HALF_BITS) | ((low >> HALF_BITS) & _HALF), low & _HALF


def decimals_of_halves(high: Ints, low: Ints, nulls: Mask | None, type: pa.DataType) -> pa.Array:
    """Decimals of scale 0 from what `halves` gives."""
    words = np.empty((len(high), 2), np.int64)
    words[:, 0] = (high << HALF_BITS) | low
    words[:, 1] = high >> HALF_BITS
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(type, len(high), [valid, pa.py_buffer(words)])


def _largest(numbers: Numbers) -> int:
    """The largest absolute value. Where none is negative, that takes one look at the numbers."""
    if not len(numbers):
        return 0
    greatest = int(numbers.view(np.uint64).max())
    if greatest < 1 << 63 or numbers.dtype == np.uint64:
        return greatest
    return max(int(numbers.max()), -int(numbers.min()))
