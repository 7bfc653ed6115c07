"""The queue at either end of a channel: frames in order, and where data and barriers lie among them.

Nobody looks through a queue. What a checkpoint asks of it costs as much as it holds data, whatever control
frames wait there besides, and however many checkpoints have sent their barriers through it before.

A barrier whose checkpoint is over means nothing to its reader. So a barrier that enters a queue drops all
those of checkpoints that it says are over, one of such a checkpoint does not enter any more, and whoever
learns that a checkpoint has ended drops its barriers (`drop`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from minirt.errors import ProtocolError
from minirt.runtime.channels.frames import Frame, Kind, barrier_of
from minirt.runtime.channels.spill import SpilledFrame

Queued = Frame | SpilledFrame


@dataclass(slots=True)
class _Place:
    """Where a barrier lies: how many frames, data frames and bytes of data are ahead of it."""

    frames: int
    data: int
    data_bytes: int


class FrameQueue:
    """Frames that wait to be sent, or to be read."""

    def __init__(self) -> None:
        self._frames: deque[Queued] = deque()
        self._data: deque[Queued] = deque()
        """The frames among them that hold records."""
        self.data_bytes = 0
        """The size of these."""
        self._barriers: dict[int, _Place] = {}
        """By the id of the checkpoint."""
        self._over_below = 0
        """Checkpoints with a lower id are over, as barriers have said."""

    def __len__(self) -> int:
        return len(self._frames)

    def __bool__(self) -> bool:
        return bool(self._frames)

    def __getitem__(self, index: int) -> Queued:
        return self._frames[index]

    def __iter__(self) -> Iterator[Queued]:
        return iter(self._frames)

    @property
    def barriers(self) -> int:
        """How many of the frames are barriers."""
        return len(self._barriers)

    def append(self, frame: Queued) -> None:
        """Put a frame at the end. It must be no barrier: see `append_barrier`."""
        self._frames.append(frame)
        if frame.is_data:
            self._data.append(frame)
            self.data_bytes += frame.size

    def append_barrier(self, barrier: Frame) -> list[Queued]:
        """Put a barrier at the end, unless its checkpoint is over; returns the barriers that it drops."""
        end = _Place(len(self._frames), len(self._data), self.data_bytes)
        return self._enter(barrier, end)

    def overtake(self, frame: Frame) -> list[Queued]:
        """Put a barrier or a mark ahead of everything but the marks that wait at the head.

        Returns the barriers that it drops. A receiver counts by marks, so they keep their order.
        """
        marks = sum(1 for _ in takewhile(lambda one: one.kind == Kind.MARK, self._frames))
        if frame.kind == Kind.BARRIER:
            return self._enter(frame, _Place(marks, 0, 0))
        self._insert(marks, frame)
        return []

    def popleft(self) -> Queued:
        """Take the first frame."""
        frame = self._frames.popleft()
        data_bytes = 0
        if frame.is_data:
            self._data.popleft()
            data_bytes = frame.size
            self.data_bytes -= data_bytes
        elif frame.kind == Kind.BARRIER:
            assert isinstance(frame, Frame)
            del self._barriers[barrier_of(frame).checkpoint_id]
        for place in self._barriers.values():
            place.frames -= 1
            if data_bytes:
                place.data -= 1
                place.data_bytes -= data_bytes
        return frame

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether the barrier of this checkpoint waits here."""
        return checkpoint_id in self._barriers

    def data_ahead(self, checkpoint_id: int | None) -> list[Queued]:
        """The data frames ahead of the barrier of a checkpoint; all of them if it is not here, or None."""
        place = None if checkpoint_id is None else self._barriers.get(checkpoint_id)
        return list(self._data) if place is None else list(islice(self._data, place.data))

    def bytes_ahead(self, checkpoint_id: int | None) -> int:
        """The size of what `data_ahead` gives."""
        place = None if checkpoint_id is None else self._barriers.get(checkpoint_id)
        return self.data_bytes if place is None else place.data_bytes

    def move_ahead(self, checkpoint_id: int) -> None:
        """Put the barrier of this checkpoint, which waits here, ahead of everything."""
        barrier = self._remove(checkpoint_id)
        self._insert(0, barrier)
        self._barriers[checkpoint_id] = _Place(0, 0, 0)

    def drop(self, is_over: Callable[[int], bool]) -> list[Queued]:
        """Drop the barriers of the checkpoints for whose ids this is so, and return them."""
        if not self._barriers:
            return []
        return [self._remove(id) for id in [*self._barriers] if is_over(id)]

    def _enter(self, frame: Frame, place: _Place) -> list[Queued]:
        barrier = barrier_of(frame)
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id < self._over_below:
            return []
        if checkpoint_id in self._barriers:
            raise ProtocolError(f"a second barrier of checkpoint {checkpoint_id} in one channel")
        oldest_id = checkpoint_id if barrier.oldest_id is None else barrier.oldest_id
        self._over_below = max(self._over_below, oldest_id)
        over = [id for id in self._barriers if id < self._over_below]
        place.frames -= sum(1 for id in over if self._barriers[id].frames < place.frames)
        dropped = [self._remove(id) for id in over]
        self._insert(place.frames, frame)
        self._barriers[checkpoint_id] = place
        return dropped

    def _insert(self, index: int, frame: Queued) -> None:
        self._frames.insert(index, frame)
        for place in self._barriers.values():
            if place.frames >= index:
                place.frames += 1

    def _remove(self, checkpoint_id: int) -> Queued:
        index = self._barriers.pop(checkpoint_id).frames
        frame = self._frames[index]
        del self._frames[index]
        for place in self._barriers.values():
            if place.frames > index:
                place.frames -= 1
        return frame
