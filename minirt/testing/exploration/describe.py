"""Actions in words, for people who want to know how something went wrong."""

from __future__ import annotations

from minirt.data.codec import RowCodec
from minirt.protocol.subtask_commands import TriggerCheckpoint
from minirt.runtime.channels.frames import Frame, Kind, barrier_of
from minirt.testing.exploration.world import ANSWERS, Action, State, World


def describe(world: World, state: State, action: Action) -> str:
    """What happens if the action is taken in this state."""
    match action:
        case Action("work", place):
            return f"{world.name(place)} works one step"
        case Action("upload", place):
            return f"the snapshot of {world.name(place)} is stored"
        case Action("wake", place):
            return f"{world.name(place)}: a timer fires"
        case Action("obey", place):
            return f"{world.name(place)} hears: {_order(world, state, place)}"
        case Action("send", channel):
            sender, receiver = world.ends[channel]
            return f"{world.name(sender)} sends {_sent(world, state, channel)} to {world.name(receiver)}"
        case Action("take", channel):
            sender, receiver = world.ends[channel]
            frame = world.job.frames[world.queues[state[world.wires + channel]][0]]
            return f"{world.name(receiver)} receives {_frame(frame)} from {world.name(sender)}"
        case Action("hear", place):
            return f"the coordinator hears {_message(world, state[world.messages + place], place)}"
        case Action("acknowledge", place):
            return f"the coordinator hears {_message(world, state[world.acknowledgements + place], place)}"
        case Action("answer"):
            answer = world.job.to_coordinator[world.queues[state[ANSWERS]][0]]
            return f"the coordinator hears {type(answer).__name__} of its storage"
    return _OTHERS[action.kind]


_OTHERS = {
    "store": "the coordinator carries out a storage command",
    "fire": "the coordinator's next timer fires",
    "forgo": "no further checkpoint begins before the last one",
    "crash": "a worker crashes, and the coordinator ends the generation",
}


def _order(world: World, state: State, place: int) -> str:
    command = world.job.to_subtask[world.queues[state[world.inboxes + place]][0]]
    if isinstance(command, TriggerCheckpoint):
        return f"take checkpoint {command.barrier.checkpoint_id}"
    return type(command).__name__


def _message(world: World, queue: int, place: int) -> str:
    message = world.job.to_coordinator[world.queues[queue][0]]
    return f"{type(message).__name__} of {world.name(place)}"


def _sent(world: World, state: State, channel: int) -> str:
    wire = world.wires + channel
    after = world.after(state, Action("send", channel))
    return _frame(world.job.frames[world.queues[after[wire]][-1]])


def _frame(frame: Frame) -> str:
    if frame.kind == Kind.BARRIER:
        return f"barrier {barrier_of(frame).checkpoint_id}"
    if frame.kind == Kind.ROWS:
        return f"records {RowCodec().decode(frame.payload).records}"
    return Kind(frame.kind).name.lower()
