"""The kernels with numpy: each looks at a whole batch at once, as often as it must.

A hash table is probed in rounds, of which each looks at one place for every hash that is not yet found.
Source of the method: Knuth, "The Art of Computer Programming", vol. 3, 6.4, algorithm L.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.data.hashing import U64, hash_tuples
from minirt.data.hashing import hash_buffer as hash_pieces
from minirt.data.hashing import mix_array as mix
from minirt.kernels.contract import EMPTY, Slots, Table, Targets

__all__ = [
    "add",
    "add_up",
    "enlist",
    "find",
    "hash_pieces",
    "hash_tuples",
    "mix",
    "newest",
    "order",
    "renumber",
    "same_pieces",
    "targets",
]

_FIRST_CLAIM = EMPTY - 1
_FEW_RECEIVERS = 3
"""Of so many, a pass for each takes less than sorting."""


def same_pieces(
    known: npt.NDArray[np.uint8],
    known_offsets: npt.NDArray[np.int64],
    slots: Slots,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Arrow compares them."""
    there = _bytes_column(known, known_offsets).take(pa.array(slots))
    same: npt.NDArray[np.bool_]
    same = pc.equal(there, _bytes_column(data, offsets)).to_numpy(zero_copy_only=False)
    return same


def _bytes_column(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def targets(hashes: U64, owners: Targets) -> Targets:
    groups = len(owners)
    # The second is the same for powers of two, in a tenth of the time.
    divided = groups & (groups - 1)
    owner: Targets = owners[
        hashes % np.uint64(groups) if divided else hashes & np.uint64(groups - 1)
    ]
    return owner


def order(targets: Targets, receivers: int) -> tuple[Slots, npt.NDArray[np.intp]]:
    if receivers <= _FEW_RECEIVERS:
        rows = [np.flatnonzero(targets == receiver) for receiver in range(receivers)]
        return np.concatenate(rows), np.array([*map(len, rows)])
    return np.argsort(targets, kind="stable"), np.bincount(targets, minlength=receivers)


def find(table: Table, known: U64, hashes: U64) -> Slots:
    places = _places(table, hashes)
    slots: Slots = table[places].astype(np.intp)
    # An empty place says -1, the last slot: it is not looked at.
    wanted = np.flatnonzero((slots >= 0) & (known[slots] != hashes))
    while len(wanted):
        places[wanted] = (places[wanted] + 1) & (len(table) - 1)
        slots[wanted] = found = table[places[wanted]].astype(np.intp)
        wanted = wanted[(found >= 0) & (known[found] != hashes[wanted])]
    return slots


def add(table: Table, known: U64, count: int, hashes: U64) -> tuple[Slots, Slots]:
    slots: Slots = np.empty(len(hashes), np.intp)
    # Backwards: of several rows that claim a place numpy lets the last one win, so the first row of a hash.
    wanted = np.arange(len(hashes))[::-1]
    places = _places(table, hashes[wanted])
    added: list[Slots] = []
    taken: list[Slots] = []
    end = count
    while len(wanted):
        free = np.flatnonzero(table[places] < 0)
        if len(free):
            winners = free[_claim(table, places[free])]
            new = np.arange(end, end + len(winners))
            table[places[winners]] = new
            known[new] = hashes[wanted[winners]]
            added.append(wanted[winners])
            taken.append(places[winners])
            end += len(winners)
        found = table[places].astype(np.intp)
        right = known[found] == hashes[wanted]
        slots[wanted[right]] = found[right]
        wanted = wanted[~right]
        places = (places[~right] + 1) & (len(table) - 1)
    if end == count:
        return slots, np.empty(0, np.intp)
    rows = np.concatenate(added)
    appeared = np.argsort(rows)
    rows, new = rows[appeared], np.arange(count, end)
    table[np.concatenate(taken)[appeared]] = new
    known[new] = hashes[rows]
    renumbered = np.empty(end - count, np.intp)
    renumbered[appeared] = new
    late = slots >= count
    slots[late] = renumbered[slots[late] - count]
    return slots, rows


def enlist(table: Table, known: U64, slots: Slots) -> None:
    places = _places(table, known[slots])
    while len(slots):
        free = np.flatnonzero(table[places] < 0)
        table[places[free]] = slots[free]
        lost = table[places] != slots
        slots = slots[lost]
        places = (places[lost] + 1) & (len(table) - 1)


def add_up(
    sums: npt.NDArray[Any], known: npt.NDArray[np.bool_], slots: Slots, numbers: npt.NDArray[Any]
) -> None:
    with np.errstate(over="ignore", invalid="ignore"):  # Floats become infinite, as everywhere.
        np.add.at(sums, slots, numbers)
    known[slots] = True


def newest(slots: Slots, rows: Slots) -> Slots:
    own = np.arange(len(slots))
    rows[slots] = own
    last: Slots = slots[rows[slots] == own]
    return last


def renumber(
    chosen: npt.NDArray[np.bool_], numbers: npt.NDArray[np.int32], number: int, kinds: int
) -> Slots:
    places = np.flatnonzero(chosen)
    counts: Slots = np.bincount(numbers[places] + 1, minlength=kinds + 1)[1:]
    numbers[places] = number
    return counts


def _claim(table: Table, places: Slots) -> npt.NDArray[np.bool_]:
    """Which of those that want these free places get theirs, each place one of them."""
    claims = np.arange(_FIRST_CLAIM, _FIRST_CLAIM - len(places), -1, dtype=np.int32)
    table[places] = claims
    got: npt.NDArray[np.bool_] = table[places] == claims
    return got


def _places(table: Table, hashes: U64) -> Slots:
    """Where to look first. The low bits of a hash tell the key group, which is the same for many."""
    return (hashes >> np.uint64(65 - len(table).bit_length())).astype(np.intp)
