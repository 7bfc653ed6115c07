"""The entry to exploration: a job and a mode in, counts and violations out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minirt.api.environment import Environment
from minirt.errors import ConfigurationError
from minirt.graph.job_graph import JobGraph
from minirt.modes import find_mode
from minirt.protocol.barriers import CheckpointMode
from minirt.protocol.families import TakesLocalSnapshots
from minirt.testing.exploration.describe import describe
from minirt.testing.exploration.fingerprint import fingerprint
from minirt.testing.exploration.job import ExploredJob, rows_of, small_limits
from minirt.testing.exploration.reduction import all_actions, sufficient_actions
from minirt.testing.exploration.search import Choose, Judge, check_end, search, shortest
from minirt.testing.exploration.world import (
    DURABLE,
    Action,
    OvertakingError,
    ProblemError,
    Sending,
    State,
    World,
)

Check = Callable[[Mapping[str, Sequence[Any]]], None]


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, and how it comes about."""

    problem: str
    steps: tuple[str, ...]
    """What has to happen, in order, a line each."""
    states: int
    """How many states had been visited when it was found."""

    def __str__(self) -> str:
        lines = [f"{number:4} {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([self.problem, f"after these {len(lines)} steps:", *lines])


@dataclass(frozen=True, slots=True)
class ExplorationResult:
    """What an exploration has seen."""

    states: int
    """Different states of the whole job."""
    transitions: int
    executions: int
    """Different orders of the actions that were followed, from the beginning to an end."""
    outputs: frozenset[bytes] = field(repr=False)
    """Fingerprints of the committed outputs at the ends, in order."""
    local_states: int
    """Different states of single subtasks and of the coordinator."""
    duration_s: float
    complete: bool
    """Whether all states were visited; not if `states_max` came first, or a violation."""
    violation: Violation | None = field(repr=False)

    def line(self) -> str:
        """The counts in one line."""
        return (
            f"states={self.states} transitions={self.transitions} executions={self.executions:.3g} "
            f"outputs={len(self.outputs)} local_states={self.local_states} "
            f"complete={'yes' if self.complete else 'no'} states_per_s={self.states_per_s:.0f}"
        )

    @property
    def states_per_s(self) -> float:
        return self.states / max(self.duration_s, 1e-9)

    def check(self) -> ExplorationResult:
        """Return itself. Raises AssertionError if something is wrong, or not everything was explored."""
        if self.violation is not None:
            raise AssertionError(str(self.violation))
        if not self.complete:
            raise AssertionError(f"not all was explored: there are more than {self.states} states")
        return self


def explore(
    job: Environment | JobGraph,
    mode: str | CheckpointMode,
    check: Check,
    *,
    checkpoints: int = 1,
    crashes: int = 0,
    queue_bytes: int = 64,
    states_max: int = 1_000_000,
    reduced: bool = True,
    on_checkpoint: Callable[[Mapping[str, bytes], str], None] | None = None,
    max_concurrent: int = 1,
) -> ExplorationResult:
    """Run a small job in every possible way, up to the first violation; always returns.

    The job ends by itself, goes by no clock, and writes to a TransactionalSink for each sink. At most
    `checkpoints` are taken before the final one, up to `max_concurrent` of them at a time, and at most
    `crashes` workers crash, at any moment. A channel holds `queue_bytes` at each end, and a frame one
    record. `check` is given the committed records of each sink, by uid, at the end of every execution, and
    `on_checkpoint` all stored objects and the path of each new manifest; both raise AssertionError if
    something is wrong. That the job comes to its end, and that nothing fails on the way, is checked anyway.

    Raises ConfigurationError for a mode that takes snapshots by a clock, UnrepeatableError if the job goes
    by anything but its input, and ValueError for other sinks.

    `reduced` leaves out executions that differ from others only in the order of actions that do not
    touch each other; see `minirt.testing.exploration.reduction`.
    """
    began_at = time.monotonic()
    graph = job.graph() if isinstance(job, Environment) else job
    found = find_mode(mode, max_concurrent=max_concurrent)
    if isinstance(found, TakesLocalSnapshots):
        raise ConfigurationError(
            f"mode {found.name} takes snapshots by the clocks of subtasks, and an exploration goes by no "
            "clock: it would see none of them. Play such jobs with simulate, or minirt conformance"
        )
    limits = small_limits(queue_bytes)
    explored = ExploredJob(graph, found, limits, on_checkpoint, max_concurrent)
    budget = _Budget(checkpoints, crashes, states_max)
    if not reduced:
        return _explore(explored, check, budget, all_actions, Sending.AT_ANY_TIME, began_at)
    try:
        return _explore(explored, check, budget, sufficient_actions, Sending.AT_ONCE, began_at)
    except OvertakingError:
        return _explore(
            explored, check, budget, sufficient_actions, Sending.AT_ONCE_BEHIND_BARRIERS, began_at
        )


@dataclass(frozen=True, slots=True)
class _Budget:
    checkpoints: int
    crashes: int
    states: int


def _explore(
    job: ExploredJob,
    check: Check,
    budget: _Budget,
    choose: Choose,
    sending: Sending,
    began_at: float,
) -> ExplorationResult:
    world = World(job, budget.checkpoints, budget.crashes, sending)
    outputs: set[bytes] = set()
    judge = _judge(job, check, outputs)
    found = search(world, choose, judge, budget.states)
    violation = None
    if found.problem is not None:
        path = shortest(world, choose, judge) or found.path
        violation = _violation(world, path, judge, found.states)
    return ExplorationResult(
        states=found.states,
        transitions=found.transitions,
        executions=found.executions,
        outputs=frozenset(outputs),
        local_states=len(world.subtasks) + len(world.coordinators),
        duration_s=time.monotonic() - began_at,
        complete=found.complete,
        violation=violation,
    )


def _judge(job: ExploredJob, check: Check, outputs: set[bytes]) -> Judge:
    """Checks each output once; collects their numbers."""
    seen: set[int] = set()

    def judge(state: State) -> None:
        durable = state[DURABLE]
        if durable in seen:
            return
        job.storage.load(durable)
        rows = rows_of(job.sinks)
        try:
            check(rows)
        except AssertionError as error:
            raise ProblemError(f"committed output: {error}") from error
        seen.add(durable)
        outputs.add(fingerprint(rows))

    return judge


def _violation(world: World, path: Sequence[Action], judge: Judge, states: int) -> Violation:
    """Go the way once more, to tell about it."""
    state, steps, problem = world.begin, [], ""
    try:
        for action in path:
            steps.append(describe(world, state, action))
            state = world.after(state, action)
        check_end(world, state, judge)
    except ProblemError as error:
        problem = str(error)
    return Violation(problem, tuple(steps), states)
