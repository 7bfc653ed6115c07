"""What workloads are made of: a numbered source with a pace, a slow function, a quota, a checked sink.

A record is the tuple `(id, key, made_ns, payload)`. The id is the number of its split in the highest
bits, and below the number of the record in that split; payloads differ from record to record.
"""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minirt.cli.bench_payload import PAYLOAD_CHARS, payload
from minirt.clock import SYSTEM_CLOCK
from minirt.data.batch import Batch
from minirt.functions import Process, ProcessContext
from minirt.io.base import (
    Handle,
    Offset,
    Prepared,
    Sink,
    SinkContext,
    SinkWriter,
    Source,
    Split,
    SplitReader,
)
from minirt.laboratory.measured import Series, Verification
from minirt.laboratory.notes import Notebook, read_tracks
from minirt.laboratory.workload import Place, TimeIsUp

ID, KEY, MADE = 0, 1, 2
"""The places in a record."""

BATCH_RECORDS = 128
_SPLIT_BITS = 40
_SPREAD = 2654435761
END = -1
"""Marks the note of a source that has ended."""

Record = tuple[int, int, int, str]
Pace = Callable[[float], float]
"""How many records are due, so many seconds after the job began."""

Course = Sequence[tuple[float, float]]
"""Stretches of so many seconds at so many records a second; the last one goes on for ever."""


def steps(*course: tuple[float, float]) -> Pace:
    """The pace of a `Course`."""
    starts, totals = [0.0], [0.0]
    for seconds, rate in course[:-1]:
        starts.append(starts[-1] + seconds)
        totals.append(totals[-1] + seconds * rate)

    def due(at: float) -> float:
        place = max(0, bisect_right(starts, at) - 1)
        return totals[place] + max(0.0, at - starts[place]) * course[place][1]

    return due


class NumberedSource(Source):
    """Endless, at a pace or as fast as there is room, until the time of the run is up. One split a subtask.

    With a pace, a record was made when it was due, even if it is read later; else when it was read first:
    one that comes once more after a kill is as old as it was, within 10 ms.
    """

    bounded = False

    def __init__(
        self,
        place: Place,
        keys: int,
        pace: Pace | None = None,
        payload_chars: int = PAYLOAD_CHARS,
        hot_share: float = 0.0,
    ) -> None:
        """`pace` is that of all splits together. `hot_share` of all records have key 0."""
        self.place = place
        self.keys = keys
        self.pace = pace
        self.payload_chars = payload_chars
        self.hot_share = hot_share

    def plan_splits(self, parallelism: int) -> Sequence[Split]:
        began = {"monotonic": time.monotonic(), "wall": SYSTEM_CLOCK.now()}
        self._began_file.write_text(repr(began["monotonic"]))
        return [
            Split(f"{number}", {"number": number, "of": parallelism, **began})
            for number in range(parallelism)
        ]

    def open_split(self, split: Split, offset: Offset) -> SplitReader:
        return _NumberedReader(self, split, offset or 0)

    @property
    def _began_file(self) -> Path:
        return Path(self.place.folder, "began")


class _NumberedReader(SplitReader):
    """Its offset is the number of the next record."""

    def __init__(self, source: NumberedSource, split: Split, offset: int) -> None:
        self.offset = offset
        self._source = source
        self._first_id = split.info["number"] << _SPLIT_BITS
        self._splits: int = split.info["of"]
        self._began: float = split.info["monotonic"]
        self._began_ns = int(split.info["wall"] * 1e9)
        self._time_is_up = TimeIsUp(source.place)
        self._wall_of = split.info["wall"] - split.info["monotonic"]
        self._reached, self._reached_at = _first_reads(source.place, split.info["number"])
        who = f"source-{split.info['number']}"
        # By the time, as the notes of readers of several generations must not mix.
        self._notes = Notebook(str(source.place.notes), who, time.monotonic_ns())
        self._notes.reach(offset)

    def read(self) -> list[Any] | None:
        if self._time_is_up():
            self._notes.mark(END)
            return None
        first, pace = self.offset, self._source.pace
        made_ns = self._read_ns(first) if pace is None else self._due_ns(pace, first)
        records = [self._record(first + place, made) for place, made in enumerate(made_ns)]
        self.offset = first + len(records)
        self._notes.reach(self.offset)
        return records

    def _read_ns(self, first: int) -> list[int]:
        """When each of the next records was read first: now, unless it comes once more."""
        now_ns = int(SYSTEM_CLOCK.now() * 1e9)
        if not self._reached or first >= self._reached[-1]:
            return [now_ns] * BATCH_RECORDS
        known = min(BATCH_RECORDS, self._reached[-1] - first)
        at = [self._reached_at[bisect_right(self._reached, first + n)] for n in range(known)]
        again = [int((when + self._wall_of) * 1e9) for when in at]
        return again + [now_ns] * (BATCH_RECORDS - known)

    def _due_ns(self, pace: Pace, first: int) -> list[int]:
        """When each of the next records was due, of those that are."""
        passed = time.monotonic() - self._began
        count = min(BATCH_RECORDS, int(pace(passed) / self._splits) - first)
        if count <= 0:
            return []
        first_due, last_due = (
            _when_due(pace, (n + 1) * self._splits, passed) for n in (first, first + count - 1)
        )
        return [self._began_ns + int(at * 1e9) for at in np.linspace(first_due, last_due, count)]

    def _record(self, number: int, made_ns: int) -> Record:
        key = key_of(number, self._source.keys, self._source.hot_share)
        return (self._first_id + number, key, made_ns, _text(number, self._source.payload_chars))

    def close(self) -> None:
        self._notes.close()


