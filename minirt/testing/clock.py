"""Time that only a test or the simulator moves, and slices that only the seed cuts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from random import Random

from minirt.clock import SYSTEM_CLOCK, Clock

START = 1_700_000_000.0
"""When every simulation begins, in seconds since 1970."""

_MACHINE_UP_S = 1000.0
_ROUNDING_S = 1e-9


class SimulatedClock:
    """Moves a little with every step of the simulation, and jumps when nothing else can happen."""

    def __init__(self, random: Random, step_s: float) -> None:
        self._random = random
        self.step_s = step_s
        self._monotonic = _MACHINE_UP_S
        self._wall_ahead_s = START - _MACHINE_UP_S

    def now(self) -> float:
        """The wall clock: seconds since 1970."""
        return self._monotonic + self._wall_ahead_s

    def monotonic(self) -> float:
        """What the schedule goes by; processes have clocks of their own."""
        return self._monotonic

    @property
    def elapsed(self) -> float:
        """Seconds since the simulation began."""
        return self._monotonic - _MACHINE_UP_S

    def tick(self) -> None:
        """Let the time of one step pass: `step_s` seconds on average."""
        self._monotonic += self._random.random() * 2 * self.step_s

    def jump(self, to: float) -> None:
        """Let time pass until the monotonic clock shows `to`, unless that is over already."""
        self._monotonic = max(self._monotonic, to)

    def set_wall(self, by_s: float) -> None:
        """Somebody sets the wall clock, forward or back; no time passes."""
        self._wall_ahead_s += by_s


class ProcessClock:
    """The clocks of one simulated process: the wall clock of all, and a monotonic one of its own."""

    def __init__(self, clock: SimulatedClock, ahead_s: float) -> None:
        self._clock = clock
        self._ahead_s = ahead_s

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead_s

    def scheduled(self, at: float | None) -> float | None:
        """When the schedule has come to what this process calls `at`."""
        return None if at is None else at - self._ahead_s + _ROUNDING_S


class HeldClock:
    """Stands still until a test moves it; the wall clock and the monotonic clock show the same."""

    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@dataclass(frozen=True)
class ShiftedClock:
    """The clocks of the machine, as if somebody set its wall clock; for all processes of a job at once.

    A file holds by how many seconds; a test may replace it at any time with `shift`.
    """

    file: str
    machine: Clock = SYSTEM_CLOCK

    def now(self) -> float:
        try:
            with open(self.file) as file:
                return self.machine.now() + float(file.read())
        except FileNotFoundError:
            return self.machine.now()

    def monotonic(self) -> float:
        return self.machine.monotonic()

    def shift(self, by_s: float) -> None:
        """From now on the wall clock is so many seconds ahead of that of the machine."""
        with open(self.file + ".new", "w") as file:
            file.write(repr(by_s))
        os.replace(self.file + ".new", self.file)


class SeededPacer:
    """Cuts the work of a subtask into pieces and slices of a few records, so that barriers fall anywhere.

    It is a `minirt.runtime.subtask.pacer.Pacer`.
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
