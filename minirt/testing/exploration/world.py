"""All states of a whole job, and what can happen in each.

A state is a tuple of numbers: of the local states of coordinator and subtasks, of what is durable, and of
the queues between them. Nothing else connects the parts, so what happens to one changes only the
numbers of its own state and of queues that it reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from minirt.errors import WorkerLostError
from minirt.protocol.job_events import (
    JobStatus,
    StopWorkers,
    SubtaskStarted,
    WorkerFailed,
    WorkersConnected,
)
from minirt.protocol.subtask_commands import AbortCheckpoint, SubtaskCommand, TriggerCheckpoint
from minirt.testing.exploration.coordinator_part import (
    CoordinatorEffects,
    CoordinatorOffers,
    CoordinatorPart,
    Deployed,
    Order,
)
from minirt.testing.exploration.job import ExploredJob
from minirt.testing.exploration.local_states import Event, LocalStates
from minirt.testing.exploration.queues import EMPTY, Queues
from minirt.testing.exploration.subtask_part import SubtaskEffects, SubtaskOffers, SubtaskPart

State = tuple[int, ...]

COORDINATOR, DURABLE, ANSWERS, CRASHES, TRIGGERS, UNFINISHED, UNDRAINED = range(7)
"""Places in a state: the coordinator, what is durable, the answers of storage, how many crashes and
checkpoints may still begin, how many snapshots of each subtask are not finished, as digits of a number,
and, as bits, which subtasks have not drained."""

_DIGIT_BITS = 4

FIRST = 7
"""Where the subtasks begin. Behind them come their mailboxes, messages, uploads and acknowledgements, and
the wires of all channels."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can happen, and the place of the subtask or channel that it happens to."""

    kind: str
    place: int = -1


class ProblemError(Exception):
    """Something has gone wrong that must not."""


class OvertakingError(Exception):
    """A barrier overtook data, so that it matters when a frame is sent."""


class Sending(Enum):
    """When a frame is sent that credit allows to send.

    It makes no difference unless a barrier overtakes the frame before.
    """

    AT_ONCE = "at once; a snapshot for which a barrier overtook is an OvertakingError"
    AT_ONCE_BEHIND_BARRIERS = (
        "at once, by subtasks that will send no barrier before all are drained"
    )
    AT_ANY_TIME = "at any time"


