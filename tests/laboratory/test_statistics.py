"""Medians, spread, and what counts as a difference."""

from __future__ import annotations

import pytest

from minirt.laboratory.statistics import Compared, Summary, compare, mann_whitney, percentile


def test_the_spread_is_that_of_the_runs_that_have_the_figure():
    assert Summary.of([3.0, None, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0, 3)
    assert Summary.of([None]) is None


# From tables of the exact distribution of U: twice the share of ways as extreme.
@pytest.mark.parametrize(
    ("one", "two", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 2, 4], [3, 5, 6], 4 / 20),
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([1, 3, 5], [2, 4, 6], 14 / 20),
        ([1, 1, 1], [1, 1, 1], 1.0),
    ],
)
def test_the_p_value_is_that_of_all_ways_to_deal_the_values(one, two, p):
    assert mann_whitney(one, two) == pytest.approx(p)
    assert mann_whitney(two, one) == pytest.approx(p)


def test_many_runs_are_judged_by_the_normal_law():
    assert mann_whitney(list(range(15)), list(range(15, 30))) < 0.0001
    assert mann_whitney(list(range(0, 30, 2)), list(range(1, 31, 2))) > 0.5


def test_three_runs_that_do_not_overlap_differ():
    assert compare([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == Compared("differs", pytest.approx(0.1))


def test_runs_that_overlap_are_within_the_noise():
    assert compare([1.0, 2.0, 4.0], [3.0, 5.0, 6.0]).difference == "within the noise"


def test_of_two_runs_nothing_is_said():
    assert compare([1.0, 2.0], [4.0, 5.0, 6.0]) == Compared("too few runs", None)
    assert compare([1.0, 2.0, None], [4.0, 5.0, 6.0]) == Compared("too few runs", None)


def test_a_percentile_is_one_of_the_values():
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) is None