def key_of(number: int, keys: int, hot_share: float) -> int:
    """The key of the record with this number in its split; `hot_share` of all have 0."""
    scattered = number * _SPREAD % (1 << 32)
    return 0 if scattered % 1000 < int(hot_share * 1000) else scattered // 1000 % keys


def _first_reads(place: Place, split: int) -> tuple[list[int], list[float]]:
    """How many records of a split readers before had given out, and when; both only grow."""
    own = [track for track in read_tracks(place.notes, "source") if track.who == f"source-{split}"]
    reached: list[int] = []
    at: list[float] = []
    for when, records in sorted((note.at, note.records) for track in own for note in track.notes):
        if records > (reached[-1] if reached else 0):
            reached.append(records)
            at.append(when)
    return reached, at


def _when_due(pace: Pace, records: int, now: float) -> float:
    """The moment from which so many records were due, by bisection, within 0.1 ms; at most `now`."""
    early, late = 0.0, now
    while late - early > 1e-4:
        middle = (early + late) / 2
        early, late = (early, middle) if pace(middle) >= records else (middle, late)
    return late


def _text(number: int, chars: int) -> str:
    pieces = -(-chars // PAYLOAD_CHARS)
    return "".join(payload(number * pieces + piece) for piece in range(pieces))[:chars]


class Slow(Process):
    """Takes `record_ms` for each record, in subtasks and at times that `when` names, until time is up.

    `when(subtask, seconds)` gives a factor; the seconds count from its first record.
    """

    def __init__(
        self, place: Place, record_ms: float, when: Callable[[int, float], float] | None = None
    ) -> None:
        self._record_s = record_ms / 1000
        self._when = when
        self._time_is_up = TimeIsUp(place)
        self._began: float | None = None

    def process(self, record: Any, ctx: ProcessContext) -> list[Any]:
        if not self._time_is_up():
            factor = 1.0
            if self._when is not None:
                now = time.monotonic()
                self._began = now if self._began is None else self._began
                factor = self._when(ctx.subtask, now - self._began)
            if factor > 0:
                time.sleep(self._record_s * factor)
        return [record]


class Quota(Process):
    """Lets so many records a second pass in each subtask: a token bucket that holds a tenth of a second."""

    def __init__(self, place: Place, records_per_s: float) -> None:
        self._rate = records_per_s
        self._time_is_up = TimeIsUp(place)
        self._tokens, self._filled_at = 0.0, time.monotonic()

    def open(self) -> None:
        self._filled_at = time.monotonic()

    def process(self, record: Any, ctx: ProcessContext) -> list[Any]:
        while self._tokens < 1 and not self._time_is_up():
            now = time.monotonic()
            filled = self._tokens + (now - self._filled_at) * self._rate
            self._tokens, self._filled_at = min(filled, max(1.0, self._rate / 10)), now
            if self._tokens < 1:
                time.sleep((1 - self._tokens) / self._rate)
        self._tokens -= 1
        return [record]


class NumberedSink(Sink):
    """Shows, in two phases, which ids came, in a file a checkpoint and subtask."""

    def __init__(self, place: Place) -> None:
        self._folder = str(place.outputs)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _NumberedWriter(self._folder, context)

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            pending = Path(self._folder, handle["name"])
            if pending.exists():  # Else it was committed before.
                pending.rename(pending.with_suffix(".ids"))

    def redirected(self, folder: str) -> Sink:
        """Itself: it writes into the folder of its run."""
        return self


class _NumberedWriter(SinkWriter):
    def __init__(self, folder: str, context: SinkContext) -> None:
        self._folder = folder
        self._name = f"{context.subtask}-{context.generation}"
        self._ids: list[int] = []

    def write(self, batch: Batch) -> None:
        self._ids.extend([record[ID] for record in batch.rows().records])

    def prepare(self, checkpoint_id: int) -> Prepared:
        if not self._ids:
            return Prepared()
        ids, self._ids = np.array(self._ids, np.int64), []
        path = Path(self._folder, f"{self._name}-{checkpoint_id}.pending")

        def finish() -> None:
            path.write_bytes(zlib.compress(np.diff(ids, prepend=0).tobytes(), 1))

        return Prepared([{"name": path.name}], finish)


def number_in_split(id: int) -> int:
    return id & ((1 << _SPLIT_BITS) - 1)


def first_id_of_split(id: int) -> int:
    """That of the split whose record has this id."""
    return id >> _SPLIT_BITS << _SPLIT_BITS


def ids_of_split(split: int, records: int) -> npt.NDArray[np.uint64]:
    first = split << _SPLIT_BITS
    return np.arange(first, first + records, dtype=np.uint64)


def verify_numbers(
    place: Place, results: Callable[[int], int] = lambda records: records
) -> Verification:
    """Whether each record that the sources gave out was committed exactly once.

    A split of so many records has `results(records)` results, numbered as its records are.
    """
    found = ends_of_splits(place)
    ids = _committed(place)
    if found is None:
        words = "the sources did not come to an end, so nobody knows what must be there"
        return Verification("not verified", words)
    ends = {split << _SPLIT_BITS: results(records) for split, records in found.items()}
    expected = sum(ends.values())
    unique = np.unique(ids)
    known = sum(
        int(((unique >= first) & (unique < first + end)).sum()) for first, end in ends.items()
    )
    missing, twice, foreign = expected - known, len(ids) - len(unique), len(unique) - known
    words = (
        f"{expected:,} records expected by their numbers: {missing:,} missing, {twice:,} twice, "
        f"{foreign:,} that nobody sent"
    )
    passed = missing == twice == foreign == 0
    return Verification("passed" if passed else "failed", words, expected, missing, twice)


def source_lag(place: Place, pace: Pace, began: float, every_s: float = 0.25) -> Series:
    """How many records were due and not read yet, over time."""
    tracks = read_tracks(place.notes, "source")
    job_began = float(Path(place.folder, "began").read_text())
    notes: dict[str, list[tuple[float, int]]] = {}
    for track in tracks:
        notes.setdefault(track.who, []).extend((note.at, note.records) for note in track.notes)
    last = max((at for own in notes.values() for at, _ in own), default=began)
    at, lags = [], []
    read = {who: sorted(own) for who, own in notes.items()}
    for step in range(int((last - began) / every_s)):
        now = began + step * every_s
        done = 0
        for own in read.values():
            place_ = bisect_right(own, (now, 1 << 62))
            done += own[place_ - 1][1] if place_ else 0
        at.append(round(step * every_s, 3))
        lags.append(max(0.0, round(pace(now - job_began) - done, 1)))
    return Series("source lag", "records", tuple(at), tuple(lags))


def ends_of_splits(place: Place) -> dict[int, int] | None:
    """How many records each split gave out in all, by its number; None if one did not come to its end."""
    ends = ends_of_readers(place)
    if not ends or None in ends.values():
        return None
    return {int(who.rpartition("-")[2]): end for who, end in ends.items() if end is not None}


def ends_of_readers(place: Place) -> dict[str, int | None]:
    """Likewise, by the name of the reader; None of one that did not come to its end."""
    ends: dict[str, int | None] = {}
    for track in read_tracks(place.notes, "source"):
        ended = [note.records for note in track.notes if note.checkpoint == END]
        ends[track.who] = max([*ended, ends.get(track.who) or 0]) if ended else ends.get(track.who)
    return ends


def _committed(place: Place) -> npt.NDArray[np.int64]:
    parts = [
        np.cumsum(np.frombuffer(zlib.decompress(path.read_bytes()), np.int64))
        for path in sorted(place.outputs.glob("*.ids"))
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
