"""Incremental snapshots of keyed state: whatever is lost on the way, the files hold it all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.state import segments
from minirt.state.keyed import KeyedState


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 2)


class Stored:
    """A state, and the files that its snapshots are in."""

    def __init__(self) -> None:
        self.state = self._new()
        self.files: dict[str, dict[str, bytes]] = {}
        self.built_on: list[str] = []
        self.written: dict[str, bytes] = {}

    def _new(self) -> KeyedState:
        state = KeyedState(8, range(8))
        state.table("one")
        return state

    def set(self, keys: list[int], value: Any) -> None:
        for key in keys:
            self.state.table("one")[key] = value
        self.state.change(keys)

    def delete(self, keys: list[int]) -> None:
        for key in keys:
            self.state.table("one").pop(key, None)
        self.state.change(keys)

    def snapshot(self, *, stored: bool) -> None:
        """Check what a restore would find."""
        self.written = self.state.snapshot()
        self.built_on = sorted(self.state.builds_on()["one"])
        later = self.read()
        assert later.table("one") == self.state.table("one")
        if stored:
            path = f"{len(self.files):05}"
            self.files[path] = self.written
            self.state.on_stored(path)

    def read(self, *, same_place: bool = False) -> KeyedState:
        state = self._new()
        for path in self.built_on:
            state.restore(self.files[path], filter_groups=False)
            if same_place:
                state.on_stored(path)
        state.restore(self.written, filter_groups=False)
        return state

    def restore(self, *, same_place: bool) -> None:
        self.state = self.read(same_place=same_place)


KEYS = st.lists(st.integers(0, 25), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("snapshot"), st.booleans()),
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
            case "restore":
                stored.snapshot(stored=True)
                stored.restore(same_place=how)
    stored.snapshot(stored=True)


def test_little_is_written_and_few_files_are_built_on() -> None:
    stored = Stored()
    stored.set(list(range(6400)), 0)
    stored.snapshot(stored=True)
    full = len(stored.written["one"])
    for turn in range(200):
        stored.set([turn, turn + 3000], turn)
        stored.delete([turn + 2000])
        stored.snapshot(stored=True)
        assert len(stored.written["one"]) < full / 20
        assert len(stored.built_on) <= 2 * 64 + 1


def test_small_state_is_written_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 100)
    stored = Stored()
    stored.set(list(range(100)), 0)
    for turn in range(3):
        stored.set([turn], turn)
        stored.snapshot(stored=True)
        assert stored.built_on == []
