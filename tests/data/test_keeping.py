"""What is known of a function from its code: whether it keeps its arguments, or changes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minirt.data.keeping import changes_nothing, keeps_nothing

Function = Callable[..., Any]

HARMLESS: dict[str, Function] = {
    "a sum": lambda total, record: total + record,
    "a new tuple": lambda total, pair: (total[0], total[1] + pair[1]),
    "a new dict": lambda total, row: {**total, "n": total["n"] + row["n"]},
    "a builtin": lambda total, pair: (max(total[0], pair[0]), len(pair)),
    "an attribute": lambda total, row: total if total.at > row.at else row,
    "the other": lambda total, record: record,
}


def sets_item(total: Any, row: Any) -> Any:
    total["n"] = row["n"]
    return total


def adds_to_item(total: Any, row: Any) -> Any:
    total["n"] += row["n"]
    return total


def adds_in_place(total: Any, row: Any) -> Any:
    total += row
    return total


def deletes_item(total: Any, row: Any) -> Any:
    del total[row]
    return total


def sets_slice(total: Any, row: Any) -> Any:
    total[:] = row
    return total


def calls_method_later(total: Any, row: Any) -> Any:
    append = total.append
    append(row)
    return total


def deletes_attribute(total: Any, row: Any) -> Any:
    del total.n
    return total


CHANGING: dict[str, Function] = {
    "a method": lambda total, row: total.append(row) or total,
    **{
        function.__name__: function
        for function in (
            *(sets_item, adds_to_item, adds_in_place, deletes_item, sets_slice),
            *(calls_method_later, deletes_attribute),
        )
    },
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    assert keeps_nothing(HARMLESS[name])
    assert changes_nothing(HARMLESS[name])


@pytest.mark.parametrize("name", CHANGING)
def test_changing(name: str) -> None:
    assert not changes_nothing(CHANGING[name])


def test_what_is_no_plain_function_is_not_looked_into() -> None:
    assert not changes_nothing(print)
    assert not changes_nothing(Function)
