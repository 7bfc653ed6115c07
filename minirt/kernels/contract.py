"""What kernels do. All implementations give the same results, bit by bit.

Hashes are part of the format of checkpoints, and the order of slots decides the order of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from minirt.data.hashing import U64

Slots = npt.NDArray[np.intp]
Targets = npt.NDArray[np.integer[Any]]
"""For each record of a batch, the index of its receiver."""
Table = npt.NDArray[np.int32]
"""Of a length that is a power of two: slots at the places of their hashes, EMPTY elsewhere."""

EMPTY = -1


class Kernels(Protocol):
    """One implementation of all kernels; a module is one. Arrays that are given are not changed, except
    where it says so.

    A hash table is a pair: `table`, and `known`, the hash of each slot. A hash is looked for from the place
    that its highest bits name, one place after the other, until it or an empty place is found.
    """

    def mix(self, values: U64, kind: int) -> U64:
        """`hashing.mix` of each number."""

    def hash_pieces(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: int
    ) -> U64:
        """`hashing.hash_bytes` of the pieces of `data` between each two offsets, which ascend."""

    def same_pieces(
        self,
        known: npt.NDArray[np.uint8],
        known_offsets: npt.NDArray[np.int64],
        slots: Slots,
        data: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Whether each piece of `data` is equal to the one of `known` whose place `slots` names."""

    def hash_tuples(self, columns: Sequence[U64], count: int) -> U64:
        """`hashing.hash_tuple` of `count` tuples, given the hashes of their elements by position."""

    def targets(self, hashes: U64, owners: Targets) -> Targets:
        """The owner of each hash: `owners` names one for each key group."""

    def order(self, targets: Targets, receivers: int) -> tuple[Slots, npt.NDArray[np.intp]]:
        """The records by ascending receiver, those of one in their order; how many each receiver gets."""

    def find(self, table: Table, known: U64, hashes: U64) -> Slots:
        """The slot of each hash; EMPTY for those that are not in the table."""

    def add(self, table: Table, known: U64, count: int, hashes: U64) -> tuple[Slots, Slots]:
        """The slot of each hash, those not in the table added to it and to `known`; and their first rows.

        They get the slots from `count` on, in the order in which they appear. `table` keeps an empty place
        and `known` has room even if no hash is in it.
        """

    def enlist(self, table: Table, known: U64, slots: Slots) -> None:
        """Add these slots, whose hashes all differ, to a table that has none of them."""

    def add_up(
        self,
        sums: npt.NDArray[Any],
        known: npt.NDArray[np.bool_],
        slots: Slots,
        numbers: npt.NDArray[Any],
    ) -> None:
        """Add each number to the sum in its slot, one after the other, and mark these slots as known.

        Sums and numbers are of one type: int64 or uint64, which wrap around, or float64. None warns.
        """

    def newest(self, slots: Slots, rows: Slots) -> Slots:
        """Each slot once, where it comes last. `rows` has room for each slot, and is overwritten."""

    def renumber(
        self,
        chosen: npt.NDArray[np.bool_],
        numbers: npt.NDArray[np.int32],
        number: int,
        kinds: int,
    ) -> Slots:
        """Give each chosen place this number; how many of them had each number below `kinds` before.

        Numbers are below `kinds`, or -1, which is not counted. There may be more of them than places.
        """
