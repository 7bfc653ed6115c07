"""How long a worker waits when none of its subtasks has anything to do."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from minirt.clock import SYSTEM_CLOCK
from minirt.protocol.ids import SubtaskId
from minirt.runtime.worker.roster import Roster
from minirt.runtime.worker.worker import Worker, waiting_s


@pytest.mark.parametrize(
    ("wakes", "seconds"),
    [
        ([7.25], 2.25),
        ([7.0, 6.0, None], 1.0),
        ([7.0, 5.0], 0.0),
        ([7.0, 4.75, 5.5], 0.0),
    ],
    ids=["one", "the first", "due now", "due since the subtasks were asked for work"],
)
def test_it_waits_for_the_first_moment(wakes: list[float | None], seconds: float) -> None:
    assert waiting_s(wakes, now=5.0) == seconds


def patience_s(*subtasks: SimpleNamespace) -> float:
    """Of a worker whose next heartbeat is far off."""
    worker: Any = Worker.__new__(Worker)
    next_beat = time.monotonic() + 1000
    for place, subtask in enumerate(subtasks):
        vars(subtask).update(id=SubtaskId(0, place), outputs=SimpleNamespace())
    roster: Any = Roster(subtasks)  # type: ignore[arg-type]
    vars(worker).update(
        _roster=roster,
        _heartbeat_at=next_beat,
        clock=SYSTEM_CLOCK,
        _note_wait=lambda subtask: None,
    )
    return worker._patience_s()  # type: ignore[no-any-return]


def test_a_subtask_that_is_due_ends_the_wait_of_its_worker() -> None:
    now = time.monotonic()
    idle = SimpleNamespace(runnable=False, wake_at=None)
    soon = SimpleNamespace(runnable=False, wake_at=now + 100)
    due = SimpleNamespace(runnable=False, wake_at=now - 1)
    assert patience_s(idle) > 100 >= patience_s(idle, soon) > 0 == patience_s(idle, soon, due)


def test_nothing_is_waited_for_while_a_subtask_has_work() -> None:
    idle = SimpleNamespace(runnable=False, wake_at=None)
    busy = SimpleNamespace(runnable=True, wake_at=None)
    assert patience_s(idle, busy) == 0.0
