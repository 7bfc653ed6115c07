"""State that expires: what a plain computation says is alive, is there; the rest is gone, in time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from minirt.data.custody import Custody
from minirt.errors import ConfigurationError
from minirt.state import expiring as expiring_module
from minirt.state.binding import bind_states
from minirt.state.expiring import Expiring, Sweeper
from minirt.state.expiry import EventClock, ProcessingClock
from minirt.state.handles import Handle, ListState, MapState, ValueState
from minirt.state.keyed import KeyedState
from minirt.state.sections import section_bytes

TTL = 1000


class World:
    """State of one process, whose clock is set by hand."""

    def __init__(self, declared: type, restored: dict[str, bytes] | None = None) -> None:
        self.time = 10_000
        self.state = KeyedState(8, range(8))
        if restored is not None:
            self.state.restore(restored, filter_groups=False)
        self.process: Any = declared()
        clock = EventClock(lambda: self.time, lambda: self.time)
        clocks: Any = {"event": clock, "processing": clock}
        self.bound: list[Expiring] = bind_states(self.process, self.state, Custody(), clocks)
        self.sweeper = Sweeper(self.bound, lambda: 0.0)

    def at(self, key: Any) -> Any:
        self.state.change((key,))
        self.state.key = key
        return self.process

    def sweep(self) -> None:
        while any(state.due_at is not None for state in self.bound):
            self.sweeper.sweep()

    def stored(self) -> dict[str, bytes]:
        return {name: section_bytes(one) for name, one in self.state.snapshot().items()}


def declared(handle: Handle) -> type:
    return type("Declared", (), {"one": handle})


class Model:
    """What is alive: a dict of entries with their times, as the documentation says."""

    def __init__(self, reads: bool) -> None:
        self.held: dict[Any, tuple[Any, int]] = {}
        self.reads = reads

    def get(self, entry: Any, now: int) -> Any:
        if entry in self.held and now - self.held[entry][1] >= TTL:
            del self.held[entry]
        if entry not in self.held:
            return None
        value, time = self.held[entry]
        if self.reads:
            self.held[entry] = value, max(time, now)
        return value

    def set(self, entry: Any, value: Any, now: int) -> None:
        _, time = self.held.get(entry, (None, now))
        self.held[entry] = value, max(time, now)


@pytest.mark.parametrize("refresh", ["read", "write"])
@pytest.mark.parametrize("kind", ["value", "map"])
@pytest.mark.parametrize("seed", range(6))
def test_entries_live_as_long_as_a_model_says(
    kind: str, refresh: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that also goes back, restores, and sweeps that see a few entries at a time."""
    monkeypatch.setattr(expiring_module, "PIECE_ENTRIES", 3)
    handles = {"value": ValueState, "map": MapState}
    kinds = declared(handles[kind](ttl="1s", refresh=refresh, clock="event"))
    random, model, world = Random(seed), Model(refresh == "read"), World(kinds)
    for step in range(600):
        key, field = random.randrange(4), random.randrange(3)
        entry = key if kind == "value" else (key, field)
        one = world.at(key).one
        match random.randrange(8):
            case 0 | 1:
                if kind == "value":
                    one.set(step)
                else:
                    one[field] = step
                model.set(entry, step, world.time)
            case 2 | 3 | 4:
                found = one.get() if kind == "value" else one.get(field)
                assert found == model.get(entry, world.time)
            case 5:
                world.time += random.choice((1, 100, 400, -150))
            case 6:
                if kind == "value":
                    one.clear()
                elif field in one:
                    del one[field]
                model.held.pop(entry, None)
            case 7 if random.random() < 0.3:
                time, world = world.time, World(kinds, world.stored())
                world.time = time
                _forget_expired(model, time)
            case 7:
                world.sweep()
                for entry in _forget_expired(model, world.time):
                    if kind == "value":
                        assert world.at(entry).one.get() is None
                    else:
                        assert entry[1] not in world.at(entry[0]).one


def _forget_expired(model: Model, now: int) -> list[Any]:
    """What is gone for good: it does not come back when the clock goes back."""
    expired = [entry for entry, (_, time) in model.held.items() if now - time >= TTL]
    for entry in expired:
        del model.held[entry]
    return expired


