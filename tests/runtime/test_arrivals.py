"""Frames for subtasks in the middle of a record wait, in order; those for all others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minirt.runtime.channels.frames import Frame, Kind
from minirt.runtime.worker.arrivals import Arrivals


class Notes:
    """Stands for a subtask that hears of its frames; none may come while it works."""

    def __init__(self, working: Sequence[Any]) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self._working = working

    def on_frame(self, channel: int, frame: Frame) -> None:
        assert self not in self._working
        self.heard.append((channel, frame.payload))


STEPS = st.lists(
    st.tuples(st.sampled_from(["frame", "begin", "end", "release"]), st.integers(0, 2)), max_size=60
)


@given(steps=STEPS)
def test_each_subtask_hears_all_in_order_once_it_does_not_work(steps):
    working: list[Any] = []
    arrivals: Any = Arrivals(working)
    subtasks = [Notes(working) for _ in range(3)]
    sent: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for count, (what, which) in enumerate(steps):
        match what:
            case "frame":
                payload = str(count).encode()
                sent[which].append((count % 2, payload))
                arrivals.deliver(subtasks[which], count % 2, Frame(Kind.ROWS, payload))
            case "begin" if subtasks[which] not in working:
                working.append(subtasks[which])
            case "end" if working:
                working.pop()
            case "release":
                arrivals.release()
                for number, subtask in enumerate(subtasks):
                    assert subtask in working or subtask.heard == sent[number]
    working.clear()
    arrivals.release()
    assert [subtask.heard for subtask in subtasks] == [sent[number] for number in range(3)]


def test_a_frame_is_delivered_at_once_where_nobody_works() -> None:
    arrivals: Any = Arrivals([])
    subtask = Notes([])
    arrivals.deliver(subtask, 1, Frame(Kind.ROWS, b"x"))
    assert subtask.heard == [(1, b"x")]
