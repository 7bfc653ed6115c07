"""Incremental snapshots of state in arrays: which slots to write, and which older files still count.

A snapshot writes a *segment*: the slots that have changed since the last one, and a stretch of all the
others, which moves on from snapshot to snapshot. Together with the older segments that hold the newest
version of any slot it is the whole state. Thanks to the stretch, every slot is written again within so
many snapshots, so that old segments lose their last slot and can go.

The stretch is as long as there are changes, and at least a 64th of all slots. So a snapshot writes at most
twice what has changed, or a 32nd; what is stored in all is about twice the state at most; and a
snapshot builds on some 64 older ones at most.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from minirt.kernels.choice import kernels
from minirt.kernels.contract import Slots
from minirt.state.numbers import Mask, enlarged
from minirt.state.slot_arrays import FIRST_ROOM

STRETCH_MIN = 16384
"""The least stretch, in slots: state of no more slots is written as a whole each time."""

_STRETCHES = 64
_NOWHERE = -1


class Segments:
    """Knows which segment holds the newest version of each slot. Call `make_room` before slots are used.

    Slots that were handed over count as stored only once `stored` says so. If it does not say so before the
    next hand-over, all of them have changed again.
    """

    def __init__(self, room: int = FIRST_ROOM) -> None:
        """There is room for so many slots at first."""
        self._count = 0
        self._changed: Mask = np.empty(room, np.bool_)
        self._segment: npt.NDArray[np.int32] = np.empty(room, np.int32)
        """By slot, the number of the segment that holds its newest stored version."""
        self._sizes: list[int] = []
        """By segment, how many slots it holds the newest version of; a number with none is free."""
        self._paths: dict[int, str] = {}
        self._handed_over: tuple[int, Mask] | None = None
        """The number of the newest segment and the slots that it holds."""
        self._stretch_from = 0

    def make_room(self, count: int) -> None:
        """Slots below `count` are about to be used."""
        before = self._count
        self.reserve(count)
        self._changed[before:count] = False
        self._segment[before:count] = _NOWHERE
        self._count = count

    def reserve(self, count: int) -> None:
        """So many slots are to be used soon."""
        if count > len(self._changed):
            self._changed = enlarged(self._changed, self._count, count)
            self._segment = enlarged(self._segment, self._count, count)

    def change(self, slots: Slots) -> None:
        """These slots differ from what is stored of them."""
        self._changed[slots] = True

    def next(self) -> Mask:
        """Which slots a snapshot is to write; they count as handed over."""
        self._take_back()
        changed = self._changed[: self._count]
        for stretch in self._next_stretches(int(np.count_nonzero(changed))):
            changed[stretch] = True
        chosen = changed.copy()
        self._replace(chosen)
        return chosen

    def hand_over(self, slots: Slots) -> None:
        """Note that a new segment holds these slots, so that older ones are out of date for them."""
        self._take_back()
        chosen = np.zeros(self._count, np.bool_)
        chosen[slots] = True
        self._replace(chosen)

    def _replace(self, chosen: Mask) -> None:
        """A new segment holds these slots."""
        number = self._free_number()
        written = int(np.count_nonzero(chosen))
        if written == self._count:
            self._segment[:written] = number
            self._sizes = [0] * len(self._sizes)
        else:
            counts = kernels().renumber(chosen, self._segment, number, len(self._sizes))
            self._sizes = [size - int(n) for size, n in zip(self._sizes, counts, strict=True)]
        self._sizes[number] = written
        changed = self._changed[: self._count]
        np.greater(changed, chosen, out=changed)
        self._handed_over = (number, chosen)

    def stored(self, path: str) -> None:
        """Note that this file holds the slots that were handed over last."""
        if self._handed_over is not None:
            number, _ = self._handed_over
            self._paths[number] = path
            self._handed_over = None

    def paths(self) -> list[str]:
        """The files that the state as of the last `next` builds on, in no order."""
        return [path for number, path in self._paths.items() if self._sizes[number]]

    def _take_back(self) -> None:
        if self._handed_over is not None:
            _, chosen = self._handed_over
            self._changed[: len(chosen)] |= chosen
            self._handed_over = None

    def _next_stretches(self, changes: int) -> Iterator[slice]:
        """The next stretch; where it goes on at the beginning, it has two parts."""
        count = self._count
        length = min(count, max(STRETCH_MIN, -(-count // _STRETCHES), changes))
        start = self._stretch_from
        yield slice(start, start + length)
        yield slice(0, max(0, start + length - count))
        self._stretch_from = (start + length) % count if count else 0

    def _free_number(self) -> int:
        if 0 in self._sizes:
            number = self._sizes.index(0)
            self._paths.pop(number, None)
        else:
            number = len(self._sizes)
            self._sizes.append(0)
        return number
