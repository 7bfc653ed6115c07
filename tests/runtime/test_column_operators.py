"""Operators on columns, by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minirt as rt
from minirt.data.batch import Batch, Columns, Rows
from minirt.data.codec import RowCodec
from minirt.graph.operator_spec import Reading
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.operators.common.base import Operator, OperatorContext
from minirt.operators.filter import FilterColumnsOperator
from minirt.operators.map_batches import MapBatchesOperator
from minirt.operators.project import ProjectOperator
from minirt.runtime.input.elements import Data
from minirt.runtime.input.input import InputParts
from minirt.runtime.input.recovered import RestoredInput
from minirt.runtime.input.source_input import SourceInput

CTX = OperatorContext(
    "op", "op", 0, 1, 1, 1, lambda: 0.0, False, lambda _: None, lambda _: lambda _: None
)
TABLE = pa.record_batch({"n": [1, 2, 3]})


@pytest.fixture
def emitted() -> list[Batch]:
    return []


@pytest.fixture
def operators(emitted: list[Batch]) -> list[Operator]:
    ctx = OperatorContext(
        "op", "op", 0, 1, 1, 1, lambda: 0.0, False, emitted.append, lambda tag: emitted.append
    )
    return [
        FilterColumnsOperator(ctx, pc.field("n") > 1),
        ProjectOperator(ctx, ("n",), [("m", pc.field("n"))]),
        MapBatchesOperator(ctx, lambda table: table, "columns"),
    ]


@pytest.mark.parametrize("empty", [Rows([]), Rows([], []), Columns(TABLE.slice(0, 0))])
def test_batches_without_records_are_passed_over(
    operators: list[Operator], emitted: list[Batch], empty: Batch
) -> None:
    for operator in operators:
        operator.process(empty, 0)
    assert emitted == []


def test_a_filter_that_keeps_nothing_emits_nothing(
    operators: list[Operator], emitted: list[Batch]
) -> None:
    operators[0].process(Columns(TABLE.slice(0, 1)), 0)
    assert emitted == []


def test_rows_keep_their_timestamps_as_columns(
    operators: list[Operator], emitted: list[Batch]
) -> None:
    for operator in operators:
        operator.process(Rows([{"n": 1}, {"n": 2}], [10, 20]), 0)
    assert [batch.rows().timestamps for batch in emitted] == [[20], [10, 20], [10, 20]]
    assert all(isinstance(batch, Columns) for batch in emitted)


@pytest.mark.parametrize(
    ("records", "in_a_row"),
    [([{"n": 1}] * 3000, 256), (pa.table({"n": [1] * 3000}), 1024)],
    ids=["rows", "columns"],
)
def test_columns_of_splits_that_are_read_side_by_side_come_many_at_a_time(
    records: Any, in_a_row: int
) -> None:
    source = rt.CollectionSource(records, splits=2)
    source.interleave = True
    splits = list(enumerate(source.plan_splits(1)))
    parts = InputParts({}, RowCodec(), SubtaskMetrics(), RestoredInput())
    input = SourceInput(replace(CTX, splits=splits), Reading(source), parts)
    first = input.poll()
    assert isinstance(first, Data)
    assert len(first.batch) == in_a_row
