"""Early results of windows: after each step they tell what windows hold, whatever was restored before."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.graph.keys import KeySelector
from minirt.operators.window import WindowSpec
from minirt.operators.window_rows import RowWindowSpec
from minirt.testing.contracts import Given
from minirt.testing.contracts.operating import Result, Subtasks
from minirt.windows import Emission
from tests.runtime.test_windows_oracle import (
    AGGREGATES,
    STEPS,
    Figures,
    milliseconds,
    numbered,
    sessions,
    stepwise,
    without_late,
)

View = dict[Any, tuple[int, int]]
"""Count and sum that count at the moment, by key and bounds."""
Step = tuple[str, Any]

UPDATES = Emission("updates")
EVERY_MS = 7
BY_EVENT_TIME = Emission("interval", EVERY_MS / 1000, "event")
NEVER = -(10**9)

# What one key and window may give out: a session that was taken back is gone.
LIFE = re.compile("(early )*(on_time )?(late )*(retracted )?")


def follow(results: Sequence[Result], view: View, lives: dict[Any, str]) -> None:
    for tag, r, _ in results:
        if tag:
            continue
        where = r["k"], milliseconds(r["window_start"]), milliseconds(r["window_end"])
        lives[where] += r["pane"] + " "
        if r["pane"] == "retracted":
            assert (r["n"], r["sum"]) == (None, None)
            del view[where]
        else:
            view[where] = r["n"], r["sum"]


def in_panes(steps: Sequence[Step], size: int, every: int, lateness: int) -> View:
    held: dict[Any, list[int]] = defaultdict(list)
    for key, time, value, seen in numbered(steps):
        for start in range(time // every * every, time - size, -every):
            if start + size - 1 + lateness > seen:
                held[key, start, start + size].append(value)
    return {where: (len(values), sum(values)) for where, values in held.items()}


def in_sessions(steps: Sequence[Step], gap: int) -> View:
    by_key: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, time, value, _ in numbered(steps):
        by_key[key].append((time, value))
    return {
        (key, start, end): (len(values), sum(values))
        for key, own in by_key.items()
        for start, end, values in sessions(own, gap)
    }


def check(window: rt.Window, steps: Sequence[Step], rows: bool, how: Any, wanted: Any) -> None:
    """With updates, what was given out tells at every step all that there is; with an interval, at every
    watermark of another interval."""
    view: View = {}
    lives: dict[Any, str] = defaultdict(str)
    turn = NEVER // EVERY_MS
    given = list(stepwise(window, steps, rows=rows, emission=how))
    for place, results in enumerate(given):
        follow(results, view, lives)
        seen = [what for step, what in steps[: place + 1] if step == "advance"]
        new_turn = max(seen, default=NEVER) // EVERY_MS
        if how == UPDATES or new_turn > turn or place == len(steps):
            assert view == wanted(steps[: place + 1])
        turn = max(turn, new_turn)
    for where, life in lives.items():
        assert LIFE.fullmatch(life), (where, life)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("how", [UPDATES, BY_EVENT_TIME], ids=["updates", "interval"])
@settings(deadline=None, max_examples=15)
@given(STEPS, st.sampled_from([(10, 10), (10, 5), (12, 8)]), st.integers(0, 9))
def test_windows_of_equal_size(
    rows: bool, how: Emission, steps: list[Step], sizes: tuple[int, int], lateness: int
) -> None:
    size, every = sizes
    late = f"{lateness}ms"
    window: rt.Window = rt.Tumbling(f"{size}ms", allowed_lateness=late)
    if every < size:
        window = rt.Sliding(f"{size}ms", f"{every}ms", allowed_lateness=late)
    check(window, steps, rows, how, lambda seen: in_panes(seen, size, every, lateness))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("how", [UPDATES, BY_EVENT_TIME], ids=["updates", "interval"])
@settings(deadline=None, max_examples=15)
@given(STEPS, st.integers(1, 12), st.booleans())
def test_sessions(rows: bool, how: Emission, steps: list[Step], gap: int, late: bool) -> None:
    """With a lateness that is never over, sessions take in all late records."""
    window = rt.Session(f"{gap}ms", allowed_lateness="1h" if late else 0)
    if not late:
        steps = without_late(steps)
    check(window, steps, rows, how, lambda seen: in_sessions(seen, gap))


@pytest.mark.parametrize("spec", [WindowSpec, RowWindowSpec])
def test_early_results_are_due_by_the_clock_after_a_restore(spec: Any) -> None:
    """Though no record comes: those before the restore may not have been given out."""
    window, how = rt.Tumbling("10ms"), Emission("interval", 0.5)
    made = (
        WindowSpec(AGGREGATES, window, how)
        if spec is WindowSpec
        else RowWindowSpec(window, process=Figures(), emission=how)
    )
    before = Subtasks(made, (KeySelector(("k",)),))
    assert before.operators[0].due_at is None
    before.feed(Given([{"k": "a", "v": 1}], [3]), columns=spec is WindowSpec)
    assert before.operators[0].due_at is not None
    after = Subtasks(made, (KeySelector(("k",)),), restore=before.snapshot("0"))
    assert after.operators[0].due_at is not None
    for _ in after.operators[0].on_due() or ():
        pass
    assert [(r["pane"], r["n"]) for _, r, _ in after.results] == [("early", 1)]
    assert after.operators[0].due_at is None
