"""Joins keep to the contract of operators, and free what can have no partners any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.common.join_bounds import Lasting, SameWindow, Within
from minirt.operators.join import JoinSpec
from minirt.operators.join_as_of import AsOf, AsOfJoinSpec
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.testing.contracts import Advance, Event, Given, OperatorContract, Result


def rows(first: int, count: int, input: int = 0) -> Given:
    """Records of five keys, one of them null, in order of their times."""
    numbers = range(first, first + count)
    name = "left" if input == 0 else "right"
    records = [{"k": None if n % 5 == 4 else f"key {n % 5}", name: n} for n in numbers]
    return Given(records, [10 * n for n in numbers], input)


EVENTS: tuple[Event, ...] = (
    rows(1, 7),
    rows(0, 9, 1),
    Advance(30),
    rows(8, 5),
    rows(10, 8, 1),
    Advance(75),
    rows(20, 3, 1),
    rows(13, 7),
    Advance(150),
)


class TestInterval(OperatorContract):
    keys: ClassVar = ("k", "k")
    how: ClassVar[Any] = "full"

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return JoinSpec(Within(-60, 20), self.how)

    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return EVENTS

    def settled(self, results: Sequence[Result]) -> Any:
        """The columns of a side of which nothing has come are not there."""
        names = "k", "left", "right"
        return Counter((tag, *map(row.get, names)) for tag, row, _ in results)


class TestLeft(TestInterval):
    how: ClassVar = "left"


class TestInner(TestInterval):
    how: ClassVar = "inner"


class TestSemi(TestInterval):
    how: ClassVar = "semi"


class TestAnti(TestInterval):
    how: ClassVar = "anti"


class TestWindow(TestInterval):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return JoinSpec(SameWindow(50, 0), "full")


class TestTtl(TestInterval):
    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return TtlJoinSpec(Lasting(3_600_000), self.how)


class TestTtlInner(TestTtl):
    how: ClassVar = "inner"


class TestTtlSemi(TestTtl):
    how: ClassVar = "semi"


class TestTtlAnti(TestTtl):
    how: ClassVar = "anti"


class TestTtlWithoutEventTime(TestTtl):
    @pytest.fixture
    def events(self) -> Sequence[Event]:
        return [Given(e.records, None, e.input) for e in EVENTS if isinstance(e, Given)]


class TestAsOf(TestInterval):
    tolerance: ClassVar[int | None] = None

    @pytest.fixture
    def spec(self) -> OperatorSpec:
        return AsOfJoinSpec(AsOf(self.tolerance), "left")


class TestAsOfWithTolerance(TestAsOf):
    tolerance: ClassVar = 40
