"""State as of a snapshot, copied while processing goes on.

To copy large state at once would hold processing up. So a snapshot only notes which keys it stores, and the
thread that stores them copies them piece by piece. A key that is about to change before its turn is copied
first. So every copy shows the state as of the snapshot, and processing waits for one piece at most. This is
copy-on-write, by key instead of by page.

The thread that processes records calls `before_change`; the one that stores the snapshot, perhaps another,
calls `pieces`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from minirt.kernels.contract import Slots
from minirt.state.numbers import Mask

PIECE_SLOTS = 65_536
PIECE_KEYS = 1_024
"""How much is copied at a time, about a millisecond's worth."""


class FrozenSlots:
    """Some slots of a table of arrays. `copy` gives the rows of slots as they are now."""

    def __init__(self, waiting: Mask, copy: Callable[[Slots], pa.RecordBatch]) -> None:
        self._waiting = waiting
        """By slot, whether it still has to be copied. Slots beyond the end came later."""
        self._copy = copy
        self._position = 0
        """All slots before this one have been copied."""
        self._saved: list[pa.RecordBatch] = []
        self._lock = threading.Lock()

    @property
    def done(self) -> bool:
        """Whether all slots have been copied."""
        return self._position >= len(self._waiting)

    def before_change(self, slots: Slots) -> None:
        """Copy these slots first if their turn has not come, because they are about to change."""
        with self._lock:
            if self._position < len(self._waiting):
                known = slots[slots < len(self._waiting)]
                self._saved += self._copied(np.unique(known[self._waiting[known]]))

    def complete(self) -> None:
        """Copy the rest at once."""
        with self._lock:
            self._saved += self._copied(np.flatnonzero(self._waiting))
            self._position = len(self._waiting)

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """All rows, in no order; each slot once."""
        while self._position < len(self._waiting):
            with self._lock:
                stop = self._position + PIECE_SLOTS
                slots = self._position + np.flatnonzero(self._waiting[self._position : stop])
                piece = self._copied(slots)
                self._position = stop
            # Not within the lock: other threads can change slots while this piece is written.
            yield from piece
        yield from self._saved

    def _copied(self, slots: Slots) -> list[pa.RecordBatch]:
        """The slots among these that wait, each once."""
        if not len(slots):
            return []
        self._waiting[slots] = False
        return [self._copy(slots)]


Trim = Callable[[Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]]
"""Leaves out of keys and values what is not to be stored."""


class FrozenKeys:
    """Some keys of a dict of state, which may be gone from it. `pack` makes a piece of keys and values.

    Pieces are cut by a hash of the key, so that it can be told of any key whether its piece was copied
    without a set of all of them.
    """

    def __init__(
        self,
        table: Mapping[Any, Any],
        keys: Collection[Any],
        only: Set[Any] | None,
        pack: Callable[[Sequence[Any], Sequence[Any]], bytes],
        trim: Trim | None = None,
    ) -> None:
        """`only` are the keys as a set, None if they are all that the table has."""
        self._trim = trim
        self._table = table
        self._keys = keys
        self._only = only
        self._pack = pack
        self._count = -(-len(keys) // PIECE_KEYS)
        self._position = 0
        """Pieces before this one were copied."""
        self._changed: set[Any] = set()
        """Keys that have changed since, and were saved before if it was not their turn yet."""
        self._saved: list[bytes] = []
        self.gone: list[Any] = []
        """Keys of which there is nothing to store. They are known once all pieces are copied."""
        self._lock = threading.Lock()

    def before_change(self, keys: Collection[Any]) -> None:
        """Copy these keys first if their turn has not come, because their state is about to change."""
        changing = set(keys) - self._changed
        if not changing:
            return
        with self._lock:
            self._changed |= changing
            own = changing if self._only is None else changing & self._only
            self._saved += self._packed([key for key in own if self._waits(key)])

    def complete(self) -> None:
        """Copy the rest at once."""
        with self._lock:
            if self._position < self._count:
                rest = [key for key in self._keys if key not in self._changed and self._waits(key)]
                self._saved += self._packed(rest)
                self._position = self._count

    def pieces(self) -> Iterator[bytes]:
        """All keys with their values, packed; each key once."""
        if self._position < self._count:
            yield from self._copied_in_turn()
        yield from self._saved

    def _copied_in_turn(self) -> Iterator[bytes]:
        pieces: list[list[Any]] = [[] for _ in range(self._count)]
        for key in self._keys:
            pieces[self._piece(key)].append(key)
        while self._position < self._count:
            with self._lock:
                if self._position == self._count:
                    return
                piece = pieces[self._position]
                packed = self._packed([key for key in piece if key not in self._changed])
                self._position += 1
            yield from packed

    def _waits(self, key: Any) -> bool:
        return self._piece(key) >= self._position if self._position else True

    def _piece(self, key: Any) -> int:
        # The hash of a tuple is mixed, that of a number is the number.
        return hash((key,)) % self._count

    def _packed(self, keys: Sequence[Any]) -> list[bytes]:
        table = self._table
        there: Sequence[Any] = [key for key in keys if key in table]
        values: Sequence[Any] = [table[key] for key in there]
        if self._trim is not None:
            there, values = self._trim(there, values)
        if self._only is not None and len(there) < len(keys):
            kept = set(there)
            self.gone += [key for key in keys if key not in kept]
        return [
            self._pack(there[i : i + PIECE_KEYS], values[i : i + PIECE_KEYS])
            for i in range(0, len(there), PIECE_KEYS)
        ]
