"""What a subtask does again behind a snapshot, put together from the segments of its log."""

from __future__ import annotations

import pytest

from minirt.protocol.service_order import (
    InputOver,
    OrderSince,
    Passed,
    Segment,
    Served,
    order_since,
)

FIRST = Segment((), (Served(0, 3), Passed(7), Served(1, 2)), next=2)
SECOND = Segment((Passed(7, True),), (Passed(None, False), Served(1, 4)), next=1_000_001)
LATER_LIFE = Segment((Passed(7, False),), (Served(0, 1), InputOver()))
SEGMENTS = {1: FIRST, 2: SECOND, 1_000_001: LATER_LIFE}


@pytest.mark.parametrize(
    ("number", "again"),
    [
        (
            1,
            [
                *(Served(0, 3), Passed(7), Served(1, 2), Passed(None, False), Served(1, 4)),
                *(Served(0, 1), InputOver()),
            ],
        ),
        (2, [Passed(7, True), Passed(None, False), Served(1, 4), Served(0, 1), InputOver()]),
        (1_000_001, [Passed(7, False), Served(0, 1), InputOver()]),
    ],
)
def test_it_begins_with_the_event_time_of_its_own_snapshot_alone(
    number: int, again: list[object]
) -> None:
    assert order_since(number, SEGMENTS) == OrderSince(tuple(again), 1_000_001)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [1, 2, 1_000_001], ids=["first", "one between", "last"])
def test_a_log_with_a_gap_is_no_log(missing: int) -> None:
    kept = {number: one for number, one in SEGMENTS.items() if number != missing}
    assert order_since(1, kept) is None
    assert (order_since(1_000_001, kept) is None) == (missing == 1_000_001)


def test_a_segment_that_nobody_went_on_with_counts_for_nothing() -> None:
    """The process was killed when it had begun the next segment, and had not ended the one before."""
    open_end = Segment((), (Served(0, 3),))
    assert order_since(1, {1: open_end, 2: SECOND}) == OrderSince((Served(0, 3),), 1)
