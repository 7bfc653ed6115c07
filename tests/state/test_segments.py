"""Incremental snapshots against a plain model: whatever is lost on the way, the files hold it all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.state import segments
from minirt.state.segments import Segments


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 2)


class Model:
    """Versions of slots, and files that hold some of them. Each snapshot must find the newest of all."""

    def __init__(self) -> None:
        self.segments = Segments()
        self.versions: list[int] = []
        self.files: dict[str, dict[int, int]] = {}
        self.number = 0
        self.built_on: list[str] = []
        """The files that the last snapshot built on."""

    def update(self, slots: list[int]) -> None:
        new = max([*slots, len(self.versions) - 1]) + 1 - len(self.versions)
        touched = sorted({*slots, *range(len(self.versions), len(self.versions) + new)})
        self.versions += [0] * new
        self.segments.make_room(len(self.versions))
        for slot in touched:
            self.versions[slot] += 1
        self.segments.change(np.array(touched, np.intp))

    def snapshot(self, *, stored: bool) -> int:
        """Check what a restore would find; how many slots were written."""
        slots = np.flatnonzero(self.segments.next())
        self.number += 1
        path = f"{self.number:05}"
        written = {slot: self.versions[slot] for slot in slots.tolist()}
        found: dict[int, int] = {}
        self.built_on = sorted(self.segments.paths())
        for older in self.built_on:
            found |= self.files[older]
        assert found | written == dict(enumerate(self.versions))
        if stored:
            self.files[path] = written
            self.segments.stored(path)
        return len(slots)

    def restore(self, *, same_place: bool) -> None:
        """Start anew from what the last snapshot that was stored builds on, and itself."""
        older = [*self.built_on, list(self.files)[-1]]
        self.segments = Segments()
        self.segments.make_room(len(self.versions))
        for path in older:
            content = self.files[path]
            self.segments.hand_over(np.array(list(content), np.intp))
            if same_place:
                self.segments.stored(path)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.lists(st.integers(0, 40), min_size=1, max_size=6)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("restore"), st.booleans()),
    ),
    max_size=60,
)


@given(STEPS)
def test_a_snapshot_and_what_it_builds_on_hold_the_newest_of_all(
    steps: list[tuple[str, object]],
) -> None:
    model = Model()
    for action, how in steps:
        if action == "update":
            model.update(how)  # type: ignore[arg-type]
        elif action == "snapshot":
            model.snapshot(stored=bool(how))
        elif model.versions:
            model.snapshot(stored=True)
            model.restore(same_place=bool(how))
    model.snapshot(stored=True)


def test_little_is_written_and_few_files_are_built_on() -> None:
    model = Model()
    model.update(list(range(6400)))
    assert model.snapshot(stored=True) == 6400
    for turn in range(200):
        model.update([turn, turn + 3000])
        assert model.snapshot(stored=True) <= 2 + 100
        assert len(model.built_on) <= 65


def test_as_much_is_written_again_as_has_changed() -> None:
    """So that frequent changes do not pile up."""
    model = Model()
    model.update(list(range(1000)))
    model.snapshot(stored=True)
    for turn in range(50):
        model.update(list(range(100 * (turn % 7), 100 * (turn % 7) + 100)))
        model.snapshot(stored=True)
        assert len(model.built_on) <= 11


def test_nothing_is_built_on_where_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "STRETCH_MIN", 50)
    model = Model()
    model.update(list(range(50)))
    for _ in range(3):
        assert model.snapshot(stored=True) == 50
        assert model.built_on == []


def test_after_a_restore_nothing_is_written_twice_but_the_stretch() -> None:
    model = Model()
    model.update(list(range(6400)))
    model.snapshot(stored=True)
    model.restore(same_place=True)
    assert model.snapshot(stored=True) == 100
    model.restore(same_place=False)
    assert model.snapshot(stored=True) == 6400
