"""`map_batches` and event time: results have that of the record they come from, or the job fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.operators.common.base import OperatorContext
from minirt.operators.map_batches import MapBatchesOperator

Record = dict[str, Any]
WAY_OUT = "timestamp="


def results(
    function: Any, form: str, cuts: list[list[Record]], timestamp: Any = None
) -> Counter[tuple[Any, int]]:
    """What is given out, each record with its event time, which is in `at` of what goes in."""
    found: list[Batch] = []
    ctx = OperatorContext(
        "op", "op", 0, 1, 1, 1, lambda: 0.0, False, found.append, lambda _: found.append
    )
    operator = MapBatchesOperator(ctx, function, form, timestamp)
    for records in cuts:
        times = [record["at"] for record in records]
        batch: Batch = Rows([dict(record) for record in records], times)
        if form == "columns":
            batch = Columns(pa.RecordBatch.from_pylist(records), np.array(times))
        operator.process(batch, 0)
    told: Counter[tuple[Any, int]] = Counter()
    for batch in found:
        rows = batch.rows()
        assert rows.timestamps is not None
        for record, time in zip(rows.records, rows.timestamps, strict=True):
            told[tuple(sorted(record.items())), time] += 1
    return told


def picked(places: Callable[[list[Record]], list[int]], form: str, *, same: bool) -> Any:
    """A function of batches that gives the records at these places: the same objects, or new ones."""
    if form == "columns":
        return lambda table: table.take(pa.array(places(table.to_pylist()), pa.int64()))
    return lambda records: [
        records[place] if same else dict(records[place]) for place in places(records)
    ]


PLACES: dict[str, Callable[[list[Record]], list[int]]] = {
    "filter": lambda rs: [p for p, r in enumerate(rs) if r["n"] % 3],
    "all": lambda rs: [*range(len(rs))],
    "backwards": lambda rs: [*reversed(range(len(rs)))],
    "sorted": lambda rs: sorted(range(len(rs)), key=lambda p: (rs[p]["n"] % 4, p)),
    "expanded": lambda rs: [p for p, r in enumerate(rs) for _ in range(r["n"] % 3)],
    "each twice": lambda rs: [p for p in range(len(rs)) for _ in range(2)],
}


@st.composite
def batches(draw: st.DrawFn) -> list[list[Record]]:
    times = draw(st.lists(st.integers(0, 12), min_size=1, max_size=14))
    records = [{"n": n, "at": at, "k": "ab"[n % 2]} for n, at in enumerate(times)]
    ends = sorted({*draw(st.lists(st.integers(1, len(records)), max_size=3)), len(records)})
    return [records[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@settings(deadline=None, max_examples=200)
@given(
    name=st.sampled_from(sorted(PLACES)),
    form=st.sampled_from(["rows", "columns"]),
    same=st.booleans(),
    cuts=batches(),
)
def test_records_keep_their_event_time_whatever_becomes_of_the_batch(
    name: str, form: str, same: bool, cuts: list[list[Record]]
) -> None:
    found = results(picked(PLACES[name], form, same=same), form, cuts)
    assert all(dict(record)["at"] == time for record, time in found)
    whole = [record for records in cuts for record in records]
    expected = Counter(tuple(sorted(whole[p].items())) for p in PLACES[name](whole))
    assert Counter({record: count for (record, _), count in found.items()}) == expected


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_without_anything_that_tells_it_the_job_fails_and_says_what_to_do(form: str) -> None:
    records = [{"n": n, "at": 10 * n} for n in range(4)]

    def without_time(batch: Any) -> Any:
        if form == "columns":
            return batch.slice(1).select(["n"])
        return [{"n": record["n"]} for record in batch[1:]]

    with pytest.raises(rt.UserCodeError, match=f"operator op: .* 4 records .* 3, .*{WAY_OUT}"):
        results(without_time, form, [records])


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_timestamp_tells_the_event_time_of_results(form: str) -> None:
    records = [{"n": n, "at": 10 * n} for n in range(4)]

    def renamed(batch: Any) -> Any:
        if form == "columns":
            return batch.slice(2).rename_columns(["n", "then"])
        return [{"n": record["n"], "then": record["at"]} for record in batch[2:]]

    expected = {((("n", n), ("then", 10 * n)), 10 * n): 1 for n in (2, 3)}
    assert results(renamed, form, [records], "then") == expected
    assert results(renamed, form, [records], lambda record: record["then"]) == expected
    with pytest.raises(rt.UserCodeError, match=r"operator op: .*event time of results: .*'gone'"):
        results(renamed, form, [records], "gone")


def test_a_field_that_is_changed_where_it_is_moves_no_event_time() -> None:
    records = [{"n": n, "at": at} for n, at in enumerate((10, 12, 20))]
    cut = results(lambda rs: [{**r, "at": r["at"] // 10 * 10} for r in rs], "rows", [records])
    assert sorted(time for _, time in cut) == [10, 12, 20]


def test_values_that_are_one_object_tell_nothing() -> None:
    found: list[Batch] = []
    ctx = OperatorContext(
        "op", "op", 0, 1, 1, 1, lambda: 0.0, False, found.append, lambda _: found.append
    )
    operator = MapBatchesOperator(ctx, lambda numbers: [n % 2 for n in numbers], "rows")
    operator.process(Rows([0, 1, 2, 3], [5, 6, 7, 8]), 0)
    assert found[0].rows().timestamps == [5, 6, 7, 8]
    fewer = MapBatchesOperator(ctx, lambda numbers: numbers[1:], "rows")
    with pytest.raises(rt.UserCodeError, match=WAY_OUT):
        fewer.process(Rows([0, 0, 1], [5, 6, 7]), 0)


@pytest.mark.parametrize("timestamp", ["", 5])
def test_what_is_no_timestamp_is_refused(timestamp: Any) -> None:
    stream = rt.Environment().source(rt.SequenceSource(3))
    with pytest.raises(rt.ConfigurationError, match="timestamp is a column name or a function"):
        stream.map_batches(list, timestamp=timestamp)
