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


def test_fields_do_not_change() -> None:
    with pytest.raises(AttributeError, match="column"):
        Above("v", 1).column = "w"  # type: ignore[misc]
