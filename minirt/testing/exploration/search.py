"""Visits every state of a job once, counts them, and says how to get to what is wrong."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minirt.testing.exploration.world import Action, ProblemError, State, World

Choose = Callable[[World, State], list[Action]]
"""Which actions to follow in a state."""

Judge = Callable[[State], None]
"""Looks at a final state; raises ProblemError if something is wrong with it."""

_ON_THE_WAY = -1


@dataclass(slots=True)
class Found:
    """What a search has seen."""

    states: int = 0
    transitions: int = 0
    executions: int = 0
    """How many ways there are from the beginning to an end."""
    complete: bool = False
    """Whether all states were visited."""
    problem: str | None = None
    path: list[Action] = field(default_factory=list)
    """How to get to the problem."""


@dataclass(slots=True)
class _Visit:
    """A state whose successors are being visited."""

    state: State
    key: bytes
    actions: list[Action]
    next: int = 0
    executions: int = 0


def search(world: World, choose: Choose, judge: Judge, states_max: int) -> Found:
    """Depth first, up to the first problem."""
    found = Found()
    executions: dict[bytes, int] = {}
    stack: list[_Visit] = []

    def enter(state: State, key: bytes) -> None:
        executions[key] = _ON_THE_WAY
        actions = choose(world, state)
        visit = _Visit(state, key, actions)
        stack.append(visit)
        if not actions:
            visit.executions = 1
            check_end(world, state, judge)

    try:
        enter(world.begin, _key(world.begin))
        while stack and len(executions) <= states_max:
            visit = stack[-1]
            if visit.next == len(visit.actions):
                executions[visit.key] = visit.executions
                stack.pop()
                if stack:
                    stack[-1].executions += visit.executions
                continue
            action = visit.actions[visit.next]
            visit.next += 1
            found.transitions += 1
            state = world.after(visit.state, action)
            key = _key(state)
            known = executions.get(key)
            if known is None:
                enter(state, key)
            elif known == _ON_THE_WAY:
                raise ProblemError("the job makes no progress: it can come back to where it was")
            else:
                visit.executions += known
    except ProblemError as problem:
        found.problem = str(problem)
        found.path = [visit.actions[visit.next - 1] for visit in stack if visit.next]
    found.states = len(executions)
    found.executions = max(0, executions[_key(world.begin)])
    found.complete = not stack
    return found


_SHORTEST_STATES_MAX = 5_000
"""How many states are looked through for a shorter way to a problem."""


def shortest(world: World, choose: Choose, judge: Judge) -> list[Action] | None:
    """A shortest way to a problem, breadth first; None if that would take too long."""
    came_from: dict[bytes, tuple[bytes, Action] | None] = {_key(world.begin): None}
    pending = deque([world.begin])
    while pending and len(came_from) <= _SHORTEST_STATES_MAX:
        state = pending.popleft()
        key = _key(state)
        action = None
        try:
            actions = choose(world, state)
            if not actions:
                check_end(world, state, judge)
            for action in actions:
                after = world.after(state, action)
                if _key(after) not in came_from:
                    came_from[_key(after)] = (key, action)
                    pending.append(after)
        except ProblemError:
            return [*_way_to(key, came_from), *([action] if action else [])]
    return None


def _way_to(key: bytes, came_from: dict[bytes, tuple[bytes, Action] | None]) -> list[Action]:
    way: list[Action] = []
    while (before := came_from[key]) is not None:
        key, action = before
        way.append(action)
    return way[::-1]


def check_end(world: World, state: State, judge: Judge) -> None:
    """Raises ProblemError if this is no good end for a job."""
    if not world.is_over(state):
        raise ProblemError("the job is stuck: nobody has anything to do, and it has not finished")
    judge(state)


def _key(state: Sequence[int]) -> bytes:
    """A state in little memory."""
    return array("I", state).tobytes()
