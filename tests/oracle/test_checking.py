"""The oracle itself: each kind of mistake, planted into a job or into a stream, has to be counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

import minirt as rt
from tests.oracle import topologies
from tests.oracle.records import HEADER, checked, copied, lane_of, sequence_of, track_of, value_of
from tests.oracle.running import Outcome, Plan, run
from tests.oracle.tally import Faults, Tally
from tests.oracle.topologies import Parts, Topology, shuffled


def faults_of(sequences: Iterable[int], end: int) -> Faults:
    tally = Tally()
    for sequence in sequences:
        tally.add(sequence)
        tally = Tally.from_plain(json.loads(json.dumps(tally.to_plain())))
    return tally.faults(end)


@pytest.mark.parametrize(
    ("sequences", "faults"),
    [
        ([], Faults(lost=5)),
        ([0, 1, 2, 3, 4], Faults()),
        ([0, 1, 3, 4], Faults(lost=1)),
        ([0, 1, 2], Faults(lost=2)),
        ([0, 1, 1, 2, 3, 4, 0], Faults(duplicated=2)),
        ([0, 2, 1, 3, 4], Faults(disordered=1)),
        ([1, 2, 3, 0, 4], Faults(disordered=1)),
        ([3, 3, 0], Faults(lost=3, duplicated=1, disordered=1)),
        ([0, 1, 2, 3, 4, 5, 7], Faults(invented=2)),
    ],
)
def test_tally_counts(sequences, faults):
    assert faults_of(sequences, 5) == faults


def test_value_holds_who_numbered_it():
    value = copied(value_of(5, 77), 3)
    assert (lane_of(value), sequence_of(value), track_of(value)) == (5, 77, 3 << 6 | 5)
    assert checked(value) == value
    assert -(2**63) <= value < 2**63
    assert copied(value_of(5, 77), 0) == value_of(5, 77)


@pytest.mark.parametrize("value", [0, 77, HEADER ^ 1 << 32, HEADER << 1, HEADER + (1 << 32)])
def test_damaged_header_is_refused(value):
    with pytest.raises(ValueError, match="does not carry the header"):
        checked(value)


# Mistakes that an operator makes with one record of each lane.

AT = 40


def losing(value: int) -> list[int]:
    return [] if sequence_of(value) == AT else [value]


def repeating(value: int) -> list[int]:
    return [value] * (2 if sequence_of(value) == AT else 1)


def damaging(value: int) -> list[int]:
    return [value ^ 1 << 40] if sequence_of(value) == AT else [value]


def inventing(value: int) -> list[int]:
    return [value, value + (1 << 19)] if sequence_of(value) == AT else [value]


class Swapping(rt.KeyedProcess):
    """Lets the next value overtake one."""

    held = rt.ValueState()

    def process(self, record: int, ctx: rt.KeyedContext) -> list[int]:
        if sequence_of(record) == AT:
            self.held.value = record
            return []
        held = self.held.value
        self.held.clear()
        return [record] if held is None else [record, held]


def run_with(
    mistake: Callable[[rt.KeyedStream], rt.Stream], monkeypatch: pytest.MonkeyPatch, folder: object
) -> Outcome:
    def build(parts: Parts) -> rt.Stream:
        return parts.stage(shuffled(mistake(shuffled(parts.sources[0], 1)), 2), "stage")

    mistaken = Topology("mistaken", build)
    monkeypatch.setitem(topologies.TOPOLOGIES, "mistaken", mistaken)
    return run(Plan("mistaken", "aligned", (1,), checkpoints=5), folder)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("mistake", "wrong"),
    [
        (lambda stream: stream.flat_map(losing, uid="m"), ["state: 2 lost", "output: 2 lost"]),
        (
            lambda stream: stream.flat_map(repeating, uid="m"),
            ["state: 2 duplicated", "output: 2 duplicated"],
        ),
        (
            lambda stream: stream.flat_map(inventing, uid="m"),
            ["state: 2 invented", "output: 2 invented"],
        ),
        (lambda stream: stream.process(Swapping(), uid="m"), ["state: 2 disordered"]),
    ],
    ids=["loses", "repeats", "invents", "swaps"],
)
def test_mistake_of_an_operator_is_counted(mistake, wrong, monkeypatch, tmp_path):
    outcome = run_with(mistake, monkeypatch, tmp_path)
    # `inventing` also makes the rest of each lane come below a higher number.
    found = outcome.wrong(exactly_once=True, ordered="disordered" in wrong[0])
    assert found == wrong


@pytest.mark.processes
def test_damaged_value_fails_the_run(monkeypatch, tmp_path):
    outcome = run_with(lambda stream: stream.flat_map(damaging, uid="m"), monkeypatch, tmp_path)
    assert "does not carry the header" in outcome.unplanned[0]
