"""A channel between two subtasks of one process."""

from __future__ import annotations

from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.subtask.subtask import Subtask


class LocalChannel:
    """Moves frames from one end of a channel to the other within a process."""

    def __init__(self, output: OutputChannel, input: InputChannel, to: Subtask, index: int) -> None:
        self._output = output
        self.receiver = to
        self.is_ready = False
        """Whether whoever moves frames has it on the list of those to look at."""
        self._index = index
        input.grant = output.on_credit

    @property
    def ready(self) -> bool:
        return self._output.sendable

    def move(self) -> bool:
        """Deliver the next frame that credit allows; False if there is none."""
        frame = self._output.poll()
        if frame is None:
            return False
        self.receiver.on_frame(self._index, frame)
        return True
