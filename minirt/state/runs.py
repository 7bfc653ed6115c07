"""Records that wait for partners of their key: sorted runs, as in a log-structured merge tree.

A batch that comes in becomes a run, sorted by key and time. Runs of like size are merged, so there are few,
and each record is copied a few times in its life. A run is looked through by binary search for all keys of
a batch at once. Source of the method: O'Neil et al., "The Log-Structured Merge-Tree", 1996.

Runs are sorted by one number for each record: half the hash of its key, then its time within the run. What
such a search finds are candidates, whose keys and times are then compared. The columns of the records are
not sorted: they are large, and are only picked where a record is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns
from minirt.data.hashing import U64
from minirt.state.numbers import Mask

Times = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

RUN_ROWS_MAX = 1 << 17
"""Runs of more records are not merged: that would take too long at a time."""

RUN_ROWS_MIN = 1 << 11
"""A run of fewer records is merged with whatever comes next: each run costs time at every search, however
few records are looked for. So does each merge, which copies all of it for a batch of a hundred."""

ALIKE_MAX = 4
"""So many runs of like size become one. With fewer, each record is copied, and stored, more often; with
more, there are more runs to search."""

CANDIDATES_MAX = 1 << 18
"""How many pairs are looked at in one go."""

_ROW_BYTES = 33
"""What a record takes besides its columns."""

_TIME_BITS = 32
_LATEST = (1 << _TIME_BITS) - 1
_KEY_PART = ~np.uint64(_LATEST)


@dataclass(slots=True, eq=False)
class Run:
    """Records sorted by `order`. `done` marks those of which nothing more is to be given out."""

    table: pa.RecordBatch
    """Their columns, in the order in which they came."""
    rows: Places
    """By record, its row in the table."""
    hashes: U64
    times: Times
    until: Times
    """By record, the watermark from which on no partner of it can come."""
    done: Mask
    name: str = ""
    path: str | None = None
    """The file that holds all but `done`."""
    base: int = 0
    shift: int = 0
    order: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    first: int = 0
    last: int = 0
    """The least and the largest of its times."""
    over_from: int = 0
    """The least of `until` of the records that are not over."""
    bytes: int = 0
    """About what it takes in memory."""

    def __len__(self) -> int:
        return len(self.times)

    def records(self, places: Places, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The records at these places, with all columns or these. Raises UnsupportedRecordError."""
        table = self.table if columns is None else self.table.select(list(columns))
        return taken(table, self.rows[places])

    def take(self, places: Places) -> Run:
        """These records, which stay sorted, as a run of its own."""
        part = Run(
            self.records(places),
            np.arange(len(places)),
            self.hashes[places],
            self.times[places],
            self.until[places],
            self.done[places],
        )
        part.base, part.shift, part.order = self.base, self.shift, self.order[places]
        part._measure()
        return part

    def _measure(self) -> None:
        self.first, self.last = int(self.times.min()), int(self.times.max())
        self.over_from = int(self.until.min())
        self.bytes = int(self.table.nbytes) + _ROW_BYTES * len(self)


