"""A subtask that may have to give out the same again does so: also where functions go through sets.

An operator that goes on and one that was restored from its snapshot get the same records, and must give out
the same in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirt as rt
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.aggregate import AggregateSpec
from minirt.operators.keyed_process import KeyedProcessSpec
from minirt.operators.process import ProcessSpec
from minirt.operators.reduce import ReduceSpec
from minirt.operators.window import WindowSpec
from minirt.operators.window_rows import RowWindowSpec
from minirt.testing.contracts.operating import Advance, Given, Subtasks

SPREAD = 7919 * 4096
"""Multiples of it share places in small sets, where the order of arrival counts."""


def changed(tags: Any, number: int) -> set[int]:
    """As a window over the newest elements: some come, and old ones go."""
    own = set(tags)
    for n in range(number, number + 6):
        own.add(n * SPREAD % 1_000_003)
    for old in sorted(own)[: max(0, len(own) - 12)]:
        own.discard(old)
    return own


class OneValue(rt.KeyedProcess):
    tags = rt.ValueState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        self.tags.value = changed(self.tags.value or (), record["n"])
        return [list(self.tags.value)]


class InTuples(rt.KeyedProcess):
    tags = rt.ValueState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        old, _ = self.tags.value or (frozenset(), {})
        new = frozenset(changed(old, record["n"]))
        self.tags.value = (new, {new: 1})
        return [(list(self.tags.value[0]), [list(key) for key in self.tags.value[1]])]


class Elements(rt.KeyedProcess):
    tags = rt.ListState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        own = self.tags.get()
        self.tags.set(
            [changed(own[0] if own else (), record["n"]), frozenset(own[0] if own else ())]
        )
        return [[list(each) for each in self.tags.get()]]


class Fields(rt.KeyedProcess):
    tags = rt.MapState[Any, Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        own = next(iter(self.tags.values()), set())
        self.tags.clear()
        new = changed(own, record["n"])
        self.tags[frozenset(new)] = new
        return [[(list(field), list(value)) for field, value in self.tags.items()]]


class Listed(rt.Process):
    tags = rt.ListState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        own = self.tags.get()
        self.tags.set([changed(own[0] if own else (), record["n"])])
        return [list(self.tags.get()[0])]


def shown(one: Any, other: Any) -> Any:
    """Gives out the order of the set that it was given."""
    old = one.get("tags", set())
    return {"k": 0, "n": other["n"], "seen": list(old), "tags": changed(old, other["n"])}


def quick(one: Any, other: Any) -> Any:
    """Changes nothing, and keeps nothing: minirt copies none of its results."""
    return (other[0], other[1], one[2] | other[2], tuple(one[2]))


class InWindow(rt.WindowProcess):
    def process(self, records: Any, ctx: Any) -> Any:
        return [[list(record["tags"]) for record in records]]


class Kept(rt.WindowProcess):
    tags = rt.ValueState[Any]()

    def process(self, records: Any, ctx: Any) -> Any:
        self.tags.value = changed(self.tags.value or (), records[-1]["n"])
        return [list(self.tags.value)]


class Folded(rt.Fold):
    def of(self, values: pa.Array) -> Any:
        return changed((), values[-1].as_py())

    def merge(self, earlier: Any, later: Any) -> Any:
        both = earlier | later
        for old in sorted(both)[: max(0, len(both) - 12)]:
            both.discard(old)
        return both

    def result(self, remembered: Any) -> Any:
        return list(remembered)


LISTS = pa.list_(pa.int64())
UPDATES = rt.windows.Emission("updates")


def row(n: int) -> dict[str, Any]:
    return {"k": 0, "n": n}


def tagged(n: int) -> dict[str, Any]:
    return {**row(n), "tags": changed(range(0, n % 5 * SPREAD, SPREAD), n)}


def triple(n: int) -> Any:
    return (0, n, frozenset(changed((), n)))


KINDS: dict[str, tuple[Callable[[], OperatorSpec], Callable[[int], Any]]] = {
    "a value": (lambda: KeyedProcessSpec(OneValue()), row),
    "frozensets in tuples and keys": (lambda: KeyedProcessSpec(InTuples()), row),
    "elements": (lambda: KeyedProcessSpec(Elements()), row),
    "fields": (lambda: KeyedProcessSpec(Fields()), row),
    "lists without keys": (lambda: ProcessSpec(Listed()), row),
    "reduce": (lambda: ReduceSpec(shown), row),
    "reduce of frozensets": (lambda: ReduceSpec(quick), triple),
    "reduce in windows": (lambda: RowWindowSpec(rt.Tumbling("1h"), shown), row),
    "records of windows": (lambda: RowWindowSpec(rt.Tumbling("1h"), process=InWindow()), tagged),
    "state of windows": (
        lambda: RowWindowSpec(rt.Tumbling("1h"), process=Kept(), emission=UPDATES),
        row,
    ),
    "a fold": (lambda: AggregateSpec((Folded("n", "m", LISTS),), "updates"), row),
    "a fold in windows": (lambda: WindowSpec((Folded("n", "m", LISTS),), rt.Tumbling("1h")), row),
}


def keys_of(spec: OperatorSpec) -> tuple[KeySelector | None, ...]:
    if isinstance(spec, ProcessSpec):
        return ()
    if isinstance(spec, ReduceSpec) and spec.function is quick:
        return (KeySelector(function=lambda record: record[0]),)
    return (KeySelector(("k",)),)


def given_out(kind: str, numbers: list[int], cut: int) -> tuple[list[Any], list[Any]]:
    """What is given out behind the cut by an operator that goes on, and by one that was restored."""
    make, record = KINDS[kind]
    spec = make()
    columns = isinstance(spec, AggregateSpec | WindowSpec)
    live = Subtasks(spec, keys_of(spec), repeats=True)
    events = [Given([record(n)], [1000 + place]) for place, n in enumerate(numbers)]
    for event in events[:cut]:
        live.feed(event, columns=columns)
    restored = Subtasks(spec, keys_of(spec), repeats=True, restore=live.snapshot("a"))
    seen = len(live.results)
    for operator in (live, restored):
        for event in events[cut:]:
            operator.feed(event, columns=columns)
        operator.feed(Advance(10_000_000))
    return live.results[seen:], restored.results


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 400), min_size=2, max_size=16),
    cut=st.integers(1, 15),
)
def test_what_is_done_again_is_the_same(kind: str, numbers: list[int], cut: int) -> None:
    went_on, restored = given_out(kind, numbers, min(cut, len(numbers) - 1))
    assert restored == went_on
    assert went_on
