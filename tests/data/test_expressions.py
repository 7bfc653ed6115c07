"""Column expressions on record batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from minirt.data.batch import Columns
from minirt.data.expressions import ExpressionError, condition, project

TABLE = pa.record_batch({"a": [1, None, 3], "b": ["x", "y", None]})


def test_null_is_not_true() -> None:
    assert condition(TABLE, pc.field("a") > 1).tolist() == [False, False, True]


def test_kept_columns_come_first_and_are_not_copied() -> None:
    result = project(TABLE, ("b",), [("twice", pc.field("a") * 2), ("one", pc.scalar(1))])
    assert result.to_pydict() == {
        "b": ["x", "y", None],
        "twice": [2, None, 6],
        "one": [1, 1, 1],
    }
    kept, given = result.column("b").buffers()[-1], TABLE.column("b").buffers()[-1]
    assert kept is not None
    assert given is not None
    assert kept.address == given.address


def test_a_computed_column_replaces_one_of_its_name_in_its_place() -> None:
    result = project(TABLE, None, [("a", pc.field("b")), ("c", pc.field("a"))])
    assert result.to_pydict() == {"a": ["x", "y", None], "b": ["x", "y", None], "c": [1, None, 3]}


def test_long_batches_keep_their_order() -> None:
    numbers = pa.record_batch({"n": np.arange(300_000)})
    result = project(numbers, (), [("n", pc.field("n") + 1)])
    assert result.column("n").to_numpy().tolist() == list(range(1, 300_001))
    assert condition(numbers, pc.field("n") < 100_000).sum() == 100_000


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_without_records_have_the_same_columns(rows: int) -> None:
    table = TABLE.slice(0, rows)
    assert project(table, ("a",), [("c", pc.field("a") / 2)]).schema.names == ["a", "c"]
    assert len(condition(table, pc.field("a") > 0)) == rows


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pc.field("z") > 1, "there is no column 'z'; there are a, b"),
        (pc.field("a") > "x", r"cannot compute \(a > \"x\"\): .*no kernel"),
        (pc.field("a") + 1, r"add_checked\(a, 1\) is of type int64"),
        (pc.field("a") / 0 > 1, "cannot compute .* divide by zero"),
    ],
)
def test_what_has_no_value_is_named(expression: pc.Expression, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        condition(TABLE, expression)


def test_a_column_to_keep_must_be_there() -> None:
    with pytest.raises(ExpressionError, match="no column 'z'; there are a, b"):
        project(TABLE, ("z",), [])


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_records_are_picked_from_columns_of_any_kind(kind: pa.DataType) -> None:
    words = pa.array(["a", None, "c" * 50], pa.string()).cast(kind)
    picked = Columns(pa.record_batch({"w": words}), np.array([1, 2, 3])).where(
        np.array([True, False, True])
    )
    assert picked.table.schema.field("w").type == kind
    assert picked.rows().records == [{"w": "a"}, {"w": "c" * 50}]
    assert picked.rows().timestamps == [1, 3]
