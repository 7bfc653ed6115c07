"""One of several workers is killed and comes back alone: `python -m benchmarks.subtask_recovery`.

A source sends numbers at a steady rate to workers that count by key, each with so many keys of state, and
write to a sink that notes how many records have come, a hundred times a second. The counts are in dicts, of
a function of the user, or in arrays, of an aggregate. One worker after the other is killed by SIGKILL. In
the end the source says how many numbers it has given, and what the sink has committed is read: each number
must be there once, with the right count of its key. The exit status is 1 if not. Figures of each kill: by
which share the others were slower at worst, all together and each by itself, in any window of a quarter
second until the worker had caught up; the same in the seconds before the kill, which is what such windows
differ by anyway; after how many seconds the first record came from the killed one again, after how many it
was at its rate, and after how many it had nothing left to catch up with. With `--scope job` the whole job
restarts, for comparison. Kills begin once all keys have state and the source is at its rate, which takes a
minute or more with `--keys 1000000`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import minirt as rt
from benchmarks.measure import percentiles, print_rows
from minirt.data.batch import Batch, Columns
from minirt.protocol.ids import SubtaskId

_NOTE_S = 0.01
_WINDOW_S = 0.25
_BEFORE_S, _AFTER_S = 3.0, 8.0
"""How long before a kill rates are measured, and how long a worker has to catch up."""
_FILLED_WITHIN_S = 600.0


_BATCH = 1000
_PENDING, _COMMITTED, _NOTES, _END, _GIVEN = "pending", "committed", "notes", "end", "given"


@dataclass(frozen=True)
class Load:
    """What comes: each key once as fast as it goes, then so many numbers a second."""

    keys: int
    rate: int

    def key(self, number: Any) -> Any:
        """That of a number, or of each in an array."""
        return number % self.keys

    def due_ms(self, number: Any) -> Any:
        """When a number is due, or each in an array, after all keys have come."""
        return (number > self.keys) * (number - self.keys) * 1000 // self.rate


class Numbers(rt.Source):
    """0, 1, 2 and so on until there is a file `end`; then it writes into a file how many it has given.

    With `in_columns` they come beside their keys and when they are due.
    """

    def __init__(self, folder: Path, load: Load, *, in_columns: bool) -> None:
        self._folder = folder
        self._load = load
        self._in_columns = in_columns

    def plan_splits(self, parallelism: int) -> Sequence[rt.Split]:
        return [rt.Split("numbers", {})]

    def open_split(self, split: rt.Split, offset: int | None) -> rt.SplitReader:
        return _NumbersReader(self._folder, offset or 0, self._load if self._in_columns else None)


class _NumbersReader(rt.SplitReader):
    def __init__(self, folder: Path, offset: int, columns_of: Load | None) -> None:
        self._folder = folder
        self.offset = offset
        self._columns_of = columns_of

    def read(self) -> list[int] | pa.RecordBatch | None:
        if (self._folder / _END).exists():
            (self._folder / _GIVEN).write_text(str(self.offset))
            return None
        first, self.offset = self.offset, self.offset + _BATCH
        if self._columns_of is None:
            return list(range(first, self.offset))
        numbers, load = np.arange(first, self.offset), self._columns_of
        columns = {"number": numbers, "key": load.key(numbers), "due": load.due_ms(numbers)}
        return pa.RecordBatch.from_pydict(columns)


class NotingSink(rt.Sink):
    """Numbers with counts, in a file for each checkpoint of a subtask.

    Notes in a file of each process when how many records had come to it.
    """

    opens_again = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        notes = self._folder / _NOTES / f"{context.subtask}-{os.getpid()}"
        return _NotingWriter(notes, self._folder / _PENDING)

    def commit(self, handles: Sequence[dict[str, Any]]) -> None:
        for handle in handles:
            pending, done = (
                self._folder / each / handle["name"] for each in (_PENDING, _COMMITTED)
            )
            if pending.exists() or not done.exists():
                pending.rename(done)


class _NotingWriter(rt.SinkWriter):
    def __init__(self, notes: Path, pending: Path) -> None:
        self._file = notes.open("w", buffering=1)
        self._pending = pending
        self._pairs: list[npt.NDArray[np.int64]] = []
        self._count = 0
        self._noted_at = 0.0

    def write(self, batch: Batch) -> None:
        self._pairs.append(_pairs_of(batch))
        self._count += len(batch)
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_S:
            self._noted_at = now
            self._file.write(f"{now} {self._count}\n")

    def prepare(self, checkpoint_id: int) -> rt.Prepared:
        pairs, self._pairs = self._pairs, []
        name = uuid.uuid4().hex

        def finish() -> None:
            np.concatenate(pairs).tofile(self._pending / name)

        return rt.Prepared([{"name": name}], finish) if pairs else rt.Prepared()


def _pairs_of(batch: Batch) -> npt.NDArray[np.int64]:
    """The numbers of a batch with the counts of their keys."""
    if isinstance(batch, Columns):
        return np.column_stack([batch.table["number"], batch.table["count"]])
    return np.array(batch.records, np.int64).reshape(-1, 2)


class CountByKey(rt.KeyedProcess):
    seen = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[tuple[int, int]]:
        self.seen.value += 1
        yield record, self.seen.value


@dataclass(frozen=True)
class Found:
    """What is wrong with the committed output, in records."""

    lost: int
    repeated: int
    invented: int
    """Numbers that the source has not given."""
    miscounted: int
    """Numbers that came with another count of their key than it had by then."""

    @property
    def exactly_once(self) -> bool:
        return not (self.lost or self.repeated or self.invented or self.miscounted)


def check_output(pairs: npt.NDArray[np.int64], given: int, keys: int) -> Found:
    """Compare what was committed, numbers with the counts of their keys, with what must be.

    Of `given` numbers each must be there once. Numbers of a key are `keys` apart and come in order, so the
    count of each is known without a look at the others.
    """
    numbers, counts = pairs[:, 0], pairs[:, 1]
    known = (numbers >= 0) & (numbers < given)
    times = np.bincount(numbers[known], minlength=given)
    return Found(
        lost=int(np.count_nonzero(times == 0)),
        repeated=int(np.maximum(times - 1, 0).sum()),
        invented=int(np.count_nonzero(~known)),
        miscounted=int(np.count_nonzero(counts[known] != numbers[known] // keys + 1)),
    )


def read_output(folder: Path) -> npt.NDArray[np.int64]:
    """All pairs that were committed."""
    files = sorted((folder / _COMMITTED).iterdir())
    parts = [np.fromfile(file, np.int64) for file in files]
    return np.concatenate([np.empty(0, np.int64), *parts]).reshape(-1, 2)


class Course:
    """How many records came to one process, over time."""

    def __init__(self, path: Path) -> None:
        notes = [line.split() for line in path.read_text().splitlines()]
        whole = [note for note in notes if len(note) == 2]
        self.times = [float(at) for at, _ in whole]
        self._counts = [int(count) for _, count in whole]

    def count(self, at: float) -> int:
        place = bisect_right(self.times, at)
        return self._counts[place - 1] if place else 0

    def rate(self, start: float, stop: float) -> float:
        return (self.count(stop) - self.count(start)) / (stop - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rate", type=int, default=20_000, help="records per second in all")
    parser.add_argument("--keys", type=int, default=20_000, help="with state, of each worker")
    parser.add_argument("--state", choices=["dicts", "arrays"], default="dicts")
    parser.add_argument("--interval", default="1s", help="from checkpoint to checkpoint")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--scope", choices=["subtask", "job"], default="subtask")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kills, restarts = run(asked, storage, folder)
        figures = [judge(folder / _NOTES, *kill, asked.workers) for kill in kills]
        given = int((folder / _GIVEN).read_text())
        found = check_output(read_output(folder), given, asked.workers * asked.keys)
    row = {
        "case": f"kill-one-of-{asked.workers}",
        "scope": asked.scope,
        "state": asked.state,
        "kills": len(figures),
        "restarts": restarts,
        "records": given,
        "lost": found.lost,
        "repeated": found.repeated,
        "invented": found.invented,
        "miscounted": found.miscounted,
        **{
            name: {part: round(value, 3) for part, value in percentiles(values).items()}
            for name in figures[0]
            if (values := [one[name] for one in figures])
        },
    }
    print_rows([row], asked.json)
    return 0 if found.exactly_once else 1


def run(
    asked: argparse.Namespace, storage: str, folder: Path
) -> tuple[list[tuple[int, float]], int]:
    """Which subtask was killed, and when, for each kill; and how often the whole job has restarted."""
    for each in (_PENDING, _COMMITTED, _NOTES):
        (folder / each).mkdir()
    load = Load(asked.workers * asked.keys, asked.rate)
    env = rt.Environment(parallelism=asked.workers)
    in_columns = asked.state == "arrays"
    numbers = env.source(
        Numbers(folder, load, in_columns=in_columns),
        watermarks=rt.Watermarks.bounded(0, timestamp="due" if in_columns else load.due_ms),
        speed=1,
        parallelism=1,
    )
    counts = (rt.Count(), rt.Last("number", "number"))
    counted: rt.Stream[Any] = (
        numbers.key_by("key").aggregate(*counts, uid="count")
        if in_columns
        else numbers.key_by(load.key).process(CountByKey(), uid="count")
    )
    counted.sink(NotingSink(folder), uid="out")
    job = env.start(
        "subtask-recovery",
        checkpointing=rt.Checkpointing(storage, interval=asked.interval, mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="0s", scope=asked.scope),
    )
    kills = []
    try:
        wait_until_filled(folder / _NOTES, asked)
        time.sleep(_AFTER_S)
        for kill in range(asked.kills):
            time.sleep(_BEFORE_S)
            victim = kill % asked.workers
            killed_at = time.monotonic()
            os.kill(job.progress.pids[SubtaskId(1, victim)], signal.SIGKILL)
            kills.append((victim, killed_at))
            time.sleep(_AFTER_S)
        (folder / _END).touch()
        restarts = job.wait().restarts
    finally:
        job.cancel()
    return kills, restarts


def wait_until_filled(notes: Path, asked: argparse.Namespace) -> None:
    """Wait until all keys have state, and no more comes than is due.

    Raises TimeoutError.
    """
    before, give_up_at = 0, time.monotonic() + _FILLED_WITHIN_S
    while time.monotonic() < give_up_at:
        courses = [one for index in range(asked.workers) for one in courses_of(notes, index)]
        come = sum(one.count(time.monotonic()) for one in courses)
        if come >= asked.workers * asked.keys and come - before <= 1.1 * asked.rate:
            return
        before = come
        time.sleep(1)
    raise TimeoutError(f"not all keys had state within {_FILLED_WITHIN_S:g} s")


def judge(notes: Path, victim: int, killed_at: float, workers: int) -> dict[str, float]:
    """The figures of one kill."""
    courses = {index: courses_of(notes, index) for index in range(workers)}
    before = {
        index: max(one.rate(killed_at - _BEFORE_S, killed_at) for one in each)
        for index, each in courses.items()
    }
    until = killed_at + _AFTER_S
    later = [one for one in courses[victim] if one.times and one.times[0] > killed_at]
    back = min(later, key=lambda one: one.times[0], default=None)
    starts = _steps(killed_at, until - _WINDOW_S)
    first_s = at_rate_s = caught_up_s = _AFTER_S
    if back is not None:
        first_s = back.times[0] - killed_at
        shares = [(at, back.rate(at, at + _WINDOW_S) / before[victim]) for at in starts]
        fast = [at for at, share in shares if share >= 0.9]
        slow = [at for at, share in shares if fast and at > fast[0] and share <= 1.1]
        at_rate_s = fast[0] + _WINDOW_S - killed_at if fast else _AFTER_S
        caught_up_s = slow[0] - killed_at if slow else _AFTER_S
    others = {index: (each, before[index]) for index, each in courses.items() if index != victim}
    all_slower, one_slower = _slower(others, killed_at, killed_at + caught_up_s)
    all_before, one_before = _slower(others, killed_at - _BEFORE_S, killed_at - _WINDOW_S)
    return {
        "others_slower": all_slower,
        "one_other_slower": one_slower,
        "others_slower_before": all_before,
        "one_other_slower_before": one_before,
        "first_record_s": first_s,
        "at_its_rate_s": at_rate_s,
        "caught_up_s": caught_up_s,
    }


def _slower(
    others: Mapping[int, tuple[Sequence[Course], float]], start: float, stop: float
) -> tuple[float, float]:
    """By which share workers were below their rate, which stands beside their courses, in any window that
    begins between `start` and `stop`: all together at worst, and one at worst."""
    shares = np.array(
        [
            [sum(one.rate(at, at + _WINDOW_S) for one in each) for each, _ in others.values()]
            for at in _steps(start, stop)
        ]
    )
    rates = np.array([rate for _, rate in others.values()])
    return 1 - float(shares.sum(1).min() / rates.sum()), 1 - float((shares / rates).min())


def courses_of(notes: Path, index: int) -> Sequence[Course]:
    """Those of all processes that a subtask has had."""
    return [Course(path) for path in notes.glob(f"{index}-*")]


def _steps(start: float, stop: float) -> list[float]:
    return [start + step * 0.05 for step in range(int((stop - start) / 0.05) + 1)]


if __name__ == "__main__":
    sys.exit(main())
