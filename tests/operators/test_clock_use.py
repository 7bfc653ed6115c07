"""Which functions ask for the clock, and what becomes of those that do not show it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import minirt as rt
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.operators import KeyedProcessSpec, ProcessSpec, RowWindowSpec
from minirt.operators.common.clock_use import asks_for_clock
from minirt.testing.contracts import Given
from minirt.testing.contracts.operating import Subtasks


class Plain(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        ctx.set_timer(5)
        yield record


class Direct(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield ctx.processing_time


class Inherits(Direct):
    pass


class Sets(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        ctx.set_processing_timer(5)


class Within(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        def later() -> int:
            return ctx.processing_time + 1

        return [later()]


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Decorated(rt.KeyedProcess):
    @logged
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        return [ctx.processing_time]


class ByMethod(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        return [self.later(ctx)]

    @staticmethod
    def later(ctx: rt.KeyedContext) -> int:
        return ctx.processing_time + 1


def told(ctx: rt.KeyedContext) -> int:
    return ctx.processing_time


class Elsewhere(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> Iterable[Any]:
        yield told(ctx)


class SetsElsewhere(rt.KeyedProcess):
    def process(self, record: Any, ctx: rt.KeyedContext) -> None:
        getattr(ctx, "set_processing" + "_timer")(5)


class OfWindow(rt.WindowProcess):
    def process(self, records: list[Any], ctx: rt.WindowContext) -> Iterable[Any]:
        yield ctx.processing_time


class WithoutKeys(rt.Process):
    def process(self, record: Any, ctx: rt.ProcessContext) -> Iterable[Any]:
        yield ctx.processing_time


@pytest.mark.parametrize("kind", [Direct, Inherits, Sets, Within, Decorated, ByMethod])
def test_a_class_shows_it(kind: type[rt.KeyedProcess]) -> None:
    assert KeyedProcessSpec(kind()).by_clock


@pytest.mark.parametrize("kind", [Plain, Elsewhere, SetsElsewhere])
def test_a_class_does_not_show_it(kind: type[rt.KeyedProcess]) -> None:
    assert not KeyedProcessSpec(kind()).by_clock


def test_processes_of_other_operators_show_it() -> None:
    assert ProcessSpec(WithoutKeys()).by_clock
    assert RowWindowSpec(rt.CountWindow(2), process=OfWindow()).by_clock
    assert not RowWindowSpec(rt.CountWindow(2), max).by_clock
    assert not asks_for_clock(None)


@pytest.mark.parametrize("kind", [Elsewhere, SetsElsewhere])
def test_who_does_not_show_it_may_not_ask_where_it_may_be_done_again(
    kind: type[rt.KeyedProcess],
) -> None:
    key = (KeySelector(function=lambda record: record),)
    Subtasks(KeyedProcessSpec(kind()), key).feed(Given([1]))
    with pytest.raises(UserCodeError, match="asks for the clock, and its class does not show"):
        Subtasks(KeyedProcessSpec(kind()), key, repeats=True).feed(Given([1]))
