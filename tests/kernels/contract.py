"""What every implementation of the kernels must do, as code that shares nothing with any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minirt.data import hashing
from minirt.kernels.contract import EMPTY

NUMBERS = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1]))
FEW = st.lists(st.integers(0, 5).map(lambda high: high << 61), max_size=40)
"""Hashes that want few places of a table."""


FLOATS = (0.0, -0.0, 0.1, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 5e-324)


def numbers(values: Sequence[int]) -> Any:
    array = np.array(values, np.uint64)
    array.flags.writeable = False  # As those of Arrow.
    return array


def unaligned(array: Any) -> Any:
    """The same numbers, as they may lie in a frame."""
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)


def check_mix(kernels: Any, values: Sequence[int]) -> None:
    hashes = kernels.mix(numbers(values), hashing.INT)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [hashing.mix(value, hashing.INT) for value in values]
    assert kernels.mix(numbers(values)[::2], hashing.DATE).tolist() == [
        hashing.mix(value, hashing.DATE) for value in values[::2]
    ]
    assert kernels.mix(unaligned(numbers(values)), 7).tolist() == [
        hashing.mix(value, 7) for value in values
    ]


def check_hash_pieces(kernels: Any, pieces: Sequence[bytes]) -> None:
    """The first piece begins in the middle of the data, as in a slice of a column."""
    data = np.frombuffer(b"before" + b"".join(pieces) + b"after", np.uint8)
    offsets = 6 + np.cumsum([0, *map(len, pieces)])
    hashes = kernels.hash_pieces(data, offsets, hashing.TEXT)
    assert hashes.tolist() == [hashing.hash_bytes(piece, hashing.TEXT) for piece in pieces]
    again = kernels.hash_pieces(data, unaligned(offsets), hashing.TEXT)
    assert again.tolist() == hashes.tolist()


def check_same_pieces(kernels: Any, pieces: Sequence[bytes]) -> None:
    """Each piece with itself, and with one that lies elsewhere, in data of another order."""
    turned = [*reversed(pieces)]
    known = np.frombuffer(b"".join(turned), np.uint8)
    known_offsets = np.cumsum([0, *map(len, turned)])
    data = np.frombuffer(b"before" + b"".join(pieces), np.uint8)
    offsets = 6 + np.cumsum([0, *map(len, pieces)])
    for moved in (0, 1, 5):
        slots = (np.arange(len(pieces))[::-1].copy() + moved) % max(1, len(pieces))
        same = kernels.same_pieces(known, known_offsets, slots, data, unaligned(offsets))
        expected = [turned[at] == piece for at, piece in zip(slots, pieces, strict=True)]
        assert same.tolist() == expected


def check_hash_tuples(kernels: Any, values: Sequence[int]) -> None:
    for count in (0, 1, 2, 3):
        hashes = kernels.hash_tuples([numbers(values)] * count, len(values))
        assert hashes.tolist() == [hashing.hash_tuple([value] * count) for value in values]


def check_targets(kernels: Any, values: Sequence[int]) -> None:
    for groups, receivers in ((128, 2), (1, 1), (100, 7), (32768, 300)):
        owners = (np.arange(groups) * receivers // groups).astype(np.min_scalar_type(receivers - 1))
        targets = kernels.targets(numbers(values), owners)
        assert targets.dtype == owners.dtype
        assert targets.tolist() == [int(owners[value % groups]) for value in values]


def check_order(kernels: Any, values: Sequence[int]) -> None:
    for receivers in (1, 2, 7, 300):
        chosen = [value % receivers for value in values]
        targets = np.array(chosen, np.min_scalar_type(receivers - 1))
        order, counts = kernels.order(targets, receivers)
        assert order.tolist() == sorted(range(len(chosen)), key=chosen.__getitem__)
        assert counts.tolist() == [chosen.count(receiver) for receiver in range(receivers)]


def check_table(kernels: Any, values: Sequence[int]) -> None:
    """Adds the hashes in two parts, with a key between that has a slot and is in no table, then moves to
    a larger table."""
    places, half = 2 << max(1, len(values).bit_length()), len(values) // 2
    table, known = np.full(places, EMPTY, np.int32), np.zeros(len(values) + 1, np.uint64)
    slot_of: dict[int, int] = {}
    count = 0
    for part in (values[:half], values[half:]):
        found = kernels.find(table, known, numbers(part))
        assert found.tolist() == [slot_of.get(value, EMPTY) for value in part]
        first = {value: row for row, value in reversed([*enumerate(part)]) if value not in slot_of}
        slots, rows = kernels.add(table, known, count, numbers(part))
        assert rows.tolist() == sorted(first.values())
        slot_of |= {part[row]: slot for slot, row in enumerate(rows.tolist(), count)}
        assert slots.tolist() == [slot_of[value] for value in part]
        assert all(known[slot] == value for value, slot in slot_of.items())
        count += len(rows) + 1
    table = np.full(2 * places, EMPTY, np.int32)
    kernels.enlist(table, known, np.array(sorted(slot_of.values()), np.intp))
    assert sorted(table[table != EMPTY].tolist()) == sorted(slot_of.values())
    assert kernels.find(table, known, numbers(values)).tolist() == [slot_of[v] for v in values]


def check_add_up(kernels: Any, values: Sequence[int]) -> None:
    """Whole numbers wrap around; floats are added in their order, which their sums tell."""
    slots = np.array([value % 7 for value in values], np.intp)
    added = {
        np.uint64: [*values],
        np.int64: numbers(values).view(np.int64).tolist(),
        np.float64: [FLOATS[value % len(FLOATS)] for value in values],
    }
    for dtype, given in added.items():
        sums, known = np.zeros(9, dtype), np.zeros(9, np.bool_)
        kernels.add_up(sums, known, slots, unaligned(np.array(given, dtype)))
        expected: list[Any] = [0.0 if dtype is np.float64 else 0] * 9
        for slot, number in zip(slots.tolist(), given, strict=True):
            expected[slot] += number
        if dtype is not np.float64:
            wrapped = np.array([sum % 2**64 for sum in expected], np.uint64)
            expected = wrapped.view(dtype).tolist()
        assert [repr(one) for one in sums.tolist()] == [repr(one) for one in expected]
        assert set(np.flatnonzero(known).tolist()) == set(slots.tolist())


def check_newest(kernels: Any, values: Sequence[int]) -> None:
    slots = np.array([value % 50 for value in values], np.intp)
    rows = np.full(50, len(values) - 1, np.intp)
    last = {slot: row for row, slot in enumerate(slots.tolist())}
    assert kernels.newest(slots, rows).tolist() == sorted(last, key=last.__getitem__)


def check_renumber(kernels: Any, values: Sequence[int]) -> None:
    for one_in in (2, 40):
        chosen = np.array([value // 6 % one_in == 0 for value in values], np.bool_)
        numbers = np.array([*(value % 6 - 1 for value in values), 3, 3], np.int32)
        before = numbers.tolist()
        counts = kernels.renumber(chosen, numbers, 5, 6)
        had = [number for number, one in zip(before, chosen, strict=False) if one]
        assert counts.tolist() == [had.count(number) for number in range(6)]
        expected = [5 if one else number for number, one in zip(before, chosen, strict=False)]
        assert numbers.tolist() == [*expected, 3, 3]


CHECKS: dict[str, tuple[Callable[..., None], st.SearchStrategy[Any]]] = {
    "mix": (check_mix, NUMBERS),
    "hash_pieces": (check_hash_pieces, st.lists(st.binary(max_size=20))),
    "same_pieces": (check_same_pieces, st.lists(st.binary(max_size=3) | st.binary(max_size=40))),
    "hash_tuples": (check_hash_tuples, NUMBERS),
    "targets": (check_targets, NUMBERS),
    "order": (check_order, NUMBERS),
    "find": (check_table, NUMBERS | FEW),
    "add": (check_table, NUMBERS | FEW),
    "enlist": (check_table, NUMBERS | FEW),
    "add_up": (check_add_up, NUMBERS),
    "newest": (check_newest, NUMBERS | FEW),
    "renumber": (check_renumber, NUMBERS),
}
"""The check of each kernel, and what it is to be tried with."""


ON_PIECES = ("hash_pieces", "same_pieces")


def wrong_in_one_lane(kernels: Any, name: str) -> Any:
    """The same kernels, of which one is wrong in the last of each eight rows."""
    right = getattr(kernels, name)

    def wrong(*given: Any) -> Any:
        made = right(*given)
        if name == "add_up":
            given[0][given[2][7::8]] += 1
            return made
        if name == "renumber":
            given[1][7::8] += 1
            return made
        if name == "enlist":
            table = given[0]
            table[np.flatnonzero(table != EMPTY)[7::8]] = EMPTY
            return made
        first, *others = made if isinstance(made, tuple) else (made,)
        first = first.copy()  # Arrow's are read-only.
        first[7::8] ^= first.dtype.type(1)
        return (first, *others) if others else first

    return SimpleNamespace(**{each: getattr(kernels, each) for each in CHECKS} | {name: wrong})
