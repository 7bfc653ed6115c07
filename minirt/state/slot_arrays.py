"""Arrays that hold something of each slot of a table."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from minirt.kernels.contract import Slots
from minirt.state.numbers import enlarged

FIRST_ROOM = 1024


class SlotArrays:
    """Call `make_room` before slots are used, so that there is room for them.

    Memory is first touched when it is used: to have the system make all of a large array takes long.
    """

    def __init__(self, arrays: Sequence[tuple[npt.DTypeLike, Any]]) -> None:
        """`arrays` are the types of the arrays, and what they hold for a slot without records."""
        self._arrays = [np.empty(FIRST_ROOM, dtype) for dtype, _ in arrays]
        self._fills = [fill for _, fill in arrays]
        self._count = 0

    def make_room(self, count: int) -> None:
        """Slots below `count` are about to be used."""
        before = self._count
        if count <= before:
            return
        self.reserve(count)
        for array, fill in zip(self._arrays, self._fills, strict=True):
            array[before:count] = fill
        self._count = count

    def reserve(self, count: int) -> None:
        """So many slots are to be used soon: have no array grow several times until then."""
        if count > len(self._arrays[0]):
            self._arrays = [enlarged(array, self._count, count) for array in self._arrays]

    def clear(self, slots: Slots) -> None:
        """These slots are as if nothing had been added."""
        for array, fill in zip(self._arrays, self._fills, strict=True):
            array[slots] = fill

    def emptied(self, room: int) -> Self:
        """Arrays of the same kind without slots, with room for so many."""
        other = copy(self)
        other._arrays = [np.empty(max(room, FIRST_ROOM), array.dtype) for array in self._arrays]
        other._count = 0
        return other

    def take_over(self, slots: Slots, other: Self, others: Slots) -> None:
        """Hold in these slots the very objects that `other` holds in its slots `others`."""
        for array, theirs in zip(self._arrays, other._arrays, strict=True):
            array[slots] = theirs[others]
