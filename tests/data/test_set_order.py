"""Sets that are equal iterate alike once they are in set order, however they grew."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.set_order import all_in_set_order, in_set_order
from minirt.data.values import pack_value, unpack_value
from minirt.errors import UserCodeError


class Colour(enum.Enum):
    RED, BLUE = 1, 2


@dataclass
class Basket:
    tags: set[Any] = field(default_factory=set)
    of: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    tags: frozenset[Any]


class Tags(set[Any]):
    pass


numbers = st.integers(-(2**70), 2**70) | st.sampled_from([-1, -2, 0, 2**61 - 1, 2 * (2**61 - 1)])
atoms = st.one_of(
    numbers,
    st.text(max_size=3),
    st.binary(max_size=3),
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False).map(Decimal),
    st.sampled_from(Colour),
)
elements = st.recursive(
    atoms, lambda inner: st.frozensets(inner, max_size=4) | st.tuples(inner, inner), max_leaves=6
)
contents = st.lists(elements, max_size=30)


def grown(given: list[Any], order: list[int], other: int) -> set[Any]:
    """A set of these elements that had many others, and got its own in some order."""
    others = set(range(10**6, 10**6 + other)).difference(given)
    made = set(others)
    for place in order:
        if place < len(given):
            made.add(given[place])
    made.update(given)
    made -= others
    return made


HOLDERS: dict[str, Any] = {
    "set": lambda own: own,
    "frozenset": frozenset,
    "in a list": lambda own: [1, own, 2],
    "in a tuple": lambda own: (1, frozenset(own)),
    "value of a dict": lambda own: {"a": own, "b": {"c": [own]}},
    "key of a dict": lambda own: {frozenset(own): 1, (1, frozenset(own)): 2},
    "in a set": lambda own: {frozenset(own), "x"},
    "in an object": lambda own: Basket(own, {"a": own}),
    "in a frozen object": lambda own: [Frozen(frozenset(own))],
    "in a defaultdict": lambda own: defaultdict(set, {1: own}),
    "of a subclass": lambda own: Tags(own),
    "in a counter": lambda own: Counter([frozenset(own), 1]),
}


def walked(value: Any) -> Any:
    """What a function would see that goes through all of a value."""
    if isinstance(value, dict):
        return [(walked(key), walked(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset | list | tuple):
        return [walked(item) for item in value]
    if isinstance(value, Basket | Frozen):
        return walked(vars(value))
    return value


@pytest.mark.parametrize("holder", HOLDERS)
@given(given=contents, order=st.permutations(range(30)), other=st.integers(0, 400))
def test_equal_values_iterate_alike(
    holder: str, given: list[Any], order: list[int], other: int
) -> None:
    hold = HOLDERS[holder]
    live = hold(grown(given, [], other))
    again = unpack_value(
        pack_value(hold(grown(given, order, 0)), allow_pickle=True), allow_pickle=True
    )
    one, same = in_set_order(live), in_set_order(again)
    assert one == live
    assert type(one) is type(live)
    assert walked(one) == walked(same)
    assert walked(in_set_order(one)) == walked(one)


@given(st.recursive(atoms, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_values_without_sets_stay_the_same_objects(value: Any) -> None:
    assert in_set_order(value) is value
    values = [value, {"a": [value]}]
    assert all_in_set_order(values) is values
    basket = Basket([1, 2], {"a": value})  # type: ignore[arg-type]
    assert in_set_order(basket) is basket


def test_one_set_in_two_places_stays_one() -> None:
    own = {3, 1, 2}
    basket = in_set_order(Basket(own, {"same": own}))
    assert basket.tags is basket.of["same"]


class Nameless:
    pass


@pytest.mark.parametrize("element", [Nameless(), float("nan"), (1, Nameless())])
def test_what_is_hashed_by_its_address_is_refused(element: Any) -> None:
    if isinstance(element, tuple):
        element = frozenset(element)
    with pytest.raises(UserCodeError, match="hashes by its address in memory"):
        in_set_order({"a": [{element, 1}]})
