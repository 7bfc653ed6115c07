"""One subtask of a simulated worker, as the schedule and the channels see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirt.runtime.channels.frames import Frame
from minirt.runtime.subtask.subtask import Subtask
from minirt.testing.schedule import Actor

if TYPE_CHECKING:
    from minirt.testing.worker import SimulatedWorker


class SubtaskActor(Actor):
    """Gives one subtask its turns."""

    def __init__(self, worker: SimulatedWorker, subtask: Subtask) -> None:
        self._worker = worker
        self.subtask = subtask
        self.next_at: float | None = None
        """When the subtask has something to do by the clock, as of the last time it had nothing."""

    @property
    def gone(self) -> bool:
        return self._worker.gone

    @property
    def wake_at(self) -> float | None:
        return self.next_at

    def act(self) -> bool:
        return self._worker.work(self)


@dataclass(slots=True)
class SubtaskEnd:
    """Where the frames of one channel arrive."""

    actor: SubtaskActor
    channel: int

    def on_frame(self, frame: Frame) -> None:
        self.actor.subtask.on_frame(self.channel, frame)
