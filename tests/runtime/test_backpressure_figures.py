"""What the figures of a subtask say of its time."""

from __future__ import annotations

import types
from collections import defaultdict
from typing import Any

import pytest

from minirt.graph.execution import SubtaskId
from minirt.runtime.metrics import SubtaskMetrics
from minirt.runtime.worker import Worker


class OneTurn(Worker):
    """A worker whose only turn waits until `end_wait` has changed something."""

    def __init__(self, subtask: Any, end_wait: Any) -> None:
        self.subtasks = [subtask]
        self._stopping = False
        self._working = []
        self._wiring: Any = types.SimpleNamespace(move_frames=lambda working: None)
        self._accounted_s = defaultdict(float)
        self._end_wait = end_wait

    def _wait(self) -> None:
        self._end_wait()

    def _beat(self) -> None:
        self._stopping = True

    def _report(self) -> None:
        pass


def idle_subtask(*, has_input: bool, full: bool) -> Any:
    return types.SimpleNamespace(
        id=SubtaskId(0, 0),
        metrics=SubtaskMetrics(),
        has_input=has_input,
        outputs=types.SimpleNamespace(full=full),
        runnable=False,
        on_time=lambda: None,
        close=lambda: None,
    )


def test_a_wait_that_ends_with_room_in_the_output_was_backpressure() -> None:
    subtask = idle_subtask(has_input=True, full=True)
    OneTurn(subtask, lambda: setattr(subtask.outputs, "full", False)).run()
    assert subtask.metrics.soft_backpressure_s > 0
    assert subtask.metrics.idle_s == 0


@pytest.mark.parametrize("full", [True, False])
def test_a_wait_that_ends_with_input_was_idleness(full: bool) -> None:
    subtask = idle_subtask(has_input=False, full=full)
    OneTurn(subtask, lambda: setattr(subtask, "has_input", True)).run()
    assert subtask.metrics.idle_s > 0
    assert subtask.metrics.soft_backpressure_s == 0
