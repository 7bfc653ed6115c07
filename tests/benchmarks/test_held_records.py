"""The cases of `benchmarks.held_records`."""

from __future__ import annotations

import pytest

from benchmarks.held_records import CASES, measure


@pytest.mark.parametrize("case", CASES)
def test_operators_that_hold_records_are_timed(case: str) -> None:
    row = measure(case, 4000, 500)
    assert row["results"] > 1000
    assert row["cpu_us_per_event"] > 0


def test_a_join_has_the_same_pairs_in_batches_of_any_size() -> None:
    assert measure("join", 4000, 500)["results"] == measure("join", 4000, 4000)["results"]