class World:
    """What is possible in a state, and what it leads to."""

    def __init__(self, job: ExploredJob, checkpoints: int, crashes: int, sending: Sending) -> None:
        self.job = job
        self._sending = sending
        self.count = len(job.subtasks)
        self.inboxes = FIRST + self.count
        self.messages = FIRST + 2 * self.count
        self.uploads = FIRST + 3 * self.count
        self.acknowledgements = FIRST + 4 * self.count
        self.wires = FIRST + 5 * self.count
        self.ends = [job.ends_of(channel) for channel in job.channels]
        self.subtasks: LocalStates[SubtaskEffects, SubtaskOffers] = LocalStates()
        self.coordinators: LocalStates[CoordinatorEffects, CoordinatorOffers] = LocalStates()
        self.queues = Queues()
        self._everyone = (1 << self.count) - 1
        self._once_each = sum(1 << _DIGIT_BITS * place for place in range(self.count))
        self.max_concurrent = job.checkpointing.max_concurrent
        self._sources = [
            place
            for place, id in enumerate(job.subtasks)
            if job.graph.vertices[id.vertex].is_source
        ]
        begin = [EMPTY] * (self.wires + len(job.channels))
        begin[COORDINATOR] = self.coordinators.begin(partial(CoordinatorPart, job))
        begin[DURABLE] = job.storage.empty
        begin[CRASHES], begin[TRIGGERS] = crashes, checkpoints
        self.begin: State = tuple(begin)

    def is_over(self, state: State) -> bool:
        """Whether the job has finished, and all is stored that was to be."""
        offers = self.coordinators.offers[state[COORDINATOR]]
        return offers.status is JobStatus.FINISHED and not offers.stores

    # What can happen.

    def coordinator_actions(self, state: State) -> Iterator[Action]:
        offers = self.coordinators.offers[state[COORDINATOR]]
        if offers.stores:
            yield Action("store")
        if offers.status is JobStatus.FINISHED:
            return
        if state[ANSWERS] != EMPTY:
            yield Action("answer")
        for place in range(self.count):
            if state[self.messages + place] != EMPTY:
                yield Action("hear", place)
            if state[self.acknowledgements + place] != EMPTY:
                yield Action("acknowledge", place)
        if offers.timer and (state[TRIGGERS] or offers.status is JobStatus.WAITING):
            yield Action("fire")

    def subtask_actions(self, state: State, place: int) -> Iterator[Action]:
        local = state[FIRST + place]
        if not local:
            return
        offers = self.subtasks.offers[local]
        if offers.works:
            yield Action("work", place)
        if offers.wakes:
            yield Action("wake", place)
        if state[self.inboxes + place] != EMPTY:
            yield Action("obey", place)
        for channel in offers.sendable:
            yield Action("send", channel)
        for channel, (_, receiver) in enumerate(self.ends):
            if receiver == place and state[self.wires + channel] != EMPTY:
                yield Action("take", channel)

    def upload_actions(self, state: State) -> Iterator[Action]:
        for place in range(self.count):
            if state[self.uploads + place] != EMPTY:
                yield Action("upload", place)

    def unfinished(self, state: Sequence[int], place: int) -> int:
        """How many snapshots of a subtask have been ordered and are not finished."""
        return state[UNFINISHED] >> _DIGIT_BITS * place & (1 << _DIGIT_BITS) - 1

    def is_full(self, state: Sequence[int]) -> bool:
        """Whether no checkpoint may begin before some subtask finishes a snapshot."""
        return any(self.unfinished(state, p) >= self.max_concurrent for p in range(self.count))

    def can_crash(self, state: State) -> bool:
        running = self.coordinators.offers[state[COORDINATOR]].status is JobStatus.RUNNING
        return bool(state[CRASHES]) and running

    # What it leads to.

    def after(self, state: State, action: Action) -> State:
        """Raises ProblemError."""
        after = list(state)
        match action:
            case Action("store"):
                self._direct(after, ("store", state[DURABLE]))
            case Action("answer"):
                self._direct(after, ("hear", self._pop(after, ANSWERS)))
            case Action("hear", place):
                self._direct(after, ("hear", self._pop(after, self.messages + place)))
            case Action("acknowledge", place):
                self._direct(after, ("hear", self._pop(after, self.acknowledgements + place)))
            case Action("fire"):
                self._direct(after, ("fire",))
            case Action("forgo"):
                after[TRIGGERS] -= 1
            case Action("crash"):
                self._crash(after)
            case Action("upload", place):
                self._upload(after, place)
            case Action("obey", place):
                self._let(after, place, ("hear", self._pop(after, self.inboxes + place)))
            case Action("send", channel):
                self._let(after, self.ends[channel][0], ("send", channel))
            case Action("take", channel):
                frame = self._pop(after, self.wires + channel)
                self._let(after, self.ends[channel][1], ("take", channel, frame))
            case Action(kind, place):
                self._let(after, place, (kind,))
        return tuple(after)

    def _pop(self, state: list[int], queue: int) -> int:
        first, state[queue] = self.queues.pop(state[queue])
        return first

    def _push(self, state: list[int], queue: int, item: int) -> None:
        state[queue] = self.queues.push(state[queue], item)

    def _let(self, state: list[int], place: int, event: Event) -> None:
        """Give an event to a subtask, and what that does to those concerned."""
        state[FIRST + place], effects = self.subtasks.step(state[FIRST + place], event)
        if effects.problem is not None:
            raise ProblemError(f"{self.name(place)}: {effects.problem}")
        if effects.frame:
            self._push(state, self.wires + event[1], effects.frame)
        for message in effects.messages:
            self._push(state, self.messages + place, message)
            state[UNDRAINED] &= ~(1 << place)
        for upload in effects.uploads:
            if self._sending is Sending.AT_ONCE and self.job.uploads[upload].switches:
                raise OvertakingError
            self._push(state, self.uploads + place, upload)
            state[UNFINISHED] -= 1 << _DIGIT_BITS * place
        for channel, consumed, window in effects.credits:
            # Credit changes nothing but what may be sent, so that it might come later makes no difference.
            self._let(state, self.ends[channel][0], ("credit", channel, consumed, window))
        if self._sends_at_once(state, place):
            for channel in self.subtasks.offers[state[FIRST + place]].sendable[:1]:
                self._let(state, place, ("send", channel))

    def _sends_at_once(self, state: list[int], place: int) -> bool:
        if self._sending is not Sending.AT_ONCE_BEHIND_BARRIERS:
            return self._sending is Sending.AT_ONCE
        return not state[TRIGGERS] and not self.unfinished(state, place)

    def _upload(self, state: list[int], place: int) -> None:
        try:
            stored, message = self.job.store(self._pop(state, self.uploads + place))
        except Exception as error:
            raise ProblemError(f"{self.name(place)}: {type(error).__name__}: {error}") from error
        state[DURABLE] = self.job.storage.merged(state[DURABLE], stored)
        self._push(state, self.acknowledgements + place, message)

    def _direct(self, state: list[int], event: Event) -> None:
        """Give an event to the coordinator, and carry out what it orders."""
        state[COORDINATOR], effects = self.coordinators.step(state[COORDINATOR], event)
        if effects.problem is not None:
            raise ProblemError(f"coordinator: {effects.problem}")
        if effects.durable is not None:
            state[DURABLE] = effects.durable
        if effects.answer:
            self._push(state, ANSWERS, effects.answer)
        for order in effects.orders:
            self._carry_out(state, order, by_timer=event == ("fire",))

    def _carry_out(self, state: list[int], order: Order, *, by_timer: bool) -> None:
        match order:
            case Deployed(deployment):
                self._deploy(state, deployment)
            case StopWorkers():
                self._stop(state)
            case TriggerCheckpoint():
                if self.is_full(state):
                    raise ProblemError("coordinator: too many checkpoints are under way at a time")
                state[UNFINISHED] += self._once_each
                state[TRIGGERS] -= by_timer
                self._send(state, order)
            case AbortCheckpoint():
                raise ProblemError(f"coordinator: gives checkpoint {order.checkpoint_id} up")
            case _:
                self._send(state, order)

    def _send(self, state: list[int], command: SubtaskCommand) -> None:
        for place in self._sources if command.to_sources else range(self.count):
            self._push(state, self.inboxes + place, self.job.to_subtask.of(command))

    def _deploy(self, state: list[int], deployment: int) -> None:
        """All subtasks start in one step: nobody else is there who could do anything meanwhile."""
        job, generation = self.job, self.job.deployments[deployment].generation
        self._stop(state)
        state[UNFINISHED], state[UNDRAINED] = 0, self._everyone
        for place, id in enumerate(job.subtasks):
            make = partial(SubtaskPart, job, deployment, state[DURABLE], id)
            try:
                state[FIRST + place] = self.subtasks.begin(make)
            except Exception as error:
                raise ProblemError(f"{self.name(place)} cannot start: {error}") from error
        connected = job.to_coordinator.of(WorkersConnected(generation))
        self._direct(state, ("hear", connected))
        for id in job.subtasks:
            started = job.to_coordinator.of(SubtaskStarted(generation, id))
            self._direct(state, ("hear", started))

    def _stop(self, state: list[int]) -> None:
        """All subtasks are gone, with everything in their memory and on their way."""
        state[FIRST:] = [EMPTY] * (len(state) - FIRST)
        state[UNFINISHED] = state[UNDRAINED] = 0

    def _crash(self, state: list[int]) -> None:
        state[CRASHES] -= 1
        generation = self.coordinators.offers[state[COORDINATOR]].generation
        lost = WorkerFailed(generation, WorkerLostError("a worker crashed"))
        self._direct(state, ("hear", self.job.to_coordinator.of(lost)))

    # For people.

    def name(self, place: int) -> str:
        return self.job.graph.subtask_name(self.job.subtasks[place])
