"""State of one kind that is restored as another is refused, with the names of operator and state."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import minirt as rt
from minirt.graph.keys import KeySelector
from minirt.graph.operator_spec import OperatorSpec
from minirt.operators.broadcast_process import BroadcastProcessSpec
from minirt.operators.keyed_process import KeyedProcessSpec
from minirt.operators.process import ProcessSpec
from minirt.operators.reduce import ReduceSpec
from minirt.operators.window_rows import RowWindowSpec
from minirt.state.stored import STATE_KINDS, UID_SEPARATOR, entries_in
from minirt.testing.contracts.operating import Given, Stored, Subtasks


class Value(rt.KeyedProcess):
    value = rt.ValueState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        self.value.set(record["n"])
        return []


class Expiring(rt.KeyedProcess):
    value = rt.ValueState[Any](ttl="1h")

    process = Value.process


class Listed(rt.KeyedProcess):
    value = rt.ListState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        self.value.add(record["n"])
        return []


class Mapped(rt.KeyedProcess):
    value = rt.MapState[Any, Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        self.value[record["n"]] = True
        return []


class Told(rt.BroadcastProcess):
    value = rt.BroadcastState[Any, Any]()
    count = rt.ValueState(0)

    def process(self, record: Any, ctx: Any) -> Any:
        self.count.value += 1
        return []

    def process_broadcast(self, record: Any, ctx: Any) -> Any:
        self.value[record["n"]] = True
        return []


class WithoutKeys(rt.Process):
    value = rt.ListState[Any]()

    def process(self, record: Any, ctx: Any) -> Any:
        self.value.add(record["n"])
        return []


class OfWindow(rt.WindowProcess):
    value = rt.ValueState[Any]()

    def process(self, records: Any, ctx: Any) -> Any:
        self.value.set(1)
        return []


class ListOfWindow(rt.WindowProcess):
    value = rt.ListState[Any]()

    def process(self, records: Any, ctx: Any) -> Any:
        self.value.add(1)
        return []


UPDATES = rt.windows.Emission("updates")


def row_window(process: rt.WindowProcess) -> OperatorSpec:
    return RowWindowSpec(rt.Tumbling("1h"), process=process, emission=UPDATES)


KINDS: dict[str, OperatorSpec] = {
    "ValueState": KeyedProcessSpec(Value()),
    "ListState": KeyedProcessSpec(Listed()),
    "MapState": KeyedProcessSpec(Mapped()),
    "BroadcastState": BroadcastProcessSpec(Told()),
    "ListState without keys": ProcessSpec(WithoutKeys()),
}
WINDOWS = {"ValueState": row_window(OfWindow()), "ListState": row_window(ListOfWindow())}


def subtasks(spec: OperatorSpec, restore: list[Stored] | None = None) -> Subtasks:
    key = KeySelector(("k",))
    keys = {1: (key,), 2: (key, None)}[spec.inputs]
    return Subtasks(spec, keys, restore=restore or [])


def stored(spec: OperatorSpec) -> list[Stored]:
    live = subtasks(spec)
    for input in range(spec.inputs):
        live.feed(Given([{"k": 1, "n": 2}], [5], input))
    return live.snapshot("a")


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(KINDS, 2)])
def test_another_kind_is_refused(before: str, after: str) -> None:
    with pytest.raises(rt.ConfigurationError, match=r"operator operator: .* 'value'") as caught:
        subtasks(KINDS[after], stored(KINDS[before]))
    assert f"of a {before}, and" in str(caught.value)
    assert f"declares a {after} of that name" in str(caught.value)


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(WINDOWS, 2)])
@pytest.mark.parametrize("of_before", [False, True])
def test_so_it_is_in_windows(before: str, after: str, of_before: bool) -> None:
    held = stored(WINDOWS[before])
    if of_before:
        held = without_kinds(held)
    if of_before and after == "ValueState":
        return  # A value may be a list.
    with pytest.raises(rt.ConfigurationError, match=f"of a {before}, and the job declares"):
        subtasks(WINDOWS[after], held)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_kind_is_restored(kind: str) -> None:
    assert stored(KINDS[kind]) == subtasks(KINDS[kind], stored(KINDS[kind])).snapshot("a")


def test_a_ttl_changes_no_kind_and_a_value_may_go_on_from_reduce() -> None:
    subtasks(KeyedProcessSpec(Expiring()), stored(KINDS["ValueState"]))
    subtasks(KINDS["ValueState"], stored(KeyedProcessSpec(Expiring())))
    subtasks(KINDS["ValueState"], stored(ReduceSpec(lambda one, other: other)))
    with pytest.raises(rt.ConfigurationError, match="of a ListState, and the job declares a Value"):
        subtasks(ReduceSpec(lambda one, other: other), stored(KINDS["ListState"]))


def without_kinds(held: list[Stored]) -> list[Stored]:
    """As an earlier version has stored it."""
    for each in held:
        assert entries_in(f"x{UID_SEPARATOR}{STATE_KINDS}", each.sections[STATE_KINDS])
        del each.sections[STATE_KINDS]  # type: ignore[attr-defined]
    return held


@pytest.mark.parametrize(
    ("before", "after"),
    [("ValueState", "ListState"), ("ListState", "MapState"), ("MapState", "ListState")],
)
def test_checkpoints_that_do_not_tell_are_looked_into(before: str, after: str) -> None:
    with pytest.raises(
        rt.ConfigurationError, match=f"of a {before}, and the job declares a {after}"
    ):
        subtasks(KINDS[after], without_kinds(stored(KINDS[before])))


def test_a_state_that_nobody_declares_any_more_keeps_its_kind() -> None:
    class Other(rt.KeyedProcess):
        other = rt.ValueState(0)

        def process(self, record: Any, ctx: Any) -> Any:
            return []

    without = subtasks(KeyedProcessSpec(Other()), stored(KINDS["ListState"])).snapshot("b")
    with pytest.raises(rt.ConfigurationError, match="of a ListState, and the job declares a Value"):
        subtasks(KINDS["ValueState"], without)
