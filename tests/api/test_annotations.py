"""Annotations that name what only type checkers know: from Python 3.14 on, asking for them fails."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import minirt as rt

FUNCTIONS = """
from typing import TYPE_CHECKING

import minirt as rt
from minirt.partitionings import Rebalance

if TYPE_CHECKING:
    from orders import Order


def doubled(record: Order) -> Order:
    return record * 2


def kind(record: Order) -> Order:
    return record % 3


async def asked(record: Order) -> Order:
    return record


class Total(rt.KeyedProcess):
    total: rt.ValueState[Order] = rt.ValueState(0)

    def process(self, record: Order, ctx: rt.KeyedContext) -> list[Order]:
        self.total.value += record
        return [self.total.value]


class Dealt(Rebalance):
    weight: Order
"""

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="such functions cannot be written before Python 3.14"
)


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which knows no future: this file's own annotations are never evaluated."""
    module = ModuleType("functions_of_orders")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(FUNCTIONS, "functions.py", "exec", dont_inherit=True), vars(module))
    return module


def test_a_job_of_such_functions_runs(functions: Any) -> None:
    watermarks = rt.Watermarks.monotonous(timestamp=functions.doubled)
    stream = rt.Environment().source(rt.CollectionSource([1, 2, 4]), watermarks=watermarks)
    stream = stream.map(functions.doubled).map_async(functions.asked)
    assert stream.key_by(functions.kind).process(functions.Total()).collect() == [2, 4, 10]


def test_a_partitioning_may_have_such_fields(functions: Any) -> None:
    functions.Dealt.check_facts()


def test_a_function_that_travels_by_value_is_refused_with_what_to_do(functions: Any) -> None:
    functions.doubled.__module__ = functions.asked.__module__ = "__main__"
    env = rt.Environment()
    env.source(rt.CollectionSource([1])).map(functions.doubled).sink(rt.DiscardSink())
    with pytest.raises(rt.ConfigurationError, match="begin its file with `from __future__ import"):
        env.execute()
