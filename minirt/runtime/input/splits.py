"""What a source subtask knows of its splits: how far each is, for how long it was silent, what is due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Batch
from minirt.errors import SourceDataError
from minirt.io.base import BadRecord, Offset, Split, SplitReader
from minirt.operators.common.columns import check_names
from minirt.operators.event_time import NO_WATERMARK
from minirt.runtime.input.split_watermarks import SplitWatermark

INTERLEAVED_ROWS, INTERLEAVED_COLUMNS = 256, 1024
_RUN_S, _LONGER_MAX = 0.02, 64
"""How long a run of a split that is alone may take, and how many times as long as the others it may be."""


@dataclass(slots=True)
class Silence:
    """For how long a split was asked in vain, since it last brought a record.

    Only the time counts in which it was asked, or the subtask waited to ask again, and for no longer than
    it means to wait. While a subtask is busy, paused or held up by its outputs, records may lie unread.
    """

    wait_max_s: float
    seconds: float = 0.0
    asked_at: float | None = None

    def asked_in_vain(self, began: float, ended: float) -> None:
        waited = 0.0 if self.asked_at is None else min(began - self.asked_at, self.wait_max_s)
        self.seconds += max(0.0, waited) + max(0.0, ended - began)
        self.asked_at = ended

    def end(self) -> None:
        self.seconds, self.asked_at = 0.0, None


@dataclass(slots=True)
class SplitState:
    """How far one split is: `skip` records after `offset` were emitted already."""

    order: int
    split: Split
    silence: Silence
    offset: Offset = None
    skip: int = 0
    finished: bool = False
    reader: SplitReader | None = None
    batch: Batch | None = None
    """What the last read brought; records up to `position` are given out."""
    position: int = 0
    times: npt.NDArray[np.int64] | None = None
    """The timestamps of `batch`."""
    bad: list[BadRecord] = field(default_factory=list)
    """What was read together with `batch` and has no usable event time."""
    newest_ms: int | None = None
    """The newest event time that was given out; None before the first record."""
    next_ms: int | None = None
    """The event time of the first record that was read and is not given out, if the split was looked at."""
    ahead: int = NO_WATERMARK
    """What the records that are not given out allow the watermark to be, while none was given out."""
    watermark: SplitWatermark | None = None
    """Once records have come, if they have event time."""
    turn: int = 0
    """When its records were given out last, among the turns of all splits."""
    reopened: int = 0
    """How often it was opened again after it had been closed to make room for others."""
    stay: int = 0
    """How many batches it may still give out before older ones, as it was opened again."""

    def to_plain(self) -> list[Any]:
        split = self.split
        return [self.order, split.id, dict(split.info), self.offset, self.skip, self.finished]

    @classmethod
    def from_plain(cls, plain: Sequence[Any], silence: Silence) -> SplitState:
        order, split_id, info, offset, skip, finished = plain
        return cls(order, Split(split_id, info), silence, offset, skip, finished)

    @property
    def reached_ms(self) -> int | None:
        """How far its event time is: at its newest record, or at the first one if none was given out."""
        return self.next_ms if self.newest_ms is None else self.newest_ms

    @property
    def precedence(self) -> tuple[bool, bool, int, int, int]:
        """Among splits read side by side the least is next: what was never read, then the oldest.

        Splits that event time does not tell apart take turns.
        """
        reached = self.reached_ms
        return (reached is not None, not self.stay, reached or 0, self.turn, self.order)

    @property
    def told(self) -> int:
        """The watermark that its records have told, or allow as long as none of them was given out."""
        if self.newest_ms is None or self.watermark is None:
            return self.ahead
        return self.watermark.current()

    def is_silent(self, timeout_s: float | None) -> bool:
        """Whether it was asked in vain for the idle timeout; one not yet begun has not been asked."""
        return timeout_s is not None and self.silence.seconds >= timeout_s


OPEN_AHEAD_MAX, OPEN_MAX = 8, 32
"""How many splits that event time tells apart are open at once: of those yet to be begun, and in all."""
_STAY_MAX = 1024


def one_too_many(states: Iterable[SplitState], *, begun: bool) -> SplitState | None:
    """Return the split to close for now, if too many are open: the newest one.

    With `begun`, it may be one whose records were given out. The oldest split that holds records is never
    closed, as its records come next: others may have none for as long as they like.
    """
    opened = [state for state in states if state.reader is not None]
    holding = [state for state in opened if state.batch is not None]
    next_one = min(holding, key=lambda state: state.precedence, default=None)
    waiting = [state for state in opened if state.newest_ms is None]
    for among, most in (waiting, OPEN_AHEAD_MAX), (opened if begun else [], OPEN_MAX):
        closable = [state for state in among if state is not next_one]
        if len(among) > most and closable:
            return max(closable, key=lambda state: state.precedence)
    return None


def stay_after_reopening(reopened: int) -> int:
    """How many batches a split gives out in a row that was opened again so often.

    To open it may cost as much as to read all that lies before, as in a compressed file: it must not be
    opened for each batch.
    """
    return min(1 << reopened, _STAY_MAX)


def active_splits(states: Sequence[SplitState], idle_timeout_s: float | None) -> list[SplitState]:
    """The splits that hold back event time: neither ended nor silent. One yet to be begun is among them."""
    return [state for state in states if not state.finished and not state.is_silent(idle_timeout_s)]


def source_watermark(states: Sequence[SplitState], idle_timeout_s: float | None) -> int:
    """How far the event time of these splits is: as far as the least of those that hold it back.

    Once none does, it is as far as any has told. So it does not matter in which order splits fall silent
    or end, nor which of them one subtask reads.
    """
    if active := active_splits(states, idle_timeout_s):
        return min(state.told for state in active)
    return max((state.told for state in states), default=NO_WATERMARK)


class Runs:
    """How many records of one split come in a row while splits are read side by side.

    What a batch of columns costs is much the same for one record as for many. But event time advances by
    such a run at once: the longer it is, the more timers become due together, and aligned barriers wait
    behind them. A split that is alone leaves no other behind, so its runs grow while they take little time.
    """

    def __init__(self) -> None:
        self._longer = 1
        """How many times as long as a run of several splits."""
        self._began_at: float | None = None
        """When a run was given out that was as long as it might be."""

    def look(self, splits: int, now: float) -> None:
        """So many splits have not ended, and the last run was processed."""
        if splits > 1:
            self._longer = 1
        elif self._began_at is not None:
            took_s = now - self._began_at
            if took_s > _RUN_S:
                self._longer = max(1, self._longer // 2)
            elif took_s < _RUN_S / 2:
                self._longer = min(2 * self._longer, _LONGER_MAX)
        self._began_at = None

    def cut(self, records: int, now: float, *, columns: bool) -> int:
        """How many of so many records are given out now."""
        run = self._longer * (INTERLEAVED_COLUMNS if columns else INTERLEAVED_ROWS)
        if records < run:
            return records
        self._began_at = now
        return run


@dataclass(slots=True)
class Pace:
    """Event time that has come, if `speed` seconds of it pass in each second since the first record."""

    speed: float
    started_at: float | None = None
    first_ms: int = 0

    def due_ms(self, now: float, next_ms: int) -> int:
        if self.started_at is None:
            self.started_at, self.first_ms = now, next_ms
        return self.first_ms + int((now - self.started_at) * 1000 * self.speed)

    def due_at(self, event_ms: int) -> float:
        assert self.started_at is not None
        return self.started_at + (event_ms - self.first_ms) / 1000 / self.speed


def check_batch(read: object) -> None:
    """Raise SourceDataError for what is no batch."""
    if isinstance(read, pa.RecordBatch):
        try:
            check_names(read)
        except ValueError as error:
            raise SourceDataError(str(error)) from error
    elif not isinstance(read, list):
        raise SourceDataError(
            f"a split is read as lists or as pyarrow.RecordBatches, not as {type(read).__name__}"
        )
