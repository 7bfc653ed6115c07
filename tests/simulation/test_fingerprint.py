"""States that differ in anything that matters must not be taken for the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minirt.modes.aligned import Aligned
from minirt.protocol.ids import SubtaskId
from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.control.package import Deployment
from minirt.testing import TransactionalSink
from minirt.testing.exploration import fingerprint as module
from minirt.testing.exploration.coordinator_part import CoordinatorPart
from minirt.testing.exploration.fingerprint import FIELDS, fingerprint
from minirt.testing.exploration.job import ExploredJob, small_limits
from minirt.testing.exploration.local_states import UnrepeatableError
from minirt.testing.exploration.subtask_part import SubtaskPart
from tests.simulation.small_jobs import SmallJob, build, explore_job


class Open:
    def __init__(self, value: Any) -> None:
        self.value = value

    def method(self) -> Any:
        return self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class SlottedToo(Slotted):
    __slots__ = ("other",)


@dataclass(frozen=True)
class Frozen:
    value: Any


def closure_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def steps(value: Any, taken: int) -> Iterator[Any]:
    def walk(value: Any) -> Iterator[Any]:
        yield value
        yield value

    def outer(value: Any) -> Iterator[Any]:
        yield from walk(value)

    generator = outer(value)
    for _ in range(taken):
        next(generator)
    return generator


def after(made: Any, taken: int) -> Any:
    for _ in range(taken):
        next(made)
    return made


HOLDERS: list[Callable[[int], Any]] = [
    Open,
    Slotted,
    SlottedToo,
    Frozen,
    closure_over,
    lambda value: Open(value).method,
    lambda value: [value].append,
    lambda value: partial(print, value),
    lambda value: partial(print, end=value),
    lambda value: lambda given=value: given,
    lambda value: [0, value],
    lambda value: (0, value),
    lambda value: deque([value]),
    lambda value: {"key": value},
    lambda value: {value: 0},
    lambda value: {value},
    lambda value: frozenset([(0, value)]),
    lambda value: Frame(Kind.ROWS, bytes([value])),
    lambda value: bytearray([value]),
    lambda value: np.array([value]),
    lambda value: np.int64(value),
    lambda value: pa.RecordBatch.from_pylist([{"a": value}]),
    lambda value: range(value),
    lambda value: after(iter([1, 2, 3]), value),
    lambda value: after(count(), value),
    lambda value: steps(value, 1),
    lambda value: steps(7, value),
    lambda value: ValueError(value),
]


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_an_object_can_reach_makes_a_difference(holder: Callable[[int], Any]) -> None:
    assert fingerprint([holder(1)]) == fingerprint([holder(1)])
    assert fingerprint([holder(1)]) != fingerprint([holder(2)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        (b"1", "1"),
        ([], ()),
        ([[1], 2], [[1, 2]]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (deque([1]), [1]),
        (Open(1), Slotted(1)),
        (None, "None"),
    ],
)
def test_types_and_shapes_make_a_difference(one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


def test_who_shares_what_can_change_makes_a_difference() -> None:
    shared: list[int] = []
    assert fingerprint([shared, shared]) != fingerprint([[], []])
    assert fingerprint([Frozen(1), Frozen(1)]) == fingerprint([Frozen(1)] * 2)


def test_cycles_end() -> None:
    one, other = Open(None), Open(None)
    one.value, other.value = other, one
    assert fingerprint(one) == fingerprint(other)


def test_what_cannot_be_looked_into_is_an_error() -> None:
    with pytest.raises(TypeError, match="nobody knows what"):
        fingerprint([iter("text")])


SMALL = SmallJob("shuffle", 1, 1, 1)
RECEIVER = SubtaskId(1, 0)


@pytest.fixture
def job() -> ExploredJob:
    graph = build(SMALL, [TransactionalSink()]).graph()
    return ExploredJob(graph, Aligned(), small_limits(64), None)


@pytest.mark.parametrize(
    "path",
    [
        "clock.at",
        "_subtask.input.in_work",
        "_subtask._waiting",
        "_subtask._work",
        "_subtask._checkpoints._taken",
        "_subtask._checkpoints._timers",
        "_subtask._checkpoints._unsent",
        "_subtask._checkpoints._stored",
        "_subtask._checkpoints._snapshot_id",
        "_subtask._checkpoints._barriers._under_way",
        "_subtask._checkpoints._barriers._ended.up_to",
        "_subtask.input._restored._recovered",
        "_subtask.input._valve._emitted",
        "_subtask.input._gate._ready",
        "_subtask.input._gate._blocked",
        "_subtask.input._gate.channels.0.frames",
        "_subtask.input._gate.channels.0._granted_bytes",
        "_subtask.chain.operators.0.state._tables",
        "_subtask.chain.operators.1._writer._rows",
    ],
)
def test_every_field_of_a_subtask_makes_a_difference(job: ExploredJob, path: str) -> None:
    deployment = job.deployments.of(Deployment(1))
    part = SubtaskPart(job, deployment, job.storage.empty, RECEIVER)
    assert_makes_a_difference(part, path)


@pytest.mark.parametrize(
    "path",
    [
        "_clock",
        "_commands",
        "_shell._timers",
        "_protocol._status",
        "_protocol._checkpoints",
        "_protocol.restarts",
        "_tasks._preparation._resolved",
        "_tasks._preparing._splits",
        "_tasks.storage._retention",
    ],
)
def test_every_field_of_the_coordinator_makes_a_difference(job: ExploredJob, path: str) -> None:
    assert_makes_a_difference(CoordinatorPart(job), path)


def assert_makes_a_difference(part: Any, path: str) -> None:
    before = fingerprint(part)
    *way, last = path.split(".")
    owner = part
    for step in way:
        owner = owner[int(step)] if step.isdigit() else getattr(owner, step)
    assert hasattr(owner, last)
    setattr(owner, last, "something else")
    assert fingerprint(part) != before


@pytest.mark.parametrize(
    "field",
    [("InputChannel", "frames"), ("CheckpointCoordinator", "_drained")],
    ids=str,
)
def test_a_field_that_is_forgotten_is_noticed(
    monkeypatch: pytest.MonkeyPatch, field: tuple[str, str]
) -> None:
    """A part then behaves in two ways in what is taken for one state."""
    complete = explore_job(SMALL, "aligned", checkpoints=1, crashes=0)
    monkeypatch.setattr(module, "FIELDS", {**FIELDS, field: "forgotten"})
    monkeypatch.setattr(module, "_LOOKS", {})
    try:
        blind = explore_job(SMALL, "aligned", checkpoints=1, crashes=0)
    except (UnrepeatableError, AssertionError):
        return
    assert blind.violation is not None or blind.states < complete.states
