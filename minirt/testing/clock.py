"""Time that only the simulator moves, and slices that only the seed cuts."""

from __future__ import annotations

from random import Random

START = 1_700_000_000.0
"""When every simulation begins, in seconds since 1970."""


class SimulatedClock:
    """Moves a little with every step of the simulation, and jumps when nothing else can happen."""

    def __init__(self, random: Random, step_s: float) -> None:
        self._random = random
        self.step_s = step_s
        self._now = START

    def now(self) -> float:
        """Seconds since 1970."""
        return self._now

    @property
    def elapsed(self) -> float:
        """Seconds since the simulation began."""
        return self._now - START

    def tick(self) -> None:
        """Let the time of one step pass: `step_s` seconds on average."""
        self._now += self._random.random() * 2 * self.step_s

    def jump(self, to: float) -> None:
        """Go on at `to`, unless that is over already."""
        self._now = max(self._now, to)


class SeededPacer:
    """Cuts the work of a subtask into pieces and slices of a few records, so that barriers fall anywhere.

    It is a `minirt.runtime.pacer.Pacer`.
    """

    def __init__(self, random: Random, piece_max: int, pieces_max: int) -> None:
        self._piece = 1
        self._random = random
        self._piece_max = piece_max
        self._pieces_max = pieces_max
        self._left = 0

    def begin(self) -> None:
        self._left = 1 + int(self._random.random() * self._pieces_max)
        self._draw_piece()

    def piece(self, *, columns: bool) -> int:
        return self._piece

    def done(self, records: int, *, columns: bool) -> bool:
        self._left -= 1
        self._draw_piece()
        return self._left <= 0

    def _draw_piece(self) -> None:
        self._piece = 1 + int(self._random.random() * self._piece_max)
