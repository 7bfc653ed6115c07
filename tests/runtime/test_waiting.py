"""How long a worker waits when none of its subtasks has anything to do."""

from __future__ import annotations

import pytest

from minirt.runtime.worker import waiting_s


@pytest.mark.parametrize(
    ("wakes", "seconds"),
    [
        ([7.25], 2.25),
        ([7.0, 6.0, None], 1.0),
        ([7.0, 5.0], 0.0),
        ([7.0, 4.75, 5.5], 0.0),
    ],
    ids=["one", "the first", "due now", "due since the subtasks were asked for work"],
)
def test_it_waits_for_the_first_moment(wakes: list[float | None], seconds: float) -> None:
    assert waiting_s(wakes, now=5.0) == seconds
