"""Room that is made for all keys at once: nothing grows while they come, as it would several times."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minirt as rt
from minirt.data.keys import hash_columns
from minirt.state import frozen, segments
from minirt.state.array_contents import Marks
from minirt.state.array_table import ArrayTable
from minirt.state.key_index import KeyIndex
from minirt.state.sections import section_bytes

KEYS = 5_000


def test_an_index_takes_as_many_keys_as_were_foretold_without_growing() -> None:
    index = KeyIndex([pa.int64()])
    index.reserve(KEYS)
    table, hashes = index._table, index._hashes
    numbers = index._columns[0]._numbers
    for start in range(0, KEYS, 500):
        keys = [pa.array(range(start, start + 500))]
        index.slots(keys, hash_columns(keys))
    assert index._table is table
    assert index._hashes is hashes
    assert index._columns[0]._numbers is numbers
    assert len(index) == KEYS


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=8),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_keys_have_the_same_slots_however_many_were_foretold(
    batches: list[list[int]], foretold: int, begins: int
) -> None:
    """Also keys that come again, and more of them than that, and where it was known late."""
    index, other = KeyIndex([pa.int64()]), KeyIndex([pa.int64()])
    for number, batch in enumerate(batches):
        if number == begins:
            index.reserve(foretold)
        keys = [pa.array(batch, pa.int64())]
        slots = index.slots(keys, hash_columns(keys))
        assert slots.tolist() == other.slots(keys, hash_columns(keys)).tolist()
        assert index.keys(slots)[0].to_pylist() == batch
    assert len(index) == len(other)


def test_arrays_keep_what_they_hold_and_do_not_grow() -> None:
    marks = Marks()
    marks.make_room(10)
    marks.times[:10] = np.arange(10)
    marks.reserve(KEYS)
    times = marks.times
    for count in range(500, KEYS + 1, 500):
        marks.make_room(count)
    assert marks.times is times
    assert times[:10].tolist() == list(range(10))


@pytest.mark.parametrize("groups", [None, range(64)])
def test_a_restore_makes_room_once_for_all_keys_of_its_own(
    groups: range | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)
    monkeypatch.setattr(frozen, "PIECE_SLOTS", 500)
    keys = np.arange(KEYS)
    table = ArrayTable(("k",), [rt.Sum("v")], "test")
    table.add(pa.record_batch({"k": keys, "v": keys}), None)
    section = table.snapshot()
    assert section is not None
    reserved: list[int] = []
    monkeypatch.setattr(KeyIndex, "reserve", lambda index, count: reserved.append(count))
    again = ArrayTable(("k",), [rt.Sum("v")], "test")
    again.restore(section_bytes(section), groups, 128)
    assert set(reserved) == (set() if groups else {KEYS})
    assert (len(again) == KEYS) == (groups is None)
