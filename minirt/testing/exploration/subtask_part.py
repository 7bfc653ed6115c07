"""One subtask and its ends of channels, as a part that acts on events only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from minirt.operators.common.base import CoroutineStart
from minirt.protocol.drift import Progress
from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SourceProgressed, SubtaskDrained
from minirt.runtime.channels.channels import OutputChannel
from minirt.runtime.subtask.assembly import assemble
from minirt.runtime.subtask.snapshot import SnapshotUpload
from minirt.testing.clock import HeldClock
from minirt.testing.event_loop import JumpingLoop
from minirt.testing.exploration.job import ExploredJob
from minirt.testing.exploration.local_states import Event


@dataclass(frozen=True, slots=True)
class SubtaskOffers:
    """What a subtask can do by itself. Channels are given by their places in `ExploredJob.channels`."""

    works: bool
    wakes: bool
    """Whether there is a timer that may fire."""
    sendable: tuple[int, ...]
    held: tuple[int, ...]
    """Output channels whose next frame waits for credit."""


@dataclass(slots=True)
class SubtaskEffects:
    """What a subtask did to others in one event, by their numbers."""

    frame: int = 0
    """What was put on the wire of the channel that the event names."""
    credits: list[tuple[int, int, int]] = field(default_factory=list)
    """Channel, bytes consumed, window."""
    messages: list[int] = field(default_factory=list)
    """To the coordinator."""
    uploads: list[int] = field(default_factory=list)
    """Snapshots that are ready to be stored."""
    problem: str | None = None
    """What went wrong; there is no state after it."""


class OneStepPacer:
    """Slices of one step each: one record, one timer, or one other element. A `Pacer`."""

    def begin(self) -> None: ...

    def piece(self, *, columns: bool) -> int:
        return 1

    def done(self, records: int, *, columns: bool) -> bool:
        return True


class SubtaskPart:
    """Its clock stands still, and moves to the next timer when an event says so. It is its own `Ports`.

    An event is one of ("work",), ("wake",), ("send", channel), ("take", channel, frame),
    ("credit", channel, consumed, window) and ("hear", message).
    """

    def __init__(self, job: ExploredJob, deployment: int, durable: int, id: SubtaskId) -> None:
        self._job = job
        self.clock = HeldClock()
        self._effects = SubtaskEffects()
        self._event_loop = JumpingLoop()
        job.storage.load(durable)
        deployed = job.deployments[deployment]
        self._generation = deployed.generation
        built = assemble(job.package, deployed, id, self, OneStepPacer(), _no_limit)
        self._subtask = built.subtask
        places = {channel: place for place, channel in enumerate(job.channels)}
        self._outputs = {places[id]: channel for id, channel in built.outputs.items()}
        self._inputs = {places[id]: index for id, (index, _) in built.inputs.items()}
        for channel_id, (_, queue) in built.inputs.items():
            queue.grant = partial(self._grant, places[channel_id])

    # The ports of the subtask.

    def upload(self, upload: SnapshotUpload) -> None:
        self._effects.uploads.append(self._job.uploads.of(upload))

    def drained(self, subtask: SubtaskId) -> None:
        message = SubtaskDrained(self._generation, subtask)
        self._effects.messages.append(self._job.to_coordinator.of(message))

    def caught_up(self, subtask: SubtaskId) -> None:
        """Nobody comes back alone here."""

    def progressed(self, subtask: SubtaskId, progress: Progress) -> None:
        message = SourceProgressed(self._generation, subtask, progress)
        self._effects.messages.append(self._job.to_coordinator.of(message))

    def wake(self, subtask: SubtaskId) -> None:
        """Whoever explores asks what it can do."""

    def run_beside(self, call: Callable[[], None]) -> None:
        call()

    def run_async(self, start: CoroutineStart) -> None:
        self._event_loop.begin(start)
        self._event_loop.finish()

    # What a part does.

    def apply(self, event: Event) -> SubtaskEffects:
        try:
            self._do(event)
        except Exception as error:
            self._effects.problem = f"{type(error).__name__}: {error}"
        effects, self._effects = self._effects, SubtaskEffects()
        return effects

    def repeat(self, event: Event) -> None:
        self._do(event)
        self._effects = SubtaskEffects()

    def offers(self) -> SubtaskOffers:
        timer_at = self._subtask.timer_at
        queued = [place for place, channel in self._outputs.items() if channel.queued_bytes]
        sendable = tuple(place for place in queued if self._outputs[place].sendable)
        return SubtaskOffers(
            works=self._subtask.runnable,
            wakes=timer_at is not None,
            sendable=sendable,
            held=tuple(place for place in queued if place not in sendable),
        )

    def _do(self, event: Event) -> None:
        subtask = self._subtask
        match event:
            case ("work",):
                subtask.run_slice()
            case ("wake",):
                assert subtask.timer_at is not None
                self.clock.at = max(self.clock.at, subtask.timer_at)
                subtask.on_time()
            case ("send", channel):
                frame = self._outputs[channel].poll()
                assert frame is not None
                self._effects.frame = self._job.frames.of(frame)
            case ("take", channel, frame):
                subtask.on_frame(self._inputs[channel], self._job.frames[frame])
            case ("credit", channel, consumed, window):
                self._outputs[channel].on_credit(consumed, window)
            case ("hear", message):
                subtask.obey(self._job.to_subtask[message])

    def _grant(self, channel: int, consumed_bytes: int, window_bytes: int) -> None:
        self._effects.credits.append((channel, consumed_bytes, window_bytes))


def _no_limit(channel: OutputChannel) -> None:
    """Everything runs in one thread: a record has to finish whatever it emits."""
