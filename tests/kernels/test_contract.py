"""All implementations of the kernels against their contract, and against each other on columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.keys import hash_columns
from minirt.kernels.choice import IMPLEMENTATIONS, choose_kernels
from minirt.kernels.contract import Kernels
from minirt.state.key_index import KeyIndex
from tests.kernels.contract import CHECKS, ON_PIECES, wrong_in_one_lane
from tests.state.test_key_index import batches_of_keys

MANY = [*range(3000), *(n * 0x9E3779B97F4A7C15 % 2**64 for n in range(300))] * 2


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return choose_kernels(request.param).kernels


def test_every_kernel_has_a_check() -> None:
    assert {name for name in vars(Kernels) if not name.startswith("_")} == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
@given(data=st.data())
def test_a_kernel_does_what_the_contract_says(
    kernels: Kernels, name: str, data: st.DataObject
) -> None:
    check, values = CHECKS[name]
    check(kernels, data.draw(values))


@pytest.mark.parametrize("name", CHECKS)
def test_a_kernel_copes_with_many_records(kernels: Kernels, name: str) -> None:
    check, _ = CHECKS[name]
    check(kernels, [b"%d" % n * (n % 5) for n in MANY] if name in ON_PIECES else MANY)


def test_pieces_may_be_longer_than_the_table_of_powers(kernels: Kernels) -> None:
    check, _ = CHECKS["hash_pieces"]
    check(kernels, [b"", b"\xff" * 65_535, b"ab" * 40_000, b"c", b"\x80" * 200_000])


@pytest.mark.parametrize("size", [1, 7, 8, 9, 13, 16, 17, 25])
def test_pieces_that_differ_in_one_byte_are_told_apart_wherever_it_is(
    kernels: Kernels, size: int
) -> None:
    check, _ = CHECKS["same_pieces"]
    changed = [bytes(place) + b"x" + bytes(size - place - 1) for place in range(size)]
    # Each is compared with the next one: what has no "x" stands between those that have it.
    check(kernels, [piece for each in changed for piece in (each, bytes(size))])


@pytest.mark.parametrize("name", CHECKS)
def test_a_kernel_that_is_wrong_in_one_lane_fails(kernels: Kernels, name: str) -> None:
    check, _ = CHECKS[name]
    given = [b"%d" % n for n in range(64)] if name in ON_PIECES else [*range(64)]
    check(kernels, given)
    with pytest.raises(AssertionError):
        check(wrong_in_one_lane(kernels, name), given)


@given(batches_of_keys(), st.sampled_from([2**64 - 1, 0xFF << 56]))
def test_columns_have_the_same_hashes_and_slots_with_all(
    drawn: tuple[list[pa.DataType], list[list[pa.Array]]], mask: int
) -> None:
    """Numbers, texts, times, nulls, dictionaries, several columns; also where hashes collide."""
    types, batches = drawn
    told: list[Any] = []
    for name in IMPLEMENTATIONS:
        choose_kernels(name)
        index = KeyIndex(types)
        for column in index._columns:
            column.told_by_hash = lambda array: False  # type: ignore[method-assign]
        hashes = [hash_columns(keys) for keys in batches]
        slots = [
            index.slots(keys, each & np.uint64(mask)).tolist()
            for keys, each in zip(batches, hashes, strict=True)
        ]
        told.append(([each.tolist() for each in hashes], slots))
    assert all(one == told[0] for one in told)
