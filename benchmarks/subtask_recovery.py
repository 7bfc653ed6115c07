"""One of several workers is killed and comes back alone: `python -m benchmarks.subtask_recovery`.

A source sends at a steady rate to workers that count by key, each with so many keys of state, and write to
a sink that notes how many records have come, a hundred times a second. One worker after the other is killed
by SIGKILL. Figures of each kill: by which share the others were slower at worst, all together and each by
itself, in any window of a quarter second until the worker had caught up; after how many seconds the first
record came from the killed one again, after how many it was at its rate, and after how many it had nothing
left to catch up with. With `--scope job` the whole job restarts, for comparison. Kills begin once all keys
have state and the source is at its rate, which takes a minute or more with `--keys 1000000`.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

import minirt as rt
from benchmarks.measure import percentiles, print_rows
from minirt.data.batch import Batch
from minirt.protocol.ids import SubtaskId

_NOTE_S = 0.01
_WINDOW_S = 0.25
_BEFORE_S, _AFTER_S = 3.0, 8.0
"""How long before a kill rates are measured, and how long a worker has to catch up."""
_FILLED_WITHIN_S = 600.0


class NotingSink(rt.Sink):
    """Notes in a file of each process when how many records had come to it."""

    opens_again = True

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open_writer(self, context: rt.SinkContext) -> rt.SinkWriter:
        return _NotingWriter(Path(self._folder, f"{context.subtask}-{os.getpid()}"))


class _NotingWriter(rt.SinkWriter):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._count = 0
        self._noted_at = 0.0

    def write(self, batch: Batch) -> None:
        self._count += len(batch)
        now = time.monotonic()
        if now - self._noted_at >= _NOTE_S:
            self._noted_at = now
            self._file.write(f"{now} {self._count}\n")


class CountByKey(rt.KeyedProcess):
    seen = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[int]:
        self.seen.value += 1
        yield record


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rate", type=int, default=20_000, help="records per second in all")
    parser.add_argument("--keys", type=int, default=20_000, help="with state, of each worker")
    parser.add_argument("--interval", default="1s", help="from checkpoint to checkpoint")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--scope", choices=["subtask", "job"], default="subtask")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as notes:
        kills = run(asked, storage, notes)
        found = [judge(notes, *kill, asked.workers) for kill in kills]
    row = {
        "case": f"kill-one-of-{asked.workers}",
        "scope": asked.scope,
        "kills": len(found),
        **{
            name: {part: round(value, 3) for part, value in percentiles(values).items()}
            for name in found[0]
            if (values := [one[name] for one in found])
        },
    }
    print_rows([row], asked.json)


def run(asked: argparse.Namespace, storage: str, notes: str) -> list[tuple[int, float]]:
    """Which subtask was killed, and when."""
    fill, rate = asked.workers * asked.keys, asked.rate
    seconds = _FILLED_WITHIN_S + (asked.kills + 2) * (_BEFORE_S + _AFTER_S)
    env = rt.Environment(parallelism=asked.workers)
    due = rt.Watermarks.bounded(0, timestamp=lambda n: max(0, n - fill) * 1000 // rate)
    numbers = env.source(
        rt.SequenceSource(fill + int(rate * seconds * 2)),
        watermarks=due,
        speed=1,
        parallelism=1,
    )
    counted = numbers.key_by(lambda n: n % fill).process(CountByKey(), uid="count")
    counted.sink(NotingSink(notes))
    job = env.start(
        "subtask-recovery",
        checkpointing=rt.Checkpointing(storage, interval=asked.interval, mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(attempts=None, delay="0s", scope=asked.scope),
    )
    kills = []
    wait_until_filled(notes, asked)
    time.sleep(_AFTER_S)
    for kill in range(asked.kills):
        time.sleep(_BEFORE_S)
        victim = kill % asked.workers
        killed_at = time.monotonic()
        os.kill(job.progress.pids[SubtaskId(1, victim)], signal.SIGKILL)
        kills.append((victim, killed_at))
        time.sleep(_AFTER_S)
    job.cancel()
    job.wait()
    return kills


def wait_until_filled(notes: str, asked: argparse.Namespace) -> None:
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


def judge(notes: str, victim: int, killed_at: float, workers: int) -> dict[str, float]:
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
    others = [index for index in courses if index != victim]
    stretch = [at for at in starts if at <= killed_at + caught_up_s]
    rates = {
        index: [sum(one.rate(at, at + _WINDOW_S) for one in courses[index]) for at in stretch]
        for index in others
    }
    together = [sum(rates[index][place] for index in others) for place in range(len(stretch))]
    return {
        "others_slower": 1 - min(together) / sum(before[index] for index in others),
        "one_other_slower": 1 - min(min(rates[index]) / before[index] for index in others),
        "first_record_s": first_s,
        "at_its_rate_s": at_rate_s,
        "caught_up_s": caught_up_s,
    }


def courses_of(notes: str, index: int) -> Sequence[Course]:
    """Those of all processes that a subtask has had."""
    return [Course(path) for path in Path(notes).glob(f"{index}-*")]


def _steps(start: float, stop: float) -> list[float]:
    return [start + step * 0.05 for step in range(int((stop - start) / 0.05) + 1)]


if __name__ == "__main__":
    main()
