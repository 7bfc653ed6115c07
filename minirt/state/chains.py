"""Several slots for each of many keys: lists that are linked in arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minirt.kernels.contract import Slots
from minirt.state.numbers import grown

_NONE = -1


class Chains:
    """For each key, told by its number, the slots that belong to it."""

    def __init__(self) -> None:
        self._first: npt.NDArray[np.int64] = np.full(1024, _NONE)
        """By key, one of its slots."""
        self._next: npt.NDArray[np.int64] = np.full(1024, _NONE)
        """By slot, another one of the same key."""
        self._linked = np.zeros(1024, np.bool_)
        self._gone = np.zeros(1024, np.bool_)

    def link(self, keys: Slots, slots: Slots) -> None:
        """These slots belong to these keys. No slot is named twice; some may belong to theirs already."""
        self._make_room(int(keys.max(initial=-1)) + 1, int(slots.max(initial=-1)) + 1)
        self._gone[slots] = False
        new = ~self._linked[slots]
        keys, slots = keys[new], slots[new]
        while len(slots):
            turn, rows = np.unique(keys, return_index=True)
            self._next[slots[rows]] = self._first[turn]
            self._first[turn] = slots[rows]
            self._linked[slots[rows]] = True
            left = np.ones(len(slots), np.bool_)
            left[rows] = False
            keys, slots = keys[left], slots[left]

    def unlink(self, slots: Slots) -> None:
        """These slots belong to no key any more. They leave their chains when these are walked next."""
        self._gone[slots] = True

    def of(self, keys: Slots) -> tuple[Slots, Slots]:
        """All slots of these keys, each beside its key. No key is named twice."""
        self._make_room(int(keys.max(initial=-1)) + 1, 0)
        owners: list[Slots] = []
        found: list[Slots] = []
        before = np.full(len(keys), _NONE)
        current = self._first[keys]
        while len(current):
            there = current != _NONE
            keys, before, current = keys[there], before[there], current[there]
            gone, following = self._gone[current], self._next[current]
            heads = gone & (before == _NONE)
            self._first[keys[heads]] = following[heads]
            within = gone & (before != _NONE)
            self._next[before[within]] = following[within]
            self._linked[current[gone]] = False
            owners.append(keys[~gone])
            found.append(current[~gone])
            before = np.where(gone, before, current)
            current = following
        empty = np.empty(0, np.intp)
        return np.concatenate([empty, *owners]), np.concatenate([empty, *found])

    def _make_room(self, keys: int, slots: int) -> None:
        if keys > len(self._first):
            self._first = grown(self._first, len(self._first), keys, _NONE)
        if slots > len(self._next):
            used = len(self._next)
            self._next = grown(self._next, used, slots, _NONE)
            self._linked = grown(self._linked, used, slots, False)
            self._gone = grown(self._gone, used, slots, False)
