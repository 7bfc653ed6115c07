"""Hands what coordinator and uploader have to say to the subtasks of a worker, wherever that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from minirt.protocol.ids import SubtaskId
from minirt.protocol.job_events import SnapshotAcknowledged, SnapshotDeclined
from minirt.protocol.subtask_commands import AbortCheckpoint, SubtaskCommand
from minirt.runtime.control.messages import SentCommand, WorkerEvent
from minirt.runtime.network.transit import Transit
from minirt.runtime.subtask.subtask import Subtask


class CommandReceiver:
    """Takes the commands that come to one worker. `give_up` drops what waits for a checkpoint, and for
    all older ones but some."""

    def __init__(
        self, monotonic: Callable[[], float], give_up: Callable[[int, Collection[int]], None]
    ) -> None:
        self._monotonic = monotonic
        self._give_up = give_up
        self._transit = Transit()

    def receive(self, sent: SentCommand, subtasks: Collection[Subtask]) -> None:
        """Carry out a command that has come from another process."""
        command = self._transit.command(sent.command, sent.sent_at, self._monotonic())
        if isinstance(command, AbortCheckpoint):
            self._give_up(command.checkpoint_id, command.spared)
        deliver(command, subtasks)


def deliver(command: SubtaskCommand, subtasks: Collection[Subtask]) -> None:
    """Have all subtasks obey, or those among them that are sources."""
    for subtask in subtasks:
        if subtask.input.is_source or not command.to_sources:
            subtask.obey(command)


def deliver_uploaded(result: WorkerEvent, subtasks: Mapping[SubtaskId, Subtask]) -> None:
    """Tell the subtask whose snapshot was to be uploaded what has become of it."""
    if isinstance(result, SnapshotAcknowledged | SnapshotDeclined):
        subtask = subtasks.get(result.subtask)
        if subtask is not None:
            subtask.on_uploaded(result)
