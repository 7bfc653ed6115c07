"""Tolerance: as many rows are paired as can be, and numbers are what they print. No Spark runs."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minirt.errors import ConfigurationError
from minirt_connectors.spark.verify.near_numbers import Allowed, Numbers, Row, pairs
from minirt_connectors.spark.verify.tolerance import tolerance_of

NUMBERS = st.sampled_from([None, "NaN", "Infinity", "-Infinity"]) | st.integers(-12, 12).map(
    lambda n: str(Decimal(n) / 10)
)
ALLOWED = st.sampled_from(
    [
        Allowed(Decimal("0.1"), Decimal(0)),
        Allowed(Decimal("0.2"), Decimal(0)),
        Allowed(Decimal(0), Decimal("0.25")),
        Allowed(Decimal(0), Decimal(0)),
    ]
)


def sorted_rows(output: list[Numbers], expected: list[Numbers]) -> list[Row]:
    """As Spark sorts them: null first, NaN last."""
    rows = [Row("g", rough(one), one, place) for place, one in enumerate(output)]
    rows += [Row("g", rough(one), one, None) for one in expected]
    return sorted(rows, key=lambda row: rank(row.rough))


def rough(numbers: Numbers) -> float | None:
    return None if numbers[0] is None else float(numbers[0])


def rank(number: float | None) -> tuple[int, float]:
    if number is None:
        return 0, 0.0
    return (2, 0.0) if number != number else (1, number)


def near(left: Numbers, right: Numbers, allowed: list[Allowed]) -> bool:
    each = zip(left, right, allowed, strict=True)
    return all(one.near(number, wanted) for number, wanted, one in each)


def most_pairs(output: list[Numbers], expected: list[Numbers], allowed: list[Allowed]) -> int:
    """Of all ways to pair them, the one with the most pairs."""
    longer = [*expected, *[("none",)] * len(output)]
    return max(
        sum(
            right != ("none",) and near(left, right, allowed)
            for left, right in zip(output, order, strict=True)
        )
        for order in permutations(longer, len(output))
    )


@given(st.data(), st.integers(1, 2))
def test_as_many_rows_are_paired_as_can_be(data: st.DataObject, columns: int) -> None:
    rows = st.lists(st.tuples(*[NUMBERS] * columns), max_size=3)
    output, expected = data.draw(rows), data.draw(rows)
    allowed = data.draw(st.lists(ALLOWED, min_size=columns, max_size=columns))
    found = dict(pairs(sorted_rows(output, expected), allowed))
    assert sorted(found) == list(range(len(output)))
    left = list(expected)
    paired = 0
    for place, numbers in found.items():
        if near(output[place], numbers, allowed) and numbers in left:
            left.remove(numbers)
            paired += 1
        else:
            assert numbers == output[place]
    assert paired == most_pairs(output, expected, allowed)


@pytest.mark.parametrize(
    ("number", "expected", "absolute", "is_near"),
    [
        ("1.01", "1.00", "0.01", True),
        ("1.01", "1.0", "0.01", True),
        ("1.0100000000000001", "1.0", "0.01", False),
        ("9007199254740993", "9007199254740992", "0", False),
        ("9007199254740993", "9007199254740992", "1", True),
        ("1E+300", "1.0E300", "0", True),
        ("1E-300", "0", "1e-299", True),
        ("Infinity", "1e308", "1e308", False),
        ("1" * 38 + ".01", "1" * 38, "0.01", True),
    ],
)  # fmt: skip
def test_numbers_are_what_they_say(
    number: str, expected: str, absolute: str, is_near: bool
) -> None:
    allowed = Allowed(Decimal(absolute), Decimal(0))
    assert allowed.near(number, expected) is is_near
    [(_, numbers)] = pairs(sorted_rows([(number,)], [(expected,)]), [allowed])
    assert numbers == ((expected,) if is_near else (number,))


def test_rows_of_other_groups_do_not_meet() -> None:
    allowed = [Allowed(Decimal(1), Decimal(0))]
    rows = [Row("a", 1.0, ("1.0",), None), Row("b", 1.0, ("1.1",), 0)]
    assert list(pairs(rows, allowed)) == [(0, ("1.1",))]


def test_only_near_numbers_are_held_at_once() -> None:
    seen = 0

    def rows() -> object:
        nonlocal seen
        for number in range(1000):
            seen = number
            yield Row("g", float(number), (str(number),), number)

    stream = pairs(rows(), [Allowed(Decimal("0.1"), Decimal(0))])  # type: ignore[arg-type]
    next(stream)
    assert seen < 3


@given(st.floats(0, 1e6, allow_nan=False), st.floats(0, 1e6, allow_nan=False))
@example(0.0, 1e-9)
def test_a_run_never_parts_what_is_near(number: float, step: float) -> None:
    allowed = Allowed(Decimal(repr(step)), Decimal(0))
    other = float(Decimal(repr(number)) + Decimal(repr(step)))
    rows = sorted_rows([(repr(other),)], [(repr(number),)])
    [(_, numbers)] = pairs(rows, [allowed])
    assert (numbers == (repr(number),)) is allowed.near(repr(other), repr(number))


def test_tolerance_on_the_command_line() -> None:
    assert tolerance_of("a=0.1, b = 2%") == {"a": 0.1, "b": "2%"}
    assert tolerance_of("a=b=1e-9") == {"a=b": 1e-9}
    for text in ("a", "a=", "=1", "a=x", ""):
        with pytest.raises(ConfigurationError, match="a tolerance is written as"):
            tolerance_of(text)
