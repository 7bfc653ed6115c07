"""Which checkpoints the kit takes for consistent cuts: one record or count too few or too many is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from minirt.testing.conformance.cuts import Cut
from minirt.testing.conformance.plans import Plan, Stage
from minirt.testing.conformance.sources import event_time
from minirt.testing.conformance.stages.base import Record, span_end
from minirt.testing.conformance.stored import StoredCheckpoint


@dataclass
class Checkpoint:
    """What is stored, by what it means."""

    positions_: dict[str, int | None]
    states: dict[tuple[str, str], dict[Any, Any]] = field(default_factory=dict)
    captured: list[tuple[str, int, Record]] = field(default_factory=list)

    def positions(self, uid: str) -> dict[str, int | None]:
        return {split: n for split, n in self.positions_.items() if split.startswith(uid)}

    def state(self, uid: str, name: str) -> list[tuple[Any, Any]]:
        return list(self.states.get((uid, name), {}).items())

    def in_flight(self) -> Iterator[tuple[str, int, Record]]:
        yield from self.captured


def stage(kind: str, *inputs: int, edge: str = "plain", width: int = 1) -> Stage:
    return Stage(kind, inputs, edge, chain=True, keys=1, parallelism=(width,))


def record(number: int, *more: Any, split: int = 0) -> Record:
    path = ("op0", split, number)
    return ((*path, *more), event_time(path), ())


def faults(
    plan: Plan,
    checkpoint: Checkpoint,
    rows: Mapping[str, Sequence[Record]],
    *,
    exactly_once: bool = True,
) -> list[str]:
    stored = cast(StoredCheckpoint, checkpoint)
    return Cut(plan, stored, rows, exactly_once=exactly_once).faults()


def plan(*stages: Stage, splits: int = 1, count: int = 5) -> Plan:
    return Plan((stage("source"), *stages), splits, count, forms=1)


COUNT = plan(stage("count", 0))


def counted(*numbers: int) -> dict[tuple[str, str], dict[Any, Any]]:
    return {("op1", "seen"): {0: [record(n)[0] for n in numbers]}}


def test_each_record_has_one_place() -> None:
    checkpoint = Checkpoint(
        {"op0-0": 4}, counted(0, 1), [("op1", 0, record(2)), ("op1", 0, record(3))]
    )
    assert faults(COUNT, checkpoint, {"out1": [record(0), record(1)]}) == []


@pytest.mark.parametrize(
    ("read", "seen", "flying", "out", "words"),
    [
        (3, (0, 1), (), (0, 1), "the state of op1 lacks 1"),
        (1, (0, 1), (), (0, 1), "the state of op1 has too many: 1"),
        (2, (0, 1), (1,), (0, 1), "the state of op1 has too many: 1"),
        (2, (0,), (1, 1), (0,), "in flight to op1, but never sent or stored twice: 1"),
        (2, (0,), (1, 3), (0,), "in flight to op1, but never sent or stored twice: 1"),
        (2, (0, 1), (), (0,), "the output of out1 lacks 1"),
        (2, (0, 1), (), (0, 1, 1), "the output of out1 has too many: 1"),
        (2, (0, 2), (), (0, 1), "the state of op1 lacks 1"),
    ],
)
def test_a_record_in_no_place_or_in_two_is_found(
    read: int, seen: Sequence[int], flying: Sequence[int], out: Sequence[int], words: str
) -> None:
    checkpoint = Checkpoint(
        {"op0-0": read}, counted(*seen), [("op1", 0, record(n)) for n in flying]
    )
    found = faults(COUNT, checkpoint, {"out1": [record(n) for n in out]})
    assert any(words in fault for fault in found), found


def test_splits_that_nobody_holds_were_read_to_their_end() -> None:
    two = plan(splits=2, count=2)
    rows = [record(n, split=split) for split in range(2) for n in range(2)]
    for positions in ({"op0-0": None, "op0-1": 2}, {"op0-0": None}, {}):
        assert faults(two, Checkpoint(positions), {"out0": rows}) == []
    assert "lacks 1" in faults(two, Checkpoint({}), {"out0": rows[1:]})[0]


def test_a_record_in_flight_has_no_effect_on_anything_behind() -> None:
    chain = plan(stage("map", 0), stage("flat", 1))
    checkpoint = Checkpoint(
        {"op0-0": 2}, captured=[("op1", 0, record(0)), ("op2", 0, record(1, "op1"))]
    )
    assert faults(chain, checkpoint, {"out2": []}) == []
    assert "has too many" in faults(chain, checkpoint, {"out2": [record(1, "op1", 0)]})[0]


def test_of_a_broadcast_each_copy_counts() -> None:
    broadcast = plan(stage("map", 0, edge="broadcast", width=3))
    one_left = Checkpoint({"op0-0": 1}, captured=[("op1", 0, record(0))])
    done = record(0, "op1")
    assert faults(broadcast, one_left, {"out1": [done, done]}) == []
    assert "lacks 1" in faults(broadcast, one_left, {"out1": [done]})[0]


def test_the_inputs_of_an_operator_are_told_apart() -> None:
    pair = plan(stage("pair", 0, 0))
    left_waits = Checkpoint({"op0-0": 1}, captured=[("op1", 0, record(0))])
    right_waits = Checkpoint({"op0-0": 1}, captured=[("op1", 1, record(0))])
    rows = {"out1": [record(0, "op1", "right")]}
    assert faults(pair, left_waits, rows) == []
    assert len(faults(pair, right_waits, rows)) == 2


def test_timers_have_fired_or_are_in_state() -> None:
    timers = plan(stage("timers", 0))
    end = span_end(record(0)[1])
    fired = (("timers", "op1", 0, end), end, ())
    waiting = Checkpoint({"op0-0": 2}, {("op1", "spans"): {0: {end: 2}}})
    assert faults(timers, waiting, {"out1": []}) == []
    assert faults(timers, Checkpoint({"op0-0": 2}), {"out1": [fired]}) == []
    assert "lacks 1" in faults(timers, Checkpoint({"op0-0": 2}), {"out1": []})[0]
    assert "has too many" in faults(timers, waiting, {"out1": [fired]})[0]
    short = Checkpoint({"op0-0": 3}, {("op1", "spans"): {0: {end: 2}}})
    assert "the state of op1 lacks 1" in faults(timers, short, {"out1": []})[0]


def test_timers_of_the_clock_account_for_all_records() -> None:
    clock = plan(stage("clock", 0))
    counted = (("clock", "op1", 0), 0, (("clock", "op1", 0, 2),))
    states = {("op1", "waiting"): {0: 1}}
    flying = Checkpoint({"op0-0": 3}, states, [("out1", 0, counted)])
    assert faults(clock, flying, {"out1": []}) == []
    assert faults(clock, Checkpoint({"op0-0": 3}, states), {"out1": [counted]}) == []
    assert "lacks 2" in faults(clock, Checkpoint({"op0-0": 3}, states), {"out1": []})[0]
    assert "has too many: 2" in faults(clock, flying, {"out1": [counted]})[0]


def test_both_sides_of_a_split_go_to_the_sink() -> None:
    split = plan(stage("split", 0), count=4)
    waits = Checkpoint({"op0-0": 4}, captured=[("out1", 0, record(1))])
    assert faults(split, waits, {"out1": [record(0), record(2), record(3)]}) == []
    assert "lacks 1" in faults(split, waits, {"out1": [record(0), record(2)]})[0]


def test_at_least_once_may_hold_more_and_never_less() -> None:
    more = Checkpoint({"op0-0": 2}, counted(0, 1, 2))
    less = Checkpoint({"op0-0": 2}, counted(0))
    rows = {"out1": [record(0), record(1), record(2)]}
    assert faults(COUNT, more, rows, exactly_once=False) == []
    assert "lacks 1" in faults(COUNT, less, rows, exactly_once=False)[0]
