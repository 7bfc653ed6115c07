"""How long a subtask works before its worker looks around, and at its output queues."""

from __future__ import annotations

import math
import resource
from time import perf_counter, thread_time
from typing import Protocol

_GROWTH_MAX = 4
"""How much larger a piece may be than the one before: a function may turn slow at any record."""

_PIECE_RECORDS_MAX = 1 << 16

_WORTH = 0.7
"""Half a piece is worth its own call if it takes less than this part of the time of the whole."""

_TRIED_AGAIN_AFTER = 64
"""How many pieces of columns are processed until sizes that did not pay are tried again."""

_ENOUGH_PIECES = 8
_ENOUGH_SLICES = 50
"""A size is known to take too long after so many pieces of it, or once they have taken so many slices."""

_MUCH_LONGER = 2
_SURPRISES_MAX = 16
_LONG_SURPRISES_MAX = 2
"""After so many pieces in turn that take much longer than known, all that was known is forgotten. Fewer are
enough if they hold up barriers: if they take as many slices as above."""

_MUCH_AWAY = 0.1
"""A thread was without the processor for long if it was for more than this part of its work."""

_OVERFILL = 1.5
"""How full a piece may leave an output queue before the next one is made smaller."""


class Pacer(Protocol):
    """Cuts work into slices: begin one, then process pieces until `done` says so."""

    def begin(self) -> None: ...

    def piece(self, *, columns: bool) -> int:
        """How many records to process next, of rows or of columns."""

    def done(self, records: int, *, columns: bool) -> bool:
        """Whether the slice is over, now that this many more records were processed."""


class Stopwatch:
    """Measures how long work of this thread takes, without the time in which others had the processor.

    Else a busy machine would make pieces tiny. The time in which a function sleeps or waits counts.
    """

    def __init__(self) -> None:
        self.now = 0.0
        """When it was looked at last."""
        self._cpu_s = 0.0
        self._waits: int | None = None
        self.start()

    def start(self) -> None:
        self.now, self._cpu_s, self._waits = perf_counter(), thread_time(), _times_waited()

    def lap_s(self) -> float:
        """Seconds since the start, or the last lap.

        Only if the thread was without the processor for long it asks whether that was by itself. That is
        the dearest of the three readings, so most laps go without.
        """
        now, cpu_s = perf_counter(), thread_time()
        passed_s, worked_s = now - self.now, cpu_s - self._cpu_s
        self.now, self._cpu_s = now, cpu_s
        if passed_s - worked_s <= _MUCH_AWAY * worked_s:
            return worked_s
        waits, self._waits = self._waits, _times_waited()
        only_worked = waits is not None and waits == self._waits
        return worked_s if only_worked else passed_s


def _times_waited() -> int | None:
    """None elsewhere than on Linux, where nobody tells of a single thread."""
    return resource.getrusage(_THREAD).ru_nvcsw if _THREAD is not None else None


_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


class TimedPacer:
    """Slices of `slice_s` seconds. The sizes of pieces follow what was measured.

    A piece of rows costs what its records cost, and one of columns may cost the same whatever it holds.
    """

    def __init__(self, slice_s: float) -> None:
        self._slice_s = slice_s
        self._rows = RowPieces(slice_s)
        self._columns = ColumnPieces(slice_s)
        self._began_at = 0.0
        self._stopwatch = Stopwatch()

    def begin(self) -> None:
        self._stopwatch.start()
        self._began_at = self._stopwatch.now

    def piece(self, *, columns: bool) -> int:
        return (self._columns if columns else self._rows).size

    def done(self, records: int, *, columns: bool) -> bool:
        took_s = self._stopwatch.lap_s()
        if records:
            (self._columns if columns else self._rows).took(records, max(took_s, 1e-9))
        return self._stopwatch.now - self._began_at >= self._slice_s


class RowPieces:
    """Makes pieces that take a slice, by the time per record of the last one."""

    def __init__(self, slice_s: float) -> None:
        self.size = 1
        self._slice_s = slice_s

    def took(self, records: int, seconds: float) -> None:
        fitting = int(records * self._slice_s / seconds)
        self.size = max(1, min(fitting, self.size * _GROWTH_MAX, _PIECE_RECORDS_MAX))


