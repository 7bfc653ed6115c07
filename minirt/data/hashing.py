"""The arithmetic of key hashes, once for single ints and once for numpy arrays of them.

Everything is modulo 2**64. The numbers below are part of the format of checkpoints, as they decide
which subtask finds the state of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

import numpy as np
import numpy.typing as npt

from minirt.errors import MinirtError

U64 = npt.NDArray[np.uint64]

_MASK = 2**64 - 1
MIX_1 = 0xFF51AFD7ED558CCD
MIX_2 = 0xC4CEB9FE1A85EC53
LENGTH = 0x9E3779B97F4A7C15
CHAIN = 0xD6E8FEB86659FD93

INT = 0x2545F4914F6CDD1D
BIG_INT = 0x8CB92BA72F3D8DD7
TEXT = 0xA0761D6478BD642F
BYTES = 0xE7037ED1A0B428DB
DATE = 0x589965CC75374CC3
DATETIME = 0x1D8E4E27C47D124F
UUID_KIND = 0xEB44ACCAB455D165
TUPLE = 0x72BE5D74F27B896F

BASE = 0x5851F42D4C957F2D
STRETCH = 1 << 16
_SHORT = 64


def _powers_of(base: int) -> U64:
    factors = np.full(STRETCH, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


POWERS = _powers_of(BASE)
_INVERSE_POWERS = _powers_of(pow(BASE, -1, 2**64))
_SHORT_POWERS: list[int] = POWERS[:_SHORT].tolist()


class UnstableKeyError(MinirtError):
    """A key, or a column of keys, has a type without a hash that is the same everywhere."""


def mix(value: int, kind: int) -> int:
    """Spread a number over all 64 bits, differently for every kind."""
    value = (value ^ kind) & _MASK
    value = ((value ^ (value >> 33)) * MIX_1) & _MASK
    value = ((value ^ (value >> 33)) * MIX_2) & _MASK
    return value ^ (value >> 33)


def mix_array(values: U64, kind: int) -> U64:
    """As `mix`, for each number of an array."""
    shift = np.uint64(33)
    result = values ^ np.uint64(kind)
    result ^= result >> shift
    result *= np.uint64(MIX_1)
    result ^= result >> shift
    result *= np.uint64(MIX_2)
    result ^= result >> shift
    return result


def unmix_array(hashes: U64, kind: int) -> U64:
    """The numbers of which `mix_array` makes these hashes: there is one for each."""
    shift = np.uint64(33)
    result = hashes ^ (hashes >> shift)
    result *= np.uint64(pow(MIX_2, -1, 2**64))
    result ^= result >> shift
    result *= np.uint64(pow(MIX_1, -1, 2**64))
    result ^= result >> shift
    result ^= np.uint64(kind)
    return result


def hash_bytes(data: bytes, kind: int) -> int:
    """The hash of some bytes; of the kinds, TEXT is for UTF-8."""
    return mix(_polynomial(data) + len(data) * LENGTH, kind)


def hash_buffer(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: int) -> U64:
    """As `hash_bytes`, for the pieces of a buffer between each two offsets."""
    starts, ends = offsets[:-1], offsets[1:]
    sums = np.empty(len(starts), np.uint64)
    row = 0
    while row < len(starts):
        base = int(starts[row])
        stop = int(np.searchsorted(ends, base + STRETCH, side="right"))
        if stop <= row:
            sums[row] = _polynomial(data[base : ends[row]].tobytes())
            row += 1
            continue
        # Every piece's sum is a difference of running sums, moved back to power 0.
        terms = data[base : ends[stop - 1]] * POWERS[: ends[stop - 1] - base]
        running = np.zeros(len(terms) + 1, np.uint64)
        np.cumsum(terms, out=running[1:])
        first, last = starts[row:stop] - base, ends[row:stop] - base
        # An empty piece may begin where the table ends; any power will do for it.
        back = _INVERSE_POWERS[np.minimum(first, STRETCH - 1)]
        sums[row:stop] = (running[last] - running[first]) * back
        row = stop
    lengths = (ends - starts).astype(np.uint64)
    return mix_array(sums + lengths * np.uint64(LENGTH), kind)


def hash_tuple(elements: list[int]) -> int:
    """The hash of a tuple whose elements have these hashes."""
    result = len(elements)
    for element in elements:
        result = mix(result * CHAIN + element, TUPLE)
    return mix(result, TUPLE)


def hash_tuples(columns: Sequence[U64], count: int) -> U64:
    """As `hash_tuple`, for `count` tuples, given the hashes of their elements by position."""
    result = np.full(count, len(columns), np.uint64)
    for column in columns:
        result = mix_array(result * np.uint64(CHAIN) + column, TUPLE)
    return mix_array(result, TUPLE)


def _polynomial(data: bytes) -> int:
    """The sum of byte i times the i-th power of the base."""
    if len(data) <= _SHORT:
        short: int = sum(map(mul, data, _SHORT_POWERS))
        return short & _MASK
    total = 0
    for start in range(0, len(data), STRETCH):
        block = np.frombuffer(data[start : start + STRETCH], np.uint8)
        total += int(np.sum(block * POWERS[: len(block)])) * pow(BASE, start, 2**64)
    return total & _MASK


NONE_HASH = mix(0, 0x2D358DCCAA6C78A5)