@pytest.mark.parametrize("refresh", ["read", "write"])
def test_elements_of_a_list_expire_one_by_one(refresh: Any) -> None:
    world = World(declared(ListState(ttl="1s", refresh=refresh)))
    world.at("a").one.add("old")
    world.time += 600
    world.at("a").one.extend(["new", "newer"])
    assert world.at("a").one.get() == ["old", "new", "newer"]
    world.time += 400
    alive = ["new", "newer"] if refresh == "write" else ["old", "new", "newer"]
    assert world.at("a").one.get() == alive
    world.time += 2000
    world.sweep()
    assert not any(world.state.entries().values())


@pytest.mark.parametrize("handle", [ValueState(ttl=1), ListState(ttl=1), MapState(ttl=1)])
def test_what_has_expired_is_removed_and_not_stored(handle: Any) -> None:
    world = World(declared(handle))
    for key in range(50):
        one = world.at(key).one
        if isinstance(handle, MapState):
            one["x"] = key
        elif isinstance(handle, ListState):
            one.add(key)
        else:
            one.set(key)
        world.time += 30
    alive = 1000 // 30
    restored = World(declared(handle), world.stored())
    assert restored.state.entries() == {"one": alive, "one@processing": alive}
    world.time += TTL // 64 + 1
    world.sweep()
    assert world.state.entries()["one"] <= alive
    world.time += 3000
    world.sweep()
    assert world.state.entries() == {"one": 0, "one@processing": 0}


@pytest.mark.parametrize("handle", [ValueState, ListState, MapState])
def test_a_ttl_begins_at_the_restore_of_state_without_one(handle: Any) -> None:
    before = World(declared(handle()))
    for key in range(5):
        one = before.at(key).one
        if handle is MapState:
            one["x"] = 1
        elif handle is ListState:
            one.add(1)
        else:
            one.set(1)
    after = World(declared(handle(ttl="1s")), before.stored())
    assert after.at(0).one.get() if handle is not MapState else after.at(0).one["x"]
    after.sweep()
    after.time += 999
    assert "x" in after.at(4).one if handle is MapState else after.at(4).one.get()
    after.time += 1
    assert not (len(after.at(4).one) if handle is MapState else after.at(4).one.get())
    after.time += 1000
    after.sweep()
    assert not any(after.state.entries().values())


def test_without_the_ttl_its_times_are_forgotten() -> None:
    with_ttl, without = declared(ValueState(ttl="1s")), declared(ValueState())
    world = World(with_ttl)
    world.at("a").one.set(1)
    second = World(without, world.stored())
    assert second.at("a").one.get() == 1
    assert second.state.entries() == {"one": 1, "one@processing": 0}
    third = World(with_ttl, second.stored())
    third.time += 500_000
    assert third.at("a").one.get() == 1, "its clock begins at the restore"


def test_clearing_and_setting_again_leaves_nothing_behind() -> None:
    world = World(declared(ValueState(ttl="1s")))
    for _ in range(1000):
        world.at("a").one.set(1)
        world.at("a").one.clear()
    [state] = world.bound
    assert sum(map(len, state._agenda._buckets.values())) == 1
    world.time += 2000
    world.sweep()
    assert not state._agenda._buckets
    assert not state._agenda._without_time


def test_the_processing_clock_never_goes_back() -> None:
    wall, monotonic = [1000.0], [5.0]
    clock = ProcessingClock(lambda: wall[0], lambda: monotonic[0])
    wall[0] = 1.0
    monotonic[0] += 2
    assert clock.tick() == 1_002_000, "setting the wall clock changes nothing"
    restarted = ProcessingClock(lambda: wall[0], lambda: monotonic[0])
    restarted.restore(1_002_000)
    assert restarted.tick() == 1_002_000
    monotonic[0] += 1
    assert restarted.tick() == 1_003_000
    assert restarted.due_at(1_004_000) == pytest.approx(monotonic[0] + 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"refresh": "read"}, "refresh has no effect without ttl"),
        ({"clock": "event"}, "clock has no effect without ttl"),
        ({"ttl": 0}, "at least 1ms"),
        ({"ttl": "soon"}, "ttl"),
        ({"ttl": "1h", "refresh": "never"}, "'write' or 'read'"),
        ({"ttl": "1h", "clock": "wall"}, "'event' or 'processing'"),
    ],
)
@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_options_that_cannot_work_are_refused(kind: Any, options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        kind(**options)
