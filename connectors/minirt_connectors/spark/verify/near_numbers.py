"""Pairs numbers of the output with expected ones that are near enough.

It stands alone, as `json_values` does.
Numbers are texts, and count as what they say: 1.01 is 0.01 away from 1.0, also as doubles.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

_DIGITS = Context(prec=800)
_SLACK = 1e-6
"""Doubles only say where a run of near numbers may end: a bit later does no harm."""
_INFINITIES = {"Infinity", "-Infinity"}

Numbers = tuple[str | None, ...]
"""The numbers of one row, in the order of the columns with a tolerance."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The largest difference that counts as none: a number, and a share of the expected number."""

    absolute: Decimal
    share: Decimal

    def near(self, number: str | None, expected: str | None) -> bool:
        if number == expected or number is None or expected is None:
            return number == expected
        if "NaN" in (number, expected) or _INFINITIES & {number, expected}:
            return False
        there, wanted = Decimal(number), Decimal(expected)
        gap = abs(_DIGITS.subtract(there, wanted))
        return bool(gap <= self.absolute or gap <= _DIGITS.multiply(abs(wanted), self.share))

    def reach(self, number: float) -> float:
        """How far from the number a near one may be, by doubles and rather too far."""
        rough = max(float(self.absolute), float(self.share) * abs(number) * 2)
        return rough * (1 + _SLACK) + 4 * math.ulp(number)


@dataclass(slots=True)
class Row:
    """One row: `place` is None for an expected one, else what finds the row of the output."""

    group: str
    rough: float | None
    """The first number as a double."""
    numbers: Numbers
    place: Any


def pairs(rows: Iterable[Row], allowed: Sequence[Allowed]) -> Iterator[tuple[Any, Numbers]]:
    """For each row of the output, the numbers of the expected row that it is paired with, or its own.

    Rows come sorted by group and first number. As many rows of a group are paired as can be, and each
    expected row at most once.
    """
    for run in _runs(rows, allowed[0]):
        expected = [row for row in run if row.place is None]
        output = [row for row in run if row.place is not None]
        pair = _in_order if len(allowed) == 1 else _by_paths
        found = pair(output, expected, allowed)
        for index, row in enumerate(output):
            yield row.place, expected[found[index]].numbers if index in found else row.numbers


def _runs(rows: Iterable[Row], first: Allowed) -> Iterator[list[Row]]:
    """Rows cut where no pair can span: only a run has to fit into memory."""
    run: list[Row] = []
    for row in rows:
        if run and not _together(run[-1], row, first):
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _together(before: Row, row: Row, first: Allowed) -> bool:
    if before.group != row.group:
        return False
    left, right = before.rough, row.rough
    if left is None or right is None or not (math.isfinite(left) and math.isfinite(right)):
        return left == right or (left != left and right != right)
    return right - left <= max(first.reach(left), first.reach(right))


def _in_order(
    output: Sequence[Row], expected: Sequence[Row], allowed: Sequence[Allowed]
) -> dict[int, int]:
    """In one column, pairing the smallest with the smallest that is near pairs as many as can be."""
    [one] = allowed
    waiting = deque(sorted(range(len(expected)), key=lambda place: _rank(expected[place])))
    found = {}
    for index in sorted(range(len(output)), key=lambda place: _rank(output[place])):
        number = output[index].numbers[0]
        while waiting:
            wanted = expected[waiting[0]].numbers[0]
            if one.near(number, wanted):
                found[index] = waiting.popleft()
                break
            if _rank(expected[waiting[0]]) > _rank(output[index]):
                break
            waiting.popleft()
    return found


def _rank(row: Row) -> tuple[int, Decimal]:
    """Null comes first, then the numbers, NaN last: so Spark sorts them."""
    number = row.numbers[0]
    if number is None:
        return 0, Decimal(0)
    return (2, Decimal(0)) if number == "NaN" else (1, Decimal(number))


def _by_paths(
    output: Sequence[Row], expected: Sequence[Row], allowed: Sequence[Allowed]
) -> dict[int, int]:
    """In several columns, a pair may have to give way to others: paths of such changes are searched."""
    options = [
        [
            place
            for place, right in enumerate(expected)
            if _near(row.numbers, right.numbers, allowed)
        ]
        for row in output
    ]
    taken: dict[int, int] = {}
    for start in range(len(output)):
        came_from: dict[int, int] = {}
        to_do = deque([start])
        while to_do:
            index = to_do.popleft()
            free = None
            for place in options[index]:
                if place in came_from:
                    continue
                came_from[place] = index
                if place not in taken:
                    free = place
                    break
                to_do.append(taken[place])
            if free is not None:
                _give_way(free, start, came_from, taken)
                break
    return {index: place for place, index in taken.items()}


def _give_way(free: int, start: int, came_from: dict[int, int], taken: dict[int, int]) -> None:
    """Move each row on the path to the place that was found for it."""
    own = {index: place for place, index in taken.items()}
    place = free
    while True:
        index = came_from[place]
        before = own.get(index)
        taken[place] = index
        if index == start or before is None:
            return
        place = before


def _near(numbers: Numbers, expected: Numbers, allowed: Sequence[Allowed]) -> bool:
    each = zip(allowed, numbers, expected, strict=True)
    return all(one.near(number, wanted) for one, number, wanted in each)
