"""Incremental snapshots of keyed state: whatever is lost on the way, the files hold it all."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.state import segments
from minirt.state.keyed import KeyedState
from minirt.state.keyed_changes import unpack_changes
from minirt.state.sections import Section, section_bytes


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 2)


class Taken(NamedTuple):
    sections: Mapping[str, Section]
    table: dict[int, Any]
    stored: bool


class Stored:
    """A state, and the files that its snapshots are in."""

    def __init__(self) -> None:
        self.state = self._new()
        self.files: dict[str, dict[str, bytes]] = {}
        self.built_on: dict[str, list[str]] = {}
        self.written: dict[str, bytes] = {}
        self.taken: Taken | None = None

    def _new(self) -> KeyedState:
        state = KeyedState(8, range(8))
        state.table("one")
        return state

    def set(self, keys: list[int], value: Any) -> None:
        self.state.change(keys)
        for key in keys:
            self.state.table("one")[key] = value

    def delete(self, keys: list[int]) -> None:
        self.state.change(keys)
        for key in keys:
            self.state.table("one").pop(key, None)

    def snapshot(self, *, stored: bool) -> None:
        """Take a snapshot; it is made when it is settled, or never."""
        self.settle()
        self.taken = Taken(self.state.snapshot(), dict(self.state.table("one")), stored)
        self.built_on = self.state.builds_on()

    def settle(self) -> None:
        """Make the last snapshot, whatever has changed since; check what a restore would find."""
        taken, self.taken = self.taken, None
        if taken is None:
            return
        self.written = {name: section_bytes(made) for name, made in taken.sections.items()}
        assert self.read().table("one") == taken.table
        if taken.stored:
            path = f"{len(self.files):05}"
            self.files[path] = self.written
            self.state.on_stored(path)

    def forget(self) -> None:
        """The last snapshot is never made: its checkpoint was aborted."""
        self.taken = None

    def read(self, *, same_place: bool = False) -> KeyedState:
        state = self._new()
        for path in sorted(self.built_on.get("one", ())):
            held = {
                name: made for name, made in self.files[path].items() if path in self.built_on[name]
            }
            state.restore(held, filter_groups=False)
            if same_place:
                state.on_stored(path)
        state.restore(self.written, filter_groups=False)
        return state

    def restore(self, *, same_place: bool) -> None:
        self.settle()
        self.state = self.read(same_place=same_place)


KEYS = st.lists(st.integers(0, 25), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("settle"), st.booleans()),
        st.tuples(st.just("restore"), st.booleans()),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_snapshot_and_what_it_builds_on_hold_everything(steps: list[tuple[str, Any]]) -> None:
    stored = Stored()
    for number, (action, how) in enumerate(steps):
        match action:
            case "set":
                stored.set(how, number)
            case "delete":
                stored.delete(how)
            case "snapshot":
                stored.snapshot(stored=how)
            case "settle":
                stored.settle() if how else stored.forget()
            case "restore":
                stored.snapshot(stored=True)
                stored.restore(same_place=how)
    stored.snapshot(stored=True)
    stored.settle()


@pytest.mark.parametrize("seed", range(4))
def test_so_they_do_where_most_keys_do_not_change(seed: int) -> None:
    """Then stretches count: of snapshots that were not stored or never made, and of earlier lives."""
    random, stored = Random(seed), Stored()
    stored.set(list(range(60)), 0)
    for turn in range(1, 400):
        stored.set([random.randrange(70)], turn)
        if random.random() < 0.2:
            stored.delete([random.randrange(70)])
        stored.snapshot(stored=random.random() < 0.8)
        if random.random() < 0.1:
            stored.forget()
        elif random.random() < 0.03:
            stored.restore(same_place=True)
    stored.settle()


def test_little_is_written_and_few_files_are_built_on() -> None:
    stored = Stored()
    stored.set(list(range(6400)), 0)
    stored.snapshot(stored=True)
    stored.settle()
    full = len(stored.written["one"])
    for turn in range(200):
        stored.set([turn, turn + 3000], turn)
        stored.delete([turn + 2000])
        stored.snapshot(stored=True)
        stored.settle()
        assert sum(map(len, stored.written.values())) < full / 20
        assert len(stored.built_on["one"]) <= 2 * 64 + 1
        assert len(stored.built_on["one@stretch"]) <= 64 + 1


def test_stretches_of_an_earlier_life_count_until_all_was_written_again() -> None:
    stored = Stored()
    stored.set(list(range(100)), 0)
    for life in range(3):
        stretches = []
        for turn in range(60 + 25 * life):
            stored.set([turn], turn)
            stored.snapshot(stored=True)
            stored.settle()
            stretches.append(len(stored.built_on["one@stretch"]))
        # Each is of two keys, and there are a hundred. It goes on with the files of the earlier life.
        assert stretches[-1] <= 50
        assert life == 0 or stretches[0] >= 25
        stored.restore(same_place=True)


@pytest.mark.parametrize("snapshots", [4, 70])
@pytest.mark.parametrize("unknown", [range(1), range(2, 3), range(30)])
def test_nothing_is_lost_if_some_of_the_restored_files_are_not_known(
    snapshots: int, unknown: range
) -> None:
    """The first of them holds all keys, or is one of many."""
    stored = Stored()
    stored.set(list(range(100)), 0)
    for turn in range(snapshots):
        stored.set([turn, 1000 + turn], turn)
        stored.snapshot(stored=True)
        stored.settle()
    state, needed = KeyedState(8, range(8)), stored.built_on["one"]
    for place, path in enumerate([*needed, max(stored.files)]):
        state.restore(stored.files[path], filter_groups=False)
        if place not in unknown:
            state.on_stored(path)
    written = {name: section_bytes(made) for name, made in state.snapshot().items()}
    built_on, again = state.builds_on(), KeyedState(8, range(8))
    for path, sections in stored.files.items():
        held = {name: made for name, made in sections.items() if path in built_on.get(name, ())}
        again.restore(held, filter_groups=False)
    again.restore(written, filter_groups=False)
    assert again.table("one") == stored.state.table("one")


def test_small_state_is_written_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 100)
    stored = Stored()
    stored.set(list(range(100)), 0)
    for turn in range(3):
        stored.set([turn], turn)
        stored.snapshot(stored=True)
        assert stored.built_on["one"] == []


def test_what_one_table_writes_besides_changes_is_not_told_of_another() -> None:
    state = KeyedState(8, range(8))
    for name, first in ("one", 0), ("two", 1000):
        state.table(name).update((key, 0) for key in range(first, first + 100))
    state.snapshot()
    state.on_stored("whole")
    state.change([3])
    state.table("one")[3] = 1
    sections = state.snapshot()
    written = {}
    for name, section in sections.items():
        gone, _ = unpack_changes(section_bytes(section))
        written[name] = gone
    stretches = {"one@stretch": [], "two@stretch": []}
    assert written == {"one": [], "two": [3], **stretches}