def taken(table: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """The records at these places. Raises UnsupportedRecordError, as `Columns.take`."""
    return Columns(table).take(places).table


def sorted_run(table: pa.RecordBatch, hashes: U64, times: Times, until: Times, done: Mask) -> Run:
    """A run of these records, at least one."""
    first, last = int(times.min()), int(times.max())
    base, shift = first, max(0, (last - first).bit_length() - _TIME_BITS)
    order = _order(hashes, times, base, shift)
    places = np.argsort(order, kind="stable")
    run = Run(table, places, hashes[places], times[places], until[places], done[places])
    run.base, run.shift, run.order = base, shift, order[places]
    run._measure()
    return run


def merged(runs: Sequence[Run]) -> Run:
    """The records of all. Of equal ones, those of the first run come first."""
    joined = [np.concatenate([getattr(run, name) for run in runs]) for name in _ARRAYS]
    table = pa.concat_batches([run.table for run in runs])
    begins = np.cumsum([0, *map(len, runs[:-1])])
    rows = np.concatenate([run.rows + begin for run, begin in zip(runs, begins, strict=True)])
    run = sorted_run(table, *joined)
    run.rows = rows[run.rows]
    return run


def in_rows(rows: Places, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values of the records of a run, in the order of its table."""
    found = np.empty_like(values)
    found[rows] = values
    return found


_ARRAYS = ("hashes", "times", "until", "done")


def candidates(hashes: U64, first: Times, last: Times, run: Run) -> Iterator[tuple[Places, Places]]:
    """Pairs of places: a needle, and a record of the run that has the needle's key, but for collisions, and
    a time from `first` to `last`. In pieces. `hashes` had better be in ascending order.
    """
    wanted = np.flatnonzero((first <= run.last) & (last >= run.first))
    if not len(wanted):
        return
    if len(wanted) < len(hashes):
        hashes, first, last = hashes[wanted], first[wanted], last[wanted]
    starts = np.searchsorted(run.order, _order(hashes, first, run.base, run.shift), "left")
    # Most keys are not in the run at all: only those that are need a second search.
    at = np.minimum(starts, len(run) - 1)
    hits = np.flatnonzero((run.order[at] ^ hashes) & _KEY_PART == 0)
    if not len(hits):
        return
    starts, wanted = starts[hits], wanted[hits]
    first, last, hashes = first[hits], last[hits], hashes[hits]
    ends = np.searchsorted(run.order, _order(hashes, last, run.base, run.shift), "right")
    counts = ends - starts
    for begin, stop in _pieces(counts):
        number = counts[begin:stop]
        needles = np.repeat(np.arange(begin, stop), number)
        offsets = np.arange(len(needles)) - np.repeat(np.cumsum(number) - number, number)
        places = np.repeat(starts[begin:stop], number) + offsets
        times = run.times[places]
        fits = (
            (times >= first[needles])
            & (times <= last[needles])
            & (run.hashes[places] == hashes[needles])
        )
        if not fits.all():
            needles, places = needles[fits], places[fits]
        if len(places):
            yield wanted[needles], places


Same = Callable[[Places, Places], Mask | None]
"""Whether the keys of needles and of records of a run are equal; None if all are."""


def newest(hashes: U64, times: Times, run: Run, same: Same) -> Places:
    """For each needle the last record of its key that is not newer than its time, -1 where there is none.

    Of records of one time it is the one that came last.
    """
    at = np.searchsorted(run.order, _order(hashes, times, run.base, run.shift), "right") - 1
    return _nearest(hashes, run, same, at, -1, lambda open, at: run.times[at] <= times[open])


def next_after(hashes: U64, times: Times, run: Run, same: Same) -> Places:
    """For each needle the first record of its key that is newer than its time, -1 where there is none."""
    at = np.searchsorted(run.order, _order(hashes, times, run.base, run.shift), "left")
    return _nearest(hashes, run, same, at, 1, lambda open, at: run.times[at] > times[open])


def _nearest(
    hashes: U64, run: Run, same: Same, at: Places, step: int, fits: Callable[[Places, Places], Mask]
) -> Places:
    """The first place from `at` on, in steps, that has the needle's key and fits.

    Others are passed over only where keys share half a hash, or times the same part of a run.
    """
    found = np.full(len(hashes), -1, np.intp)
    open = np.arange(len(hashes))
    while True:
        places = at[open]
        there = (places >= 0) & (places < len(run))
        open, places = open[there], places[there]
        there = (run.order[places] ^ hashes[open]) & _KEY_PART == 0
        open, places = open[there], places[there]
        if not len(open):
            return found
        right = (run.hashes[places] == hashes[open]) & fits(open, places)
        hits = np.flatnonzero(right)
        if len(hits):
            equal = same(open[hits], places[hits])
            if equal is not None:
                right[hits[~equal]] = False
            found[open[right]] = places[right]
            open = open[~right]
        at[open] += step


def _order(hashes: U64, times: Times, base: int, shift: int) -> U64:
    """What runs are sorted by. A time outside of the run counts as its first or its last one."""
    within = np.clip((times - base) >> shift, 0, _LATEST).astype(np.uint64)
    order: U64 = (hashes & _KEY_PART) | within
    return order


def _pieces(counts: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Stretches of at least one needle, with about as many candidates as are looked at in one go."""
    sums = np.cumsum(counts)
    if not len(sums) or sums[-1] <= CANDIDATES_MAX:
        yield 0, len(counts)
        return
    begin, done = 0, 0
    while begin < len(counts):
        stop = max(begin + 1, int(np.searchsorted(sums, done + CANDIDATES_MAX, "right")))
        yield begin, stop
        begin, done = stop, int(sums[stop - 1])


class Runs:
    """All records of one side that wait, in runs."""

    def __init__(self, prefix: str) -> None:
        """`prefix` begins the name of each run, and must differ from those of all other subtasks, also of
        those of earlier generations."""
        self.runs: list[Run] = []
        self._prefix = prefix
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @property
    def bytes(self) -> int:
        """About what they take."""
        return sum(run.bytes for run in self.runs)

    def add(self, run: Run, over: int, *, only_done: bool) -> None:
        """Take up a run, and merge it with others of like size; what is over by `over` goes.

        `only_done` keeps what is over and has still to be given out.
        """
        self._name(run)
        self.runs.append(run)
        while count := self._alike():
            joined = merged(self.runs[-count:])
            del self.runs[-count:]
            gone = joined.until <= over
            if only_done:
                gone &= joined.done
            if gone.any():
                left = np.flatnonzero(~gone)
                if not len(left):
                    return
                joined = joined.take(left)
            self._name(joined)
            self.runs.append(joined)

    def _alike(self) -> int:
        """How many of the newest runs are to become one; 0 if none are."""
        newest = len(self.runs[-1])
        most = max(RUN_ROWS_MIN, min(2 * newest, RUN_ROWS_MAX))
        alike = takewhile(lambda run: len(run) <= most, reversed(self.runs[:-1]))
        lengths = [newest, *map(len, alike)]
        small = len(lengths) > 1 and min(lengths[:2]) < RUN_ROWS_MIN
        return len(lengths) if len(lengths) >= ALIKE_MAX else 2 if small else 0

    def restored(self, run: Run) -> None:
        """Take up a run as it was stored, also its name if it has one."""
        prefix, _, number = run.name.rpartition("-")
        if not run.name:
            self._name(run)
        elif prefix == self._prefix:
            self._count = max(self._count, int(number))
        self.runs.append(run)

    def let_go(self, run: Run, over: int) -> None:
        """What is over by `over` was given out: free a run that holds little else."""
        alive = run.until > over
        left = int(np.count_nonzero(alive))
        place = self.runs.index(run)
        if not left:
            del self.runs[place]
        elif 2 * left < len(run):
            self.runs[place] = run.take(np.flatnonzero(alive))
            self._name(self.runs[place])
        else:
            run.over_from = int(run.until[alive].min())

    def _name(self, run: Run) -> None:
        self._count += 1
        run.name = f"{self._prefix}-{self._count}"
