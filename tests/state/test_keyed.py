"""Keyed state: tables, snapshots that are frozen, and restoring at another parallelism."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data.errors import MalformedDataError, UnsupportedRecordError
from minirt.data.keys import group_range, key_group
from minirt.state import segments
from minirt.state.keyed import KeyedState
from minirt.state.sections import CHUNK_ENTRIES, section_bytes
from tests.data.exact import assert_exact
from tests.data.strategies import KEYS, VALUES

GROUPS = 128
ALL = range(GROUPS)


def subtasks(parallelism: int, maximum: int = GROUPS) -> list[KeyedState]:
    return [KeyedState(maximum, group_range(i, parallelism, maximum)) for i in range(parallelism)]


def restored(state: KeyedState, *, filter_groups: bool = False) -> KeyedState:
    result = KeyedState(GROUPS, ALL)
    sections = {name: section_bytes(section) for name, section in state.snapshot().items()}
    result.restore(sections, filter_groups=filter_groups)
    return result


def test_table_is_created_once_and_stays_the_same_dict() -> None:
    state = KeyedState(GROUPS, ALL)
    table = state.table("total")
    assert table == {}
    table["a"] = 1
    assert state.table("total") is table
    state.restore(restored(state).snapshot(), filter_groups=False)
    assert state.table("total") is table
    assert state.table("other") == {}


def test_entries_count_the_keys_of_every_table() -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("a").update({1: 1, 2: 2})
    state.table("b")
    assert state.entries() == {"a": 2, "b": 0}


@given(
    st.dictionaries(
        st.sampled_from(["total", "é", ""]), st.dictionaries(KEYS, VALUES, max_size=3), max_size=2
    ),
    st.booleans(),
)
def test_snapshot_restores_keys_and_values_exactly(
    tables: dict[str, dict[Any, Any]], filter_groups: bool
) -> None:
    state = KeyedState(GROUPS, ALL)
    for name, entries in tables.items():
        state.table(name).update(entries)
    result = restored(state, filter_groups=filter_groups)
    for name, entries in tables.items():
        assert_exact(result.table(name), entries)


def test_snapshot_is_frozen_when_values_change_afterwards() -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("list")["k"] = values = [1]
    sections = state.snapshot()
    values.append(2)
    state.table("list")["l"] = []
    result = KeyedState(GROUPS, ALL)
    result.restore(sections, filter_groups=False)
    assert result.table("list") == {"k": [1]}


@pytest.mark.parametrize("count", [CHUNK_ENTRIES, CHUNK_ENTRIES + 1, 3 * CHUNK_ENTRIES - 1])
def test_table_larger_than_a_chunk_comes_back_whole(count: int) -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("n").update((key, key * 0.5) for key in range(count))
    assert restored(state, filter_groups=True).table("n") == state.table("n")


@given(
    st.dictionaries(KEYS, st.integers(), max_size=30),
    st.integers(1, 7),
    st.integers(1, 7),
    st.sampled_from([7, 16, 128]),
)
def test_every_key_ends_up_in_exactly_one_subtask_when_rescaled(
    entries: dict[Any, int], before: int, after: int, maximum: int
) -> None:
    old = subtasks(before, maximum)
    for key, value in entries.items():
        group = key_group(key, maximum)
        (owner,) = (i for i in range(before) if group in group_range(i, before, maximum))
        old[owner].table("t")[key] = value
    snapshots = [state.snapshot() for state in old]
    new = subtasks(after, maximum)
    for state in new:
        for sections in snapshots:
            state.restore(sections, filter_groups=True)
    found = [pair for state in new for pair in state.table("t").items()]
    assert len(found) == len(entries)
    assert dict(found) == entries
    for index, state in enumerate(new):
        owned = group_range(index, after, maximum)
        assert all(key_group(key, maximum) in owned for key in state.table("t"))


def test_restoring_without_filter_keeps_keys_of_foreign_groups() -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("t").update(dict.fromkeys(range(50), 0))
    narrow = KeyedState(GROUPS, range(0))
    narrow.restore(state.snapshot(), filter_groups=False)
    assert len(narrow.table("t")) == 50
    narrow = KeyedState(GROUPS, range(0))
    narrow.restore(state.snapshot(), filter_groups=True)
    assert narrow.entries() == {"t": 0}


def test_unsupported_value_is_refused_with_the_name_of_the_state() -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("totals")["k"] = object()
    with pytest.raises(UnsupportedRecordError, match=r"state 'totals'.*builtins\.object"):
        state.snapshot()


def test_value_of_any_type_is_stored_if_pickle_is_allowed() -> None:
    state = KeyedState(GROUPS, ALL, allow_pickle=True)
    state.table("t")["k"] = 1 + 2j
    with pytest.raises(MalformedDataError, match="allow_pickle"):
        restored(state)
    again = KeyedState(GROUPS, ALL, allow_pickle=True)
    again.restore(state.snapshot(), filter_groups=True)
    assert again.table("t") == {"k": 1 + 2j}


def test_damaged_section_gives_a_clean_error() -> None:
    state = KeyedState(GROUPS, ALL)
    state.table("t").update({"a": 1, "b": 2})
    section = state.snapshot()["t"]
    # A section of the head alone is whole: it holds no entries.
    for length in (*range(8), *range(9, len(section))):
        with pytest.raises(MalformedDataError):
            KeyedState(GROUPS, ALL).restore({"t": section[:length]}, filter_groups=False)
    newer = section[:4] + b"\x09" + section[5:]
    with pytest.raises(MalformedDataError, match="version 9"):
        KeyedState(GROUPS, ALL).restore({"t": newer}, filter_groups=False)
    with pytest.raises(MalformedDataError, match="holds b'TIME'"):
        KeyedState(GROUPS, ALL).restore({"t": b"TIME" + section[4:]}, filter_groups=False)


def test_tables_that_have_lost_nearly_all_keys_become_small_but_not_while_they_are_stored() -> None:
    state = KeyedState(8, range(8))
    table = state.table("n")
    table.update((key, key) for key in range(segments.STRETCH_MIN + 1))
    full = sys.getsizeof(table)
    sections = state.snapshot()
    gone = range(10, len(table))
    state.change(gone)
    for key in gone:
        del table[key]
    state.shrink()
    assert sys.getsizeof(table) == full
    stored = section_bytes(sections["n"])
    del sections
    state.shrink()
    assert sys.getsizeof(table) < full / 10
    assert state.table("n") is table
    assert table == {key: key for key in range(10)}
    before = KeyedState(8, range(8))
    before.restore({"n": stored}, filter_groups=False)
    assert len(before.table("n")) == segments.STRETCH_MIN + 1