class _Size:
    """What is known of pieces of one size."""

    def __init__(self) -> None:
        self.pieces = 0
        self.spent_s = 0.0
        self.least_s = math.inf
        """How long a piece takes at least; infinite if none was measured."""

    def took(self, seconds: float) -> None:
        self.pieces += 1
        self.spent_s += seconds
        self.least_s = min(self.least_s, seconds)


class ColumnPieces:
    """Finds the largest piece that takes a slice, or one that takes longer and pays.

    That is as long as twice the records do not take nearly twice the time: a function that takes long for
    each record gets one at a time, one that takes long for each call gets many.

    Sizes are powers of two, and of each is known how long a piece took at least: what else the machine does
    only adds to that. So one piece is enough to see that a size is short, but not that it is long. Now and
    then the current one and those next to it are measured again. Single pieces that take much longer than
    known are passed over; after several in turn, all that was known is forgotten.
    """

    def __init__(self, slice_s: float) -> None:
        self._slice_s = slice_s
        self._step = 0
        self._sizes = [_Size() for _ in range(_PIECE_RECORDS_MAX.bit_length())]
        self._pieces = 0
        self._surprises: list[float] = []
        """What a record took in the pieces that have taken much longer than known, one behind the other."""

    @property
    def size(self) -> int:
        return 1 << self._step

    def took(self, records: int, seconds: float) -> None:
        step = records.bit_length() - 1
        if seconds > max(_MUCH_LONGER * self._sizes[step].least_s, self._slice_s):
            self._be_surprised(records, seconds)
            return
        self._surprises.clear()
        self._pieces += 1
        if self._pieces % _TRIED_AGAIN_AFTER == 0:
            for near in range(max(0, step - 1), min(step + 2, len(self._sizes))):
                self._sizes[near] = _Size()
        self._sizes[step].took(seconds)
        next_step = self._next(step)
        # A batch that ends early does not tell what a whole piece takes.
        if records >= self.size or next_step < step:
            self._step = next_step

    def _be_surprised(self, records: int, seconds: float) -> None:
        self._surprises.append(seconds / records)
        is_long = seconds >= _ENOUGH_SLICES * self._slice_s
        if len(self._surprises) >= (_LONG_SURPRISES_MAX if is_long else _SURPRISES_MAX):
            fitting = int(self._slice_s / min(self._surprises))
            self._surprises.clear()
            self._sizes = [_Size() for _ in self._sizes]
            self._step = min(max(1, fitting).bit_length(), len(self._sizes)) - 1

    def _next(self, step: int) -> int:
        seconds = self._sizes[step].least_s
        less = self._sizes[step - 1].least_s if step else seconds
        is_last = step + 1 == len(self._sizes)
        more = math.inf if is_last else self._sizes[step + 1].least_s
        if seconds > self._slice_s and (math.isinf(less) or less < _WORTH * seconds):
            return self._smaller(step)
        if is_last:
            return step
        if math.isinf(more):
            if math.isinf(less):  # What half of them take says what twice as many would.
                return step + 1 if 2 * seconds <= self._slice_s else self._smaller(step)
            more = seconds + 2 * max(0.0, seconds - less)
        pays = seconds > _WORTH * more
        return step + 1 if more <= self._slice_s or pays else step

    def _smaller(self, step: int) -> int:
        """The step below, once this one was measured often enough."""
        size = self._sizes[step]
        enough_s = _ENOUGH_SLICES * self._slice_s
        known = size.pieces >= _ENOUGH_PIECES or size.spent_s >= enough_s
        return step - 1 if known and step else step


class RoomPacer:
    """Keeps a piece so small that its output fits the output queues, whatever becomes of a record.

    Queues are looked at between pieces only. A queue that holds little, since its receiver is slow, would
    take in minutes of work with a single piece that is made for speed.
    """

    def __init__(self) -> None:
        self.piece = 1

    def done(self, records: int, fill: float) -> None:
        """So many records were processed, and have left the fullest queue filled to `fill` (1 is full)."""
        if not records:
            return
        if fill > _OVERFILL:
            self.piece = max(1, int(records / (2 * fill)))
        elif fill <= 1 and records >= self.piece:
            self.piece = min(2 * self.piece, _PIECE_RECORDS_MAX)
