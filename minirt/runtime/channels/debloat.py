"""Buffer debloating: sizes the credit window of one channel after how fast its data is consumed.

A queue of fixed size holds milliseconds of work for a fast function and minutes for a slow one, and an
aligned barrier waits behind all of it. So each channel measures its own throughput, in bytes per second of
the time in which it had data, and holds about what is consumed in the target time. The input window gets
the same part of that as `input_queue_bytes` is of both queues; the sender scales its queue and its frames
with the window. Where that queue is small beside the largest window, it counts as a quarter of the window.

The moving average is that of Flink's `BufferDebloater` and `BufferSizeEMA`, with four differences. The
rate is one channel's, not the subtask's. A sample that took several periods, since a function was stuck,
counts as several, so long pauses have their weight. A window starts small and doubles, once it was
consumed at a pace that asks for it, until a period of work passes in which it did not: TCP's slow start.
So a slow job begins with short queues, and a fast one loses no time. And a rate that has fallen to less
than half is believed within two periods, since each further one lets more into the queues than the target
allows for; one that has risen is averaged, since a burst may be over before the queues are full.
"""

from __future__ import annotations

from collections.abc import Callable

from minirt.config import Limits

_FALL = 0.5
"""A sample that asks for less than this part of the window says that the rate has fallen."""

_FALL_WEIGHT = 0.75
"""What such a sample of one period counts in the average."""

_WINDOW_TO_QUEUE = 4
"""How much larger than the sender's queue a window is at most in whose proportion that shrinks."""


def first_window_bytes(limits: Limits) -> int:
    """The window with which both ends of a channel begin; also the smallest one."""
    return min(limits.debloat_window_bytes_min, limits.input_queue_bytes)


def full_window_bytes(window_bytes_max: int, queue_bytes_max: int) -> int:
    """The smallest window for which the sender uses all of its queue.

    A queue that is small beside the largest window need not shrink with each smaller one: frames would, and
    what they hold is worked on in pieces as small, which costs a fast job much.
    """
    return min(window_bytes_max, _WINDOW_TO_QUEUE * queue_bytes_max)


class Debloater:
    """The window of one channel. It hears when data arrives and when records were processed.

    `target_s` is for how long the data in both queues of the channel should last. `now` is a
    monotonic clock in seconds; it is read once for each piece of a batch.
    """

    def __init__(self, target_s: float, limits: Limits, now: Callable[[], float]) -> None:
        window_bytes = full_window_bytes(limits.input_queue_bytes, limits.output_queue_bytes)
        self._reach_s = target_s * window_bytes / (window_bytes + limits.output_queue_bytes)
        self._period_s = limits.debloat_period_s
        self._alpha = 2 / (limits.debloat_samples + 1)
        self._threshold = limits.debloat_threshold
        self._bytes_max = limits.input_queue_bytes
        self._bytes_min = first_window_bytes(limits)
        self._now = now
        self.window_bytes = self._bytes_min
        """What the sender is told."""
        self._size = float(self._bytes_min)
        """The moving average that `window_bytes` follows in steps of at least the threshold."""
        self._record_bytes = 0.0
        self._in_work = 0
        """How many records of the frame in work are still to be processed."""
        self._starting = True
        """Whether no period has passed yet in which the window did not double."""
        self._began_at = self._counted_to = now()
        self._bytes = 0.0
        self._busy_s = 0.0

    def resume(self) -> None:
        """Data has come to an empty queue, or may be read again: the time until now was no work."""
        if not self._in_work:
            self._counted_to = self._now()

    def begin(self, frame_bytes: int, records: int) -> None:
        """A frame was taken from the queue and will be worked on."""
        self._record_bytes = frame_bytes / max(1, records)
        self._in_work = records

    def processed(self, records: int) -> None:
        """So many records of the frame in work have been processed."""
        now = self._now()
        self._in_work -= records
        self._bytes += records * self._record_bytes
        self._busy_s += now - self._counted_to
        self._counted_to = now
        # To wait for data is no sign that a start is over.
        passed_s = self._busy_s if self._starting else now - self._began_at
        if passed_s >= self._period_s:
            self._average()
        elif not self._starting or self._bytes < self._size or not self._double():
            return
        self._began_at, self._bytes, self._busy_s = now, 0.0, 0.0

    @property
    def _desired(self) -> float:
        """The window that fits the throughput of this sample, at most the largest one."""
        if not self._busy_s:
            return self._bytes_max
        return min(self._bytes_max, self._bytes * self._reach_s / self._busy_s)

    def _average(self) -> None:
        """Take the sample into the average, which at most doubles."""
        self._starting = False
        desired, alpha = self._desired, self._alpha
        if desired < _FALL * self._size:
            alpha = max(alpha, _FALL_WEIGHT)
        weight = 1 - (1 - alpha) ** max(1.0, self._busy_s / self._period_s)
        size = self._size + weight * (desired - self._size)
        self._size = max(self._bytes_min, min(size, 2 * self._size))
        if abs(self._size - self.window_bytes) >= self._threshold * self.window_bytes:
            self.window_bytes = round(self._size)

    def _double(self) -> bool:
        """Double the window if the sample asks for it."""
        doubled = min(2 * self._size, self._bytes_max)
        if self._size == doubled or self._desired < doubled:
            return False
        self._size = doubled
        self.window_bytes = round(doubled)
        return True
