"""Column expressions on record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.data import expressions
from minirt.data.batch import Columns
from minirt.data.expressions import Conditions, Evaluation, ExpressionError, Named, Projection

TABLE = pa.record_batch({"a": [1, None, 3], "b": ["x", "y", None]})


def mask(table: pa.RecordBatch, expression: pc.Expression) -> npt.NDArray[np.bool_]:
    [found] = Conditions([expression]).masks(table)
    return found


def test_null_is_not_true() -> None:
    assert mask(TABLE, pc.field("a") > 1).tolist() == [False, False, True]


def test_kept_columns_come_first_and_are_not_copied() -> None:
    result = Projection(("b",), [("twice", pc.field("a") * 2), ("one", pc.scalar(1))]).of(TABLE)
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
    result = Projection(None, [("a", pc.field("b")), ("c", pc.field("a"))]).of(TABLE)
    assert result.to_pydict() == {"a": ["x", "y", None], "b": ["x", "y", None], "c": [1, None, 3]}


def test_nothing_but_what_the_expressions_need_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed: list[list[str]] = []
    computed = expressions._computed

    def watched(given: Sequence[Named], table: pa.RecordBatch) -> list[pa.Array]:
        if table.num_rows:
            handed.append(table.schema.names)
        return computed(given, table)

    monkeypatch.setattr(expressions, "_computed", watched)
    wide = pa.record_batch({"a": [1, 2], "b": ["x", "y"], "s": [{"n": 3}, {"n": 4}], "c": [5, 6]})
    evaluation = Evaluation(
        [
            ("n", pc.field("s", "n")),
            ("more", pc.field("c") + pc.field("s", "n")),
            ("b", pc.field("b")),
        ]
    )
    for table in (wide, wide.select(["c", "b", "s"])):
        found = [value.to_pylist() for value in evaluation.values(table)]
        assert found == [[3, 4], [8, 10], ["x", "y"]]
    assert Evaluation([("one", pc.scalar(1))]).values(wide)[0].to_pylist() == [1, 1]
    named = [("n", pc.field("s", "n")), ("s", pc.field("s")), ("a", pc.field("a"))]
    assert Evaluation(named).values(wide)[0].to_pylist() == [3, 4]
    assert handed == [["s", "c"], ["c", "s"], ["a"]]


INNER = pa.struct([("n", pa.int64()), ("t", pa.dictionary(pa.int8(), pa.string()))])
NAMED_ALIKE = pa.schema(
    [
        ("add(a, b)", pa.int64()),
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("s", pa.struct([("n", pa.int64()), ("s", INNER), ("n.n", pa.string())])),
        ("s.n", pa.string_view()),
    ]
)
INTS = st.none() | st.integers(-5, 5)
TEXTS = st.none() | st.sampled_from(["x", "y", "longer than twelve bytes"])
INNERS = st.none() | st.fixed_dictionaries({"n": INTS, "t": TEXTS})
RECORDS = st.fixed_dictionaries(
    {
        "add(a, b)": INTS,
        "a": INTS,
        "b": INTS,
        "s": st.none() | st.fixed_dictionaries({"n": INTS, "s": INNERS, "n.n": TEXTS}),
        "s.n": TEXTS,
    }
)
NAMES = [
    *(("add(a, b)",), ("a",), ("s",), ("s.n",), ("s", "n")),
    *(("s", "s"), ("s", "n.n"), ("s", "s", "n"), ("s", "s", "t")),
]


@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(0, 3))
def test_fields_that_are_only_named_are_those_that_acero_gives(
    records: list[dict[str, Any]], skipped: int
) -> None:
    table = pa.RecordBatch.from_pylist(records, NAMED_ALIKE)
    table = table.slice(min(skipped, len(records) - 1))
    named = [(str(place), pc.field(*names)) for place, names in enumerate(NAMES)]
    named.append(("sum", pc.add(pc.field("a"), pc.field("b"))))
    picked, computed = Evaluation(named).values(table), expressions._computed(named, table)
    for (_, expression), one, other in zip(named, picked, computed, strict=True):
        assert one.type == other.type, expression
        assert one.to_pylist() == other.to_pylist(), expression


def test_names_that_two_columns_have_are_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ExpressionError, match="cannot compute a: Multiple matches"):
        Evaluation([("x", pc.field("a"))]).values(twice)


def test_columns_may_be_named_by_their_places() -> None:
    wide = pa.record_batch({"a": [1], "b": [2], "c": [3]})
    [found] = Evaluation([("x", pc.field(1) * 10)]).values(wide)
    assert found.to_pylist() == [20]


def test_long_batches_keep_their_order() -> None:
    numbers = pa.record_batch({"n": np.arange(300_000)})
    result = Projection((), [("n", pc.field("n") + 1)]).of(numbers)
    assert result.column("n").to_numpy().tolist() == list(range(1, 300_001))
    assert mask(numbers, pc.field("n") < 100_000).sum() == 100_000


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_without_records_have_the_same_columns(rows: int) -> None:
    table = TABLE.slice(0, rows)
    assert Projection(("a",), [("c", pc.field("a") / 2)]).of(table).schema.names == ["a", "c"]
    assert len(mask(table, pc.field("a") > 0)) == rows


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
        mask(TABLE, expression)


def test_a_column_to_keep_must_be_there() -> None:
    with pytest.raises(ExpressionError, match="no column 'z'; there are a, b"):
        Projection(("z",), []).of(TABLE)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_records_are_picked_from_columns_of_any_kind(kind: pa.DataType) -> None:
    words = pa.array(["a", None, "c" * 50], pa.string()).cast(kind)
    picked = Columns(pa.record_batch({"w": words}), np.array([1, 2, 3])).where(
        np.array([True, False, True])
    )
    assert picked.table.schema.field("w").type == kind
    assert picked.rows().records == [{"w": "a"}, {"w": "c" * 50}]
    assert picked.rows().timestamps == [1, 3]
