"""Which actions suffice in a state: those of parts that nobody else can interfere with.

Partial-order reduction by persistent sets (Godefroid, "Partial-Order Methods for the Verification of
Concurrent Systems", 1996). Two actions of different parts lead to the same state in either order: each part
has its own state, and queues have one writer and one reader, who touch different ends. (Credit, which
is handed over at once, only ever allows more.) So take a set of parts such that nothing that others do
can give any of them an action that it does not have yet. Whatever happens in the rest of the job until
one of these parts acts, that action might as well have come first. It is then enough to follow the
actions of these parts: every execution has one among those followed that differs only in the order of
actions that do not touch each other, in which each part went through the same states; and so all
final states, and everything that goes wrong in a part, are found. No action is put off for ever, as a
job that ends by itself has no cycles of states.

A part depends on others as follows.

* A subtask that could take from a channel whose wire is empty depends on its sender.
* A subtask whose frame waits for credit depends on the receiver.
* A subtask with an empty mailbox depends on the coordinator, if that could send it something. The
  coordinator sends nothing while it waits for as many snapshots of one subtask as there may be checkpoints
  under way, which the world makes sure of; or, once no checkpoint is left but the last, for any snapshot,
  and for a subtask that has not drained.
* The coordinator depends on the subtasks that have not drained, since its answer to a stored manifest is
  another one after the last of them. It is enough to take one of them: without it there is no last.

Some actions can come first whatever else happens. To store a snapshot adds to what is durable, under a
name of its own. An acknowledgement only completes a checkpoint together with all the others, and that a
subtask has drained matters only if it is the last; so the coordinator hears of it as soon as it can.
When a checkpoint begins does not matter either: its triggers wait in mailboxes, for as long as one
likes. So it begins as soon as it can, or not in this generation. A frame is sent at once where no
barrier can overtake it any more (see `Sending`).

A crash leaves nothing but what is durable and what the coordinator knows. What the parts had in memory
does not matter, nor what is stored of a checkpoint that will not complete. So it is enough to follow a
crash from each state that is visited: the coordinator's states, and its manifests, are all among them.

tests/simulation/test_explore.py compares what is found with and without all this.
"""

from __future__ import annotations

from itertools import islice

from minirt.testing.exploration.queues import EMPTY
from minirt.testing.exploration.world import (
    COORDINATOR,
    FIRST,
    TRIGGERS,
    UNDRAINED,
    Action,
    State,
    World,
)


def all_actions(world: World, state: State) -> list[Action]:
    """Everything that can happen."""
    actions = list(world.coordinator_actions(state))
    actions += world.upload_actions(state)
    for place in range(world.count):
        actions += world.subtask_actions(state, place)
    if world.can_crash(state):
        actions.append(Action("crash"))
    return actions


def sufficient_actions(world: World, state: State) -> list[Action]:
    """As few as will do."""
    actions = (
        _next_checkpoint(world, state)
        or _harmless(world, state)
        or _of_independent_parts(world, state)
    )
    if world.can_crash(state):
        actions.append(Action("crash"))
    return actions


def _next_checkpoint(world: World, state: State) -> list[Action]:
    """The next one begins, or never will."""
    if not (world.coordinators.offers[state[COORDINATOR]].timer and state[TRIGGERS]):
        return []
    if world.is_full(state) or not state[UNDRAINED]:
        return []
    return [Action("fire"), Action("forgo")]


def _harmless(world: World, state: State) -> list[Action]:
    """Something that touches nothing that anybody else does: it might as well happen now."""
    for upload in world.upload_actions(state):
        return [upload]
    drained = [place for place in range(world.count) if state[world.messages + place] != EMPTY]
    for place in range(world.count):
        if state[world.acknowledgements + place] != EMPTY:
            return [Action("acknowledge", place)]
    if len(drained) > 1 or (drained and state[UNDRAINED]):
        return [Action("hear", drained[0])]
    return []


def _of_independent_parts(world: World, state: State) -> list[Action]:
    fewest: list[Action] | None = None
    subtasks = range(world.count) if state[FIRST] else ()
    for root in (*subtasks, _THE_COORDINATOR):
        actions = _actions_of(world, state, _closure(world, state, root))
        if actions and (fewest is None or len(actions) < len(fewest)):
            fewest = actions
            if len(actions) == 1:
                break
    return fewest or []


_THE_COORDINATOR = -1
"""Stands for the coordinator among the places of subtasks."""


def _actions_of(world: World, state: State, parts: set[int]) -> list[Action]:
    actions: list[Action] = []
    for part in sorted(parts):
        if part == _THE_COORDINATOR:
            actions += world.coordinator_actions(state)
        else:
            actions += world.subtask_actions(state, part)
    return actions


def _closure(world: World, state: State, root: int) -> set[int]:
    """The part and all that it depends on, directly or not."""
    found, pending = {root}, [root]
    while pending:
        while pending:
            part = pending.pop()
            depends_on = _upstream(world, state, part)
            pending += [other for other in depends_on if other not in found]
            found.update(depends_on)
        if _THE_COORDINATOR not in found and _may_be_told(world, state, found):
            found.add(_THE_COORDINATOR)
            pending.append(_THE_COORDINATOR)
    return found


def _upstream(world: World, state: State, place: int) -> list[int]:
    """Parts that may give this one something to do, apart from orders of the coordinator."""
    if place == _THE_COORDINATOR:
        undrained = (other for other in range(world.count) if state[UNDRAINED] >> other & 1)
        return list(islice(undrained, 1))
    held = world.subtasks.offers[state[FIRST + place]].held
    found = [world.ends[channel][1] for channel in held]
    for channel, (sender, receiver) in enumerate(world.ends):
        if receiver == place and state[world.wires + channel] == EMPTY:
            found.append(sender)
    return found


def _may_be_told(world: World, state: State, parts: set[int]) -> bool:
    """Whether the coordinator may send one of these anything before one of them has acted."""
    if all(state[world.inboxes + place] != EMPTY for place in parts):
        return False
    bits = sum(1 << place for place in parts)
    most = world.max_concurrent if state[TRIGGERS] else 1
    if any(world.unfinished(state, place) >= most for place in parts):
        return False
    return bool(state[TRIGGERS]) or not state[UNDRAINED] & bits
