"""How long a subtask works before it looks at its mailbox, and at its output queues."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

_GROWTH_MAX = 4
"""How much larger a piece may be than the one before: a function may turn slow at any record."""

_PIECE_RECORDS_MAX = 1 << 16

_OVERFILL = 1.5
"""How full a piece may leave an output queue before the next one is made smaller."""


class Pacer(Protocol):
    """Cuts work into slices: begin one, then process pieces of `piece` records until `done` says so."""

    piece: int

    def begin(self) -> None: ...

    def done(self, records: int) -> bool:
        """Whether the slice is over, now that this many more records were processed."""


class TimedPacer:
    """Slices of `slice_s` seconds; the size of a piece follows the measured time per record."""

    def __init__(self, slice_s: float) -> None:
        self.piece = 1
        self._slice_s = slice_s
        self._began_at = self._piece_began_at = 0.0

    def begin(self) -> None:
        self._began_at = self._piece_began_at = perf_counter()

    def done(self, records: int) -> bool:
        now = perf_counter()
        if records:
            took = max(now - self._piece_began_at, 1e-9)
            fitting = int(records * self._slice_s / took)
            self.piece = max(1, min(fitting, self.piece * _GROWTH_MAX, _PIECE_RECORDS_MAX))
        self._piece_began_at = now
        return now - self._began_at >= self._slice_s


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
