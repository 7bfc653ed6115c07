"""An aggregate of one's own is an ordinary class: it may have parameters."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import minirt as rt
from minirt.errors import ConfigurationError


class Above(rt.Fold):
    """How many values are above a bound."""

    def __init__(self, column: str, bound: int) -> None:
        self.bounds = [bound]
        super().__init__(column, f"above_{bound}", pa.int64())
        self.bound = bound

    def of(self, values: pa.Array) -> Any:
        return sum(value > self.bound for value in values.to_pylist())

    def merge(self, earlier: Any, later: Any) -> Any:
        assert self.bounds == [self.bound]
        return earlier + later


class Forgets(Above):
    def __init__(self) -> None:
        self.bound = 3


class TwoBounds(Above):
    """Its parent has parameters of its own."""

    def __init__(self, column: str, low: int, high: int) -> None:
        super().__init__(column, low)
        self.high = high

    def of(self, values: pa.Array) -> Any:
        return sum(self.bound < value < self.high for value in values.to_pylist())


@pytest.mark.parametrize("runner", ["inline", "processes"])
def test_parameters_are_there_wherever_it_runs(runner: Any) -> None:
    env, out = rt.Environment(), rt.CollectSink()
    rows = env.source(rt.CollectionSource([{"k": 1, "v": v} for v in range(10)])).key_by("k")
    totals = rows.aggregate(Above("v", 6), Above("v", 2), TwoBounds("v", 4, 8), emit="end")
    totals.sink(out)
    env.execute(runner=runner)
    assert out.rows == [{"k": 1, "above_6": 3, "above_2": 7, "above_4": 3}]


def test_the_constructor_of_fold_has_to_be_called() -> None:
    env = rt.Environment()
    rows = env.source(rt.CollectionSource([{"k": 1, "v": 1}])).key_by("k")
    with pytest.raises(ConfigurationError, match="Forgets must call super"):
        rows.aggregate(Forgets())


@pytest.mark.parametrize("type", [None, int, "int64"])
def test_the_type_of_the_results_has_to_be_said(type: Any) -> None:
    class Longest(rt.Fold):
        of = merge = Above.merge

    with pytest.raises(ConfigurationError, match="Longest of column 'v': say of which type"):
        Longest("v", "longest", type)


def test_a_type_may_follow_from_that_of_the_column() -> None:
    class Middle(rt.Fold):
        of = merge = Above.merge

        def result_type(self, type: pa.DataType) -> pa.DataType:
            return type

    assert Middle("v").result_type(pa.int8()) == pa.int8()


def test_fields_do_not_change() -> None:
    with pytest.raises(AttributeError, match="column"):
        Above("v", 1).column = "w"  # type: ignore[misc]
