"""The kernels compiled by numba: each looks at one record after the other.

They are compiled for the types below when this module is imported, or read from numba's cache, and for no
others later: no batch ever waits for a compiler. Raises RuntimeError where numba finds no folder for its
cache, which is `NUMBA_CACHE_DIR`, the folder of this file, or that of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from minirt.data import hashing
from minirt.data.hashing import U64
from minirt.kernels.contract import Slots, Table, Targets

Function = TypeVar("Function", bound=Callable[..., Any])
Array = TypeVar("Array", bound=npt.NDArray[Any])


def _given(kind: Any) -> Any:
    """An array that a kernel only reads: Arrow's are read-only."""
    return types.Array(kind, 1, "C", readonly=True)


def _written(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


_U8, _U16, _U32, _U64 = types.uint8, types.uint16, types.uint32, types.uint64
_I32, _I64 = types.int32, types.int64


def _compiled(*signatures: Any) -> Callable[[Function], Function]:
    compile: Callable[[Function], Function] = numba.njit(list(signatures), cache=True, nogil=True)
    return compile


_SHIFT = np.uint64(33)
_MIX_1, _MIX_2 = np.uint64(hashing.MIX_1), np.uint64(hashing.MIX_2)
_LENGTH, _CHAIN = np.uint64(hashing.LENGTH), np.uint64(hashing.CHAIN)
_TUPLE = np.uint64(hashing.TUPLE)
_NEXT_STRETCH = np.uint64(pow(hashing.BASE, hashing.STRETCH, 2**64))


@_compiled(_U64(_U64, _U64))
def _mix(value: Any, kind: Any) -> Any:
    value ^= kind
    value = (value ^ (value >> _SHIFT)) * _MIX_1
    value = (value ^ (value >> _SHIFT)) * _MIX_2
    return value ^ (value >> _SHIFT)


@_compiled(types.void(_given(_U64), _U64, _written(_U64)))
def _mix_all(values: Any, kind: Any, hashes: Any) -> Any:
    for row in range(len(values)):
        hashes[row] = _mix(values[row], kind)


@_compiled(types.void(_given(_U8), _given(_I64), _given(_U64), _U64, _written(_U64)))
def _hash_all_pieces(data: Any, offsets: Any, powers: Any, kind: Any, hashes: Any) -> Any:
    # Without signs: a place below zero would have to be looked for at each.
    one, stretch = np.uint64(1), np.uint64(len(powers))
    for row in range(len(hashes)):
        place, stop = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        total, scale = (stop - place) * _LENGTH, one
        while place < stop:
            part, power, end = np.uint64(0), np.uint64(0), min(stop, place + stretch)
            while place < end:
                part += np.uint64(data[place]) * powers[power]
                place += one
                power += one
            total += part * scale
            scale *= _NEXT_STRETCH
        hashes[row] = _mix(total, kind)


_WORD_BYTES = np.uint64(8)


@_compiled(_U64(_given(_U8), _U64))
def _word(data: Any, place: Any) -> Any:
    """The eight bytes from a place on. The compiler makes one load of it."""
    word = np.uint64(0)
    for byte in range(8):
        word |= np.uint64(data[place + np.uint64(byte)]) << np.uint64(8 * byte)
    return word


@_compiled(
    types.void(
        *(_given(_U8), _given(_I64), _given(_I64), _given(_U8), _given(_I64)),
        _written(types.boolean),
    )
)
def _compare(known: Any, known_offsets: Any, slots: Any, data: Any, offsets: Any, same: Any) -> Any:
    one = np.uint64(1)
    for row in range(len(slots)):
        slot = np.uint64(slots[row])
        there, end = np.uint64(known_offsets[slot]), np.uint64(known_offsets[slot + one])
        here, stop = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        equal = end - there == stop - here
        if equal and end - there >= _WORD_BYTES:
            # Words as long as there are more than one left, and the last bytes as a word of their own. So
            # little work for each row lets the processor look for the next ones in memory meanwhile.
            while equal and end - there > _WORD_BYTES:
                equal = _word(known, there) == _word(data, here)
                there += _WORD_BYTES
                here += _WORD_BYTES
            equal = equal and _word(known, end - _WORD_BYTES) == _word(data, stop - _WORD_BYTES)
        else:
            while equal and there < end:
                equal = known[there] == data[here]
                there += one
                here += one
        same[row] = equal


@_compiled(types.void(_written(_U64), _given(_U64)))
def _chain(hashes: Any, column: Any) -> Any:
    for row in range(len(hashes)):
        hashes[row] = _mix(hashes[row] * _CHAIN + column[row], _TUPLE)


_TARGET_TYPES = (_U8, _U16, _U32)


@_compiled(*(types.void(_given(_U64), _given(t), _written(t)) for t in _TARGET_TYPES))
def _own(hashes: Any, owners: Any, targets: Any) -> Any:
    groups = np.uint64(len(owners))
    if groups & (groups - np.uint64(1)):
        for row in range(len(hashes)):
            targets[row] = owners[hashes[row] % groups]
    else:  # The same for powers of two, without a division.
        for row in range(len(hashes)):
            targets[row] = owners[hashes[row] & (groups - np.uint64(1))]


_FEW_RECEIVERS = 3


@_compiled(*(types.void(_given(t), _written(_I64), _written(_I64)) for t in _TARGET_TYPES))
def _order(targets: Any, counts: Any, order: Any) -> Any:
    for row in range(len(targets)):
        counts[targets[row]] += 1
    places = np.empty(len(counts), np.int64)
    place = 0
    for receiver in range(len(counts)):
        places[receiver] = place
        place += counts[receiver]
    for row in range(len(targets)):
        receiver = targets[row]
        order[places[receiver]] = row
        places[receiver] += 1


@_compiled(*(types.void(_given(t), _written(_I64), _written(_I64)) for t in _TARGET_TYPES))
def _order_for_few(targets: Any, counts: Any, order: Any) -> Any:
    # As many passes as receivers: a place that was just written to memory takes long to be read again, as
    # it would be where most records go to one of few. What a pass writes behind its end the next one
    # overwrites, so `order` has room for one more.
    place = np.uint64(0)
    for receiver in range(len(counts)):
        first = place
        for row in range(len(targets)):
            order[place] = row
            place += np.uint64(targets[row] == receiver)
        counts[receiver] = place - first


@_compiled(_U64(_given(_I32), _given(_U64), _U64, _U64))
def _place(table: Any, known: Any, hash: Any, shift: Any) -> Any:
    """Where a hash is, or the empty place where it belongs."""
    place, last = hash >> shift, np.uint64(len(table) - 1)
    slot = table[place]
    while slot >= 0 and known[np.uint64(slot)] != hash:
        place = (place + np.uint64(1)) & last
        slot = table[place]
    return place


@_compiled(types.void(_given(_I32), _given(_U64), _given(_U64), _U64, _written(_I64)))
def _find(table: Any, known: Any, hashes: Any, shift: Any, slots: Any) -> Any:
    for row in range(len(hashes)):
        slots[row] = table[_place(table, known, hashes[row], shift)]


@_compiled(
    _I64(_written(_I32), _written(_U64), _I64, _given(_U64), _U64, _written(_I64), _written(_I64))
)
def _add(table: Any, known: Any, count: Any, hashes: Any, shift: Any, slots: Any, rows: Any) -> Any:
    added = 0
    for row in range(len(hashes)):
        place = _place(table, known, hashes[row], shift)
        if table[place] < 0:
            table[place] = count + added
            known[count + added] = hashes[row]
            rows[added] = row
            added += 1
        slots[row] = table[place]
    return added


@_compiled(types.void(_written(_I32), _given(_U64), _given(_I64), _U64))
def _enlist(table: Any, known: Any, slots: Any, shift: Any) -> Any:
    for row in range(len(slots)):
        table[_place(table, known, known[slots[row]], shift)] = slots[row]


_SUM_TYPES = (_I64, _U64, types.float64)


@_compiled(
    *(types.void(_written(t), _written(types.boolean), _given(_I64), _given(t)) for t in _SUM_TYPES)
)
def _add_up(sums: Any, known: Any, slots: Any, numbers: Any) -> Any:
    for row in range(len(slots)):
        slot = np.uint64(slots[row])
        sums[slot] += numbers[row]
        known[slot] = True


@_compiled(_I64(_given(_I64), _written(_I64), _written(_I64)))
def _newest(slots: Any, rows: Any, newest: Any) -> Any:
    for row in range(len(slots)):
        rows[np.uint64(slots[row])] = row
    count = 0
    for row in range(len(slots)):
        if rows[np.uint64(slots[row])] == row:
            newest[count] = slots[row]
            count += 1
    return count


_LANES = 8


@_compiled(types.void(_given(types.boolean), _written(_I32), _I32, types.Array(_I64, 2, "C")))
def _renumber(chosen: Any, numbers: Any, number: Any, counts: Any) -> Any:
    # Few places are chosen, or which ones cannot be foretold: so eight are passed over at once, or none is
    # branched for. Each lane has counts of its own, as one that was just written takes long to be read.
    whole = len(chosen) - len(chosen) % _LANES
    for first in range(0, whole, _LANES):
        any = False
        for lane in range(_LANES):
            any |= chosen[first + lane]
        if any:
            for lane in range(_LANES):
                place = first + lane
                had = numbers[place]
                counts[lane, had + 1] += chosen[place]
                numbers[place] = number if chosen[place] else had
    for place in range(whole, len(chosen)):
        counts[0, numbers[place] + 1] += chosen[place]
        if chosen[place]:
            numbers[place] = number


def mix(values: U64, kind: int) -> U64:
    hashes = np.empty(len(values), np.uint64)
    _mix_all(_plain(values), np.uint64(kind), hashes)
    return hashes


def hash_pieces(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: int) -> U64:
    hashes = np.empty(len(offsets) - 1, np.uint64)
    _hash_all_pieces(data, _plain(offsets), hashing.POWERS, np.uint64(kind), hashes)
    return hashes


def same_pieces(
    known: npt.NDArray[np.uint8],
    known_offsets: npt.NDArray[np.int64],
    slots: Slots,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    same = np.empty(len(slots), np.bool_)
    _compare(known, known_offsets, slots, data, _plain(offsets), same)
    return same


def hash_tuples(columns: Sequence[U64], count: int) -> U64:
    hashes = np.full(count, len(columns), np.uint64)
    for column in columns:
        _chain(hashes, _plain(column))
    return mix(hashes, hashing.TUPLE)


def targets(hashes: U64, owners: Targets) -> Targets:
    targets = np.empty(len(hashes), owners.dtype)
    _own(hashes, owners, targets)
    return targets


def order(targets: Targets, receivers: int) -> tuple[Slots, npt.NDArray[np.intp]]:
    counts, order = np.zeros(receivers, np.intp), np.empty(len(targets) + 1, np.intp)
    (_order_for_few if receivers <= _FEW_RECEIVERS else _order)(targets, counts, order)
    return order[:-1], counts


def find(table: Table, known: U64, hashes: U64) -> Slots:
    slots = np.empty(len(hashes), np.intp)
    _find(table, known, hashes, _shift(table), slots)
    return slots


def add(table: Table, known: U64, count: int, hashes: U64) -> tuple[Slots, Slots]:
    slots, rows = np.empty(len(hashes), np.intp), np.empty(len(hashes), np.intp)
    added = _add(table, known, count, hashes, _shift(table), slots, rows)
    return slots, rows[:added]


def enlist(table: Table, known: U64, slots: Slots) -> None:
    _enlist(table, known, slots, _shift(table))


def add_up(
    sums: npt.NDArray[Any], known: npt.NDArray[np.bool_], slots: Slots, numbers: npt.NDArray[Any]
) -> None:
    _add_up(sums, known, slots, _plain(numbers))


def newest(slots: Slots, rows: Slots) -> Slots:
    newest = np.empty(len(slots), np.intp)
    return newest[: _newest(slots, rows, newest)]


def renumber(
    chosen: npt.NDArray[np.bool_], numbers: npt.NDArray[np.int32], number: int, kinds: int
) -> Slots:
    counts = np.zeros((_LANES, kinds + 1), np.intp)
    _renumber(chosen, numbers, np.int32(number), counts)
    total: Slots = counts.sum(axis=0)[1:]
    return total


def _plain(array: Array) -> Array:
    """An array as the signatures want it: those of Arrow may lie anywhere in a frame."""
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy()


def _shift(table: Table) -> np.uint64:
    """The highest bits of a hash are left, which name a place."""
    return np.uint64(65 - len(table).bit_length())
