"""What a source subtask reads by the limit of its drift group, and what it tells of itself."""

from __future__ import annotations

import numpy as np
import pytest

from minirt.protocol.drift import HOLDS_NOBODY, Progress
from minirt.runtime.input.drift import DriftGate

BOUND_MS, DRIFT_MS = 4, 80


class Gate(DriftGate):
    def __init__(self) -> None:
        self.told: list[Progress] = []
        super().__init__("g", DRIFT_MS, BOUND_MS, self.told.append)


def times(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_until_a_limit_comes_the_first_record_decides() -> None:
    gate = Gate()
    assert not gate.holds(None)
    assert gate.allowed(times(100)) == 1
    assert gate.allowed(times(175, 180, 181, 182)) == 3
    assert not gate.holds(180)
    assert gate.holds(181)


def test_a_limit_is_one_of_watermarks() -> None:
    """The watermark of a split is the bound, and a millisecond, behind its newest record."""
    gate = Gate()
    assert gate.limit("g", 1000)
    assert not gate.holds(1000 + BOUND_MS + 1)
    assert gate.holds(1000 + BOUND_MS + 2)
    assert gate.allowed(times(1005, 1000, 1005)) == 3
    assert gate.allowed(times(1005, 1006, 1007)) == 2


def test_the_first_record_beyond_the_limit_is_read() -> None:
    gate = Gate()
    gate.limit("g", 0)
    assert gate.allowed(times(1_000_000, 1_000_001)) == 1


def test_a_step_is_emitted_by_itself_to_be_told_early() -> None:
    gate = Gate()
    gate.limit("g", 1_000_000)
    assert gate.allowed(times(100, 105, 110, 111, 112)) == 4


def test_limits_of_other_groups_are_not_for_it() -> None:
    gate = Gate()
    assert not gate.limit("h", 5)
    assert not gate.holds(1_000_000)


def test_what_is_less_than_a_step_is_no_news() -> None:
    gate = Gate()
    for watermark in (10, 10, 19, 20, 21, 30):
        gate.report(Progress(watermark, complete=True))
    assert [one.watermark for one in gate.told] == [10, 20, 30]


@pytest.mark.parametrize("other", [HOLDS_NOBODY, Progress(10, complete=False), Progress(9, True)])
def test_all_else_is_told_at_once(other: Progress) -> None:
    gate = Gate()
    for progress in (Progress(10, complete=True), other, other, Progress(90, complete=True)):
        gate.report(progress)
    assert gate.told == [Progress(10, True), other, Progress(90, True)]
