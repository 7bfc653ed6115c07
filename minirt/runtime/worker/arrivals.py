"""Frames that have arrived, on their way to the subtasks of a worker.

A trunk brings frames for many subtasks, and is read also while one of them is in the middle of a record:
else that one would hold up the others. It could not handle a barrier there. So what comes for it waits
here; credit bounds how much that can be.
"""

from __future__ import annotations

from collections.abc import Collection

from minirt.runtime.channels.frames import Frame
from minirt.runtime.subtask.subtask import Subtask


class Arrivals:
    """Delivers frames in the order in which they came, but nothing to the `working` subtasks."""

    def __init__(self, working: Collection[Subtask]) -> None:
        self._working = working
        self._waiting: dict[Subtask, list[tuple[int, Frame]]] = {}

    def deliver(self, subtask: Subtask, channel: int, frame: Frame) -> None:
        """A frame has come for a channel of a subtask."""
        if self._working or self._waiting:
            self._waiting.setdefault(subtask, []).append((channel, frame))
        else:
            subtask.on_frame(channel, frame)

    def release(self) -> None:
        """Deliver what waits for subtasks that do not work."""
        for subtask in [each for each in self._waiting if each not in self._working]:
            for channel, frame in self._waiting.pop(subtask):
                subtask.on_frame(channel, frame)
