"""What a snapshot stores is the state as of the snapshot, whatever changes while it is copied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minirt as rt
from minirt.data.errors import UnsupportedRecordError
from minirt.state import frozen, segments
from minirt.state.array_layout import ARRAY_TABLE
from minirt.state.array_table import ArrayTable
from minirt.state.frozen import FrozenKeys, FrozenSlots
from minirt.state.keyed import KeyedState
from minirt.state.sections import section_bytes, unpack_columns

SLOTS = 30
CHANGES = st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=6)
STEPS = st.lists(st.just("piece") | st.just("complete") | CHANGES, max_size=25)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "PIECE_SLOTS", 4)
    monkeypatch.setattr(frozen, "PIECE_KEYS", 4)
    monkeypatch.setattr(segments, "STRETCH_MIN", 1)


def take(pieces: Iterator[Any], found: list[Any]) -> None:
    piece = next(pieces, None)
    if piece is not None:
        found.append(piece)


@given(waiting=st.lists(st.booleans(), max_size=20), steps=STEPS)
def test_slots_are_copied_before_they_change(waiting: list[bool], steps: list[Any]) -> None:
    values = np.zeros(SLOTS, np.int64)

    def copy(slots: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"slot": slots, "value": values[slots]})

    held = FrozenSlots(np.array(waiting, np.bool_), copy)
    pieces, found = held.pieces(), list[pa.RecordBatch]()
    for step in steps:
        match step:
            case "piece":
                take(pieces, found)
            case "complete":
                held.complete()
            case slots:
                held.before_change(np.array(slots))
                values[slots] += 1
    rows = [row for piece in [*found, *pieces] for row in piece.to_pylist()]
    assert sorted(row["slot"] for row in rows) == np.flatnonzero(waiting).tolist()
    assert {row["value"] for row in rows} <= {0}


@given(
    there=st.sets(st.integers(0, SLOTS - 1)),
    only=st.none() | st.sets(st.integers(0, 35)),
    steps=STEPS,
)
def test_keys_are_copied_before_they_change(there: set[int], only: Any, steps: list[Any]) -> None:
    table = dict.fromkeys(sorted(there), "then")
    keys = list(table if only is None else only)
    held = FrozenKeys(table, keys, only, lambda keys, values: list(zip(keys, values, strict=True)))  # type: ignore[arg-type, return-value]
    pieces, found = held.pieces(), list[Any]()
    for number, step in enumerate(steps):
        match step:
            case "piece":
                take(pieces, found)
            case "complete":
                held.complete()
            case changing:
                held.before_change(changing)
                for key in changing:
                    if number % 3 and key in table:
                        del table[key]
                    else:
                        table[key] = "now"
    entries = [entry for piece in [*found, *pieces] for entry in piece]
    wanted = there if only is None else there & only
    assert sorted(entries) == [(key, "then") for key in sorted(wanted)]
    assert set(held.gone) == (set() if only is None else only - there)


def test_state_that_is_changed_in_place_is_stored_as_it_was() -> None:
    state = KeyedState(8, range(8))
    table = state.table("t")
    table.update({key: [key] for key in range(20)})
    section = state.snapshot()["t"]
    state.change([3, 4])
    table[3].append("later")
    del table[4]
    later = KeyedState(8, range(8))
    later.restore({"t": section_bytes(section)}, filter_groups=False)
    assert later.table("t") == {key: [key] for key in range(20)}


def sums(count: int) -> ArrayTable:
    table = ArrayTable(["k"], [rt.Sum("v"), rt.Last("v")], "op")
    table.add(pa.RecordBatch.from_pydict({"k": range(count), "v": [1] * count}), None)
    return table


def totals(table: ArrayTable) -> dict[int, tuple[int, int]]:
    batch, _ = table.results(np.arange(len(table)))
    return {key: rest for key, *rest in zip(*(c.to_pylist() for c in batch.columns), strict=True)}  # type: ignore[misc]


def test_one_thread_stores_what_another_goes_on_changing() -> None:
    table = sums(20_000)
    before = totals(table)
    section, made = table.snapshot(), list[bytes]()
    assert section is not None
    storing = threading.Thread(target=lambda: made.append(section_bytes(section)))
    storing.start()
    random = np.random.default_rng(1)
    rounds = 0
    while storing.is_alive() or not rounds:
        keys = random.integers(0, 40_000, 500)
        table.add(pa.RecordBatch.from_pydict({"k": keys, "v": keys}), None)
        rounds += 1
    storing.join()
    later = ArrayTable(["k"], [rt.Sum("v"), rt.Last("v")], "op")
    later.restore(made[0], None, 128)
    assert totals(later) == before


def test_columns_that_find_their_type_later_are_stored_without() -> None:
    table = ArrayTable(["k"], [rt.Max("v")], "op")
    nulls = pa.nulls(3)
    table.add(pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), nulls], ["k", "v"]), None)
    section = table.snapshot()
    table.add(pa.RecordBatch.from_pydict({"k": [1], "v": ["text"]}), None)
    later = ArrayTable(["k"], [rt.Max("v")], "op")
    assert section is not None
    later.restore(section_bytes(section), None, 128)
    results, _ = later.results(np.arange(3))
    assert results.column("v_max").to_pylist() == [None] * 3


def test_a_value_that_cannot_be_stored_is_named_when_the_snapshot_is_made() -> None:
    state = KeyedState(8, range(8))
    state.table("t").update({key: object() for key in range(5)})
    section = state.snapshot()["t"]
    with pytest.raises(UnsupportedRecordError, match=r"state 't' cannot be stored: .*object"):
        section_bytes(section)


def test_what_was_copied_for_a_snapshot_that_is_given_up_is_in_the_next_one() -> None:
    table = ArrayTable(("k",), [rt.Sum("v")], "test")

    def stored_keys(*, path: str | None) -> set[int]:
        section = table.snapshot()
        assert section is not None
        batches = unpack_columns(ARRAY_TABLE, section_bytes(section))
        if path is not None:
            table.on_stored(path)
        return {key for batch in batches for key in batch.column(0).to_pylist()}

    table.add(pa.record_batch({"k": range(1000), "v": range(1000)}), None)
    assert stored_keys(path="00001") == {*range(1000)}
    changed = [*range(0, 1000, 10)]
    table.add(pa.record_batch({"k": changed, "v": changed}), None)
    for path in (None, None, "00002"):
        assert stored_keys(path=path) >= {*changed}
    assert len(stored_keys(path=None)) < 100
