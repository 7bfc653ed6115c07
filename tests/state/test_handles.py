"""State handles: always that of the current key, clear errors when misused."""

from __future__ import annotations

import copy
from typing import Any

import cloudpickle
import pytest

from minirt.data.custody import Custody
from minirt.errors import ConfigurationError
from minirt.state.binding import bind_states
from minirt.state.handles import ListState, MapState, ValueState
from minirt.state.keyed import KeyedState


class Counter:
    total = ValueState(default=0)
    seen = ListState()
    fields = MapState()
    renamed = ValueState(name="stored as")


def bound(process: Any = None) -> tuple[Any, KeyedState]:
    process = Counter() if process is None else process
    state = KeyedState(128, range(128))
    bind_states(process, state, Custody())
    state.key = "a"
    return process, state


def test_value_is_that_of_the_current_key() -> None:
    process, state = bound()
    process.total.set(5)
    process.total.value += 1
    state.key = "b"
    assert process.total.get() == process.total.value == 0
    process.total.value = None
    assert process.total.get() is None
    state.key = "a"
    assert process.total.get() == 6
    process.total.clear()
    process.total.clear()
    assert process.total.get() == 0
    assert state.entries()["total"] == 1


def test_default_is_not_written_by_reading() -> None:
    process, state = bound()
    process.total.get()
    process.seen.get()
    process.fields.get("x")
    assert not any(state.entries().values())


def test_list_collects_per_key_and_empty_lists_take_no_room() -> None:
    process, state = bound()
    process.seen.add(1)
    process.seen.extend(iter((2, 3)))
    state.key = "b"
    assert process.seen.get() == []
    process.seen.extend([])
    process.seen.set([])
    assert state.entries()["seen"] == 1
    state.key = "a"
    assert process.seen.get() == [1, 2, 3]
    process.seen.set(x for x in process.seen.get() if x > 1)
    assert process.seen.get() == [2, 3]
    process.seen.set(())
    assert state.entries()["seen"] == 0
    process.seen.add(1)
    process.seen.clear()
    assert state.entries()["seen"] == 0


def test_list_that_was_given_out_or_set_is_not_shared() -> None:
    process, _ = bound()
    mine = [1]
    process.seen.set(mine)
    mine.append(2)
    process.seen.get().append(3)
    assert process.seen.get() == [1]


def test_map_is_a_mutable_mapping_per_key_and_empty_maps_take_no_room() -> None:
    process, state = bound()
    process.fields["x"] = 1
    process.fields.update(y=2)
    assert dict(process.fields.items()) == {"x": 1, "y": 2}
    assert list(process.fields) == ["x", "y"]
    assert "x" in process.fields
    assert len(process.fields) == 2
    assert process.fields.pop("x") == 1
    state.key = "b"
    assert len(process.fields) == 0
    assert "y" not in process.fields
    assert process.fields.get("y", 7) == 7
    with pytest.raises(KeyError):
        process.fields["y"]
    with pytest.raises(KeyError):
        del process.fields["y"]
    state.key = "a"
    del process.fields["y"]
    assert state.entries()["fields"] == 0
    process.fields["z"] = 1
    process.fields.clear()
    assert state.entries()["fields"] == 0


def test_state_is_stored_under_its_attribute_or_its_given_name() -> None:
    process, state = bound()
    process.renamed.set(1)
    assert set(state.entries()) == {"total", "seen", "fields", "stored as"}
    assert state.table("stored as") == {"a": 1}


def test_restored_state_is_seen_by_handles_bound_before() -> None:
    first, state = bound()
    first.total.set(3)
    first.seen.add("x")
    second, other = bound()
    other.restore(state.snapshot(), filter_groups=True)
    assert (second.total.get(), second.seen.get()) == (3, ["x"])


def test_two_processes_of_one_class_do_not_share_state() -> None:
    (first, _), (second, _) = bound(), bound()
    first.total.set(1)
    assert second.total.get() == 0


def test_states_of_parents_are_bound_and_those_of_children_hide_them() -> None:
    class Child(Counter):
        total = ValueState(default=10)
        seen = None  # type: ignore[assignment]
        more = ValueState()

    process, state = bound(Child())
    assert process.total.get() == 10
    assert process.seen is None
    process.more.set(1)
    process.fields["x"] = 1
    assert "seen" not in state.entries()


def test_process_can_be_bound_again() -> None:
    process, _ = bound()
    process.total.set(1)
    process, _ = bound(process)
    assert process.total.get() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda process: process.total.get(),
        lambda process: process.total.set(1),
        lambda process: process.total.value,
        lambda process: process.seen.add(1),
        lambda process: process.seen.get(),
        lambda process: len(process.fields),
        lambda process: process.fields.get("x"),
        lambda process: process.fields.update(x=1),
    ],
)
def test_unbound_state_gives_a_clear_error(use: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"state '\w+' is used outside a running job"):
        use(Counter())


def test_unbound_state_with_a_name_is_called_by_it() -> None:
    with pytest.raises(ConfigurationError, match="'stored as'"):
        Counter().renamed.get()


def test_unknown_attribute_of_a_handle_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="ValueState has no attribute 'add'"):
        Counter.total.add(1)


def test_process_with_declarations_can_be_pickled_and_copied() -> None:
    class Local(Counter):
        own = MapState(name="mine")

    for process in (cloudpickle.loads(cloudpickle.dumps(Local())), copy.deepcopy(Local())):
        process, state = bound(process)
        process.own["k"] = 1
        process.total.set(1)
        assert state.table("mine") == {"a": {"k": 1}}


@pytest.mark.parametrize("default", [[], {}, set(), bytearray()], ids=repr)
def test_mutable_default_is_refused_with_a_way_out(default: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"all keys would share it; use ListState or"):
        ValueState(default=default)


def test_name_must_be_a_text() -> None:
    for name in ("", 3):
        with pytest.raises(ConfigurationError, match="name of a state"):
            ListState(name=name)  # type: ignore[arg-type]


def test_two_states_of_one_name_are_refused() -> None:
    class Twice:
        one = ValueState(name="x")
        x = ListState()

    with pytest.raises(ConfigurationError, match=r"Twice: one and x .*'x'"):
        bound(Twice())


def test_one_declaration_under_two_attributes_is_two_states() -> None:
    class Two:
        one = other = ValueState(default=0)

    process, _ = bound(Two())
    process.one.set(1)
    assert process.other.get() == 0


def test_state_declared_on_an_instance_is_refused() -> None:
    class Wrong:
        def __init__(self) -> None:
            self.total = ValueState()

    with pytest.raises(
        ConfigurationError, match=r"Wrong\.total: declare state as a class attribute"
    ):
        bound(Wrong())


def test_process_with_slots_is_refused_only_if_it_declares_state() -> None:
    class Slots:
        __slots__ = ()

    class Declares:
        __slots__ = ()
        total = ValueState()

    bound(Slots())
    with pytest.raises(ConfigurationError, match="__slots__"):
        bound(Declares())
