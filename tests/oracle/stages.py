"""The operators of the jobs: each checks the header of every value, and fails when it is time to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import minirt as rt
from tests.oracle.board import Board
from tests.oracle.records import checked, copied, lane_of, sequence_of, track_of
from tests.oracle.tally import Tally

_NEVER_MS = 1 << 62
"""A time that only the end of all input reaches."""

_HOLD_MS = 20
_HELD_MAX = 50


class Stage(rt.Process):
    """Passes values on."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def open(self) -> None:
        self._board.reach("open")

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[int]:
        self._board.reach("process")
        return [checked(record)]

    def close(self) -> None:
        self._board.reach("close")


class Receiver(rt.Process):
    """Copies of values that were broadcast get the number of the subtask that received them."""

    def __init__(self, broadcast_lanes: Iterable[int]) -> None:
        self._lanes = frozenset(broadcast_lanes)

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[int]:
        return [copied(record, ctx.subtask) if lane_of(record) in self._lanes else checked(record)]


class Sides(rt.Process):
    """Values of odd lanes go to the side output `odd`."""

    def process(self, record: int, ctx: rt.ProcessContext) -> Iterable[int]:
        if lane_of(record) % 2:
            ctx.side("odd", checked(record))
            return []
        return [checked(record)]


class Meeting(rt.KeyedCoProcess):
    """Passes on the values of both sides."""

    seen = rt.ValueState(default=0)

    def process_left(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        return self._pass(record)

    def process_right(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        return self._pass(record)

    def _pass(self, record: int) -> list[int]:
        self.seen.value += 1
        return [checked(record)]


class Holding(rt.KeyedProcess):
    """Holds values back until a timer fires or they become many, and lets them go in order."""

    held = rt.ListState()

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        if not self.held.get():
            if self._domain == "event":
                ctx.set_timer(sequence_of(record) + _HOLD_MS)
            else:
                ctx.set_processing_timer(ctx.processing_time + _HOLD_MS)
        self.held.add(record)
        return self._release() if len(self.held.get()) == _HELD_MAX else []

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[int]:
        return self._release()

    def _release(self) -> list[int]:
        released = self.held.get()
        self.held.clear()
        return [checked(value) for value in released]


class Checker(rt.KeyedProcess):
    """Slow. Passes numbers on, and at the end of all input what its state says of each track."""

    tally = rt.ValueState()
    brittle = rt.ValueState()

    def __init__(self, record_s: float, board: Board) -> None:
        self._record_s = record_s
        self._board = board

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        time.sleep(self._record_s)
        plain = self.tally.value
        if plain is None:
            self.brittle.value = _Brittle(self._board)
            ctx.set_timer(_NEVER_MS)
        tally = Tally() if plain is None else Tally.from_plain(plain)
        tally.add(sequence_of(record))
        self.tally.value = tally.to_plain()
        return [{"track": track_of(record), "sequence": sequence_of(record)}]

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[Any]:
        return [{"track": ctx.key, "tally": self.tally.value}]


class _Brittle:
    """State that may fail when it is packed or unpacked."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __reduce__(self) -> tuple[Any, ...]:
        self._board.reach("store")
        return _load_brittle, (self._board,)


def _load_brittle(board: Board) -> _Brittle:
    board.reach("load")
    return _Brittle(board)
