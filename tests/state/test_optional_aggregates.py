"""Snapshots of tables whose aggregates are not all the same as those of the table that takes them over."""

from __future__ import annotations

import pyarrow as pa
import pytest

from minirt.aggregates import Aggregate, Max, Sum
from minirt.errors import ConfigurationError
from minirt.state.array_table import ArrayTable
from minirt.state.sections import section_bytes

SUM, NEWEST = Sum("v", "sum"), Max("at", "newest")


def table(*aggregates: Aggregate, optional: tuple[Aggregate, ...] = (NEWEST,)) -> ArrayTable:
    return ArrayTable(["k"], aggregates, "sums", optional=optional)


def stored(*aggregates: Aggregate, v: int) -> bytes:
    taking = table(*aggregates)
    taking.add_rows(pa.RecordBatch.from_pylist([{"k": "a", "v": v, "at": 7}]), None)
    section = taking.snapshot()
    assert section is not None
    return section_bytes(section)


def held(found: ArrayTable) -> list[dict[str, object]]:
    results, _ = found.results(found.live())
    rows: list[dict[str, object]] = results.to_pylist()
    return rows


def test_what_a_newer_segment_does_not_have_is_not_left_of_an_older_one() -> None:
    taking_over = table(SUM, NEWEST)
    taking_over.restore(stored(SUM, NEWEST, v=1), None, 8)
    assert held(taking_over) == [{"k": "a", "sum": 1, "newest": 7}]
    taking_over.restore(stored(SUM, v=2), None, 8)
    assert held(taking_over) == [{"k": "a", "sum": 2, "newest": None}]


def test_what_the_table_does_not_have_is_left_out() -> None:
    taking_over = table(SUM)
    taking_over.restore(stored(SUM, NEWEST, v=1), None, 8)
    assert held(taking_over) == [{"k": "a", "sum": 1}]


@pytest.mark.parametrize("own", [(SUM,), (SUM, NEWEST)])
def test_other_aggregates_are_refused(own: tuple[Aggregate, ...]) -> None:
    other = (SUM, NEWEST) if own == (SUM,) else (SUM,)
    with pytest.raises(ConfigurationError, match="sums: the checkpoint holds state of other keys"):
        table(*own, optional=()).restore(stored(*other, v=1), None, 8)
