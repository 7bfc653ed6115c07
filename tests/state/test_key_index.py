"""The index of array state against a dict, with types, nulls, growth and hashes that collide."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.keys import hash_columns
from minirt.state.key_columns import key_column
from minirt.state.key_index import KeyIndex

COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=3)),
    (pa.large_string(), st.sampled_from(["", "a", "ä" * 70])),
    (pa.binary(), st.binary(max_size=2)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("ms", "UTC"), st.sampled_from([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)])),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "y"])),
    (pa.null(), st.none()),
]


@st.composite
def batches_of_keys(draw: st.DrawFn) -> tuple[list[pa.DataType], list[list[pa.Array]]]:
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=2))
    types = [type for type, _ in columns]
    row = st.tuples(*(st.none() | values for _, values in columns))
    batches = draw(st.lists(st.lists(row, max_size=30), max_size=4))
    return types, [
        [pa.array([row[i] for row in batch], type) for i, type in enumerate(types)]
        for batch in batches
    ]


@given(batches_of_keys(), st.sampled_from([2**64 - 1, 2**63, 0]))
def test_every_key_has_one_slot(
    drawn: tuple[list[pa.DataType], list[list[pa.Array]]], mask: int
) -> None:
    """As a dict would number them, also where hashes that are cut down to few bits collide."""
    types, batches = drawn
    index = _distrustful(KeyIndex(types)) if mask != 2**64 - 1 else KeyIndex(types)
    slot_of: dict[tuple[Any, ...], int] = {}
    for keys in batches:
        slots = index.slots(keys, hash_columns(keys) & np.uint64(mask)).tolist()
        rows = list(zip(*(array.to_pylist() for array in keys), strict=True))
        for row, slot in zip(rows, slots, strict=True):
            assert slot_of.setdefault(row, slot) == slot
    assert len(index) == len(slot_of)
    assert sorted(slot_of.values()) == list(range(len(slot_of)))
    if slot_of:
        stored = index.keys(np.arange(len(index)))
        rows = list(zip(*(array.to_pylist() for array in stored), strict=True))
        assert {row: slot for slot, row in enumerate(rows)} == slot_of
        plain = [t.value_type if pa.types.is_dictionary(t) else t for t in types]
        assert [array.type for array in stored] == plain


@pytest.mark.parametrize("type", [pa.int64(), pa.string()])
def test_an_index_grows(type: pa.DataType) -> None:
    """With repeated and new keys in each batch, far beyond its first size."""
    index = KeyIndex([type])
    for start in range(0, 60_000, 7_000):
        numbers = pa.array(np.arange(start, start + 14_000) // 2 * 3)
        keys = [numbers.cast(type)]
        slots = index.slots(keys, hash_columns(keys))
        assert index.keys(slots)[0].equals(keys[0])
    distinct = len({n // 2 * 3 for n in range(56_000 + 14_000)})
    assert len(index) == distinct
    assert index.hashes.tolist() == hash_columns(index.keys(np.arange(distinct))).tolist()


@given(
    st.sampled_from(COLUMNS).flatmap(
        lambda column: st.tuples(
            st.just(column[0]), st.lists(st.lists(st.none() | column[1], max_size=5), max_size=12)
        )
    ),
    st.integers(0, 3),
)
def test_a_column_grows_from_any_room(
    drawn: tuple[pa.DataType, list[list[Any]]], room: int
) -> None:
    """Each of its arrays must be as long as the others, whatever comes at once."""
    type, batches = drawn
    column = key_column(type)
    column.begin(room, key_column(type))
    for batch in batches:
        column.append(pa.array(batch, type))
    values = [value for batch in batches for value in batch]
    assert column.take(np.arange(len(values))).to_pylist() == values


@pytest.mark.parametrize("type", [pa.int64(), pa.string()])
def test_a_column_grows_one_by_one_behind_many_at_once(type: pa.DataType) -> None:
    column, numbers = key_column(type), pa.array(range(6002)).cast(type)
    for start, stop in ((0, 3000), (3000, 3001), (3001, 6001), (6001, 6002)):
        column.append(numbers[start:stop])
    assert column.take(np.arange(6002)).equals(numbers)


def test_keys_with_one_hash_stay_apart_while_the_index_grows() -> None:
    index = _distrustful(KeyIndex([pa.int64()]))
    same = np.uint64(42)

    def slots(numbers: range) -> list[int]:
        keys = [pa.array(numbers, pa.int64())]
        hashes = np.where(np.array(numbers) % 2 == 0, same, hash_columns(keys))
        return index.slots(keys, hashes).tolist()

    first = slots(range(100))
    assert len(set(first)) == 100
    slots(range(100, 5000))
    assert slots(range(100)) == first
    assert len(index) == 5000


def _distrustful(index: KeyIndex) -> KeyIndex:
    """It compares keys also where real hashes would tell all."""
    for column in index._columns:
        column.told_by_hash = lambda array: False  # type: ignore[method-assign]
    return index
