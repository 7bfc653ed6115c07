"""Windows of all kinds, and joins, in jobs that are restored at random parallelism with records in flight.

What is late depends on the course of a run, and the job itself tells it by its side output. So all that is
not late must be in the results, exactly once, as plain Python computes it, and nothing that is.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.operators.windows.sliding import SlidingFrame
from minirt.protocol.manifest import Manifest
from minirt.protocol.restore_options import RestoreOptions
from minirt.testing import TransactionalSink
from tests.runtime.stepped import INTERVAL_S, SteppedJob

Record = dict[str, Any]
MODES = ("unaligned", "unaligned", "chandy_lamport", "aligned_with_timeout", "aligned")
HOWS = ("inner", "left", "right", "full", "semi", "anti")
SPAN_MS = 20

WINDOWS: Mapping[str, tuple[rt.Window, Mapping[str, Any]]] = {
    "tumbling": (rt.Tumbling(SPAN_MS / 1000), {}),
    "tumbling, updates": (rt.Tumbling(SPAN_MS / 1000), {"emit": "updates"}),
    "sliding": (rt.Sliding("30ms", "10ms"), {}),
    "sliding, early": (rt.Sliding("30ms", "10ms"), {"emit": "7ms", "clock": "event"}),
    "session": (rt.Session("8ms"), {}),
    "session, early": (rt.Session("8ms"), {"emit": "7ms", "clock": "event"}),
}


class Batches(rt.Source):
    """Each split is a list of batches."""

    def __init__(self, splits: list[list[list[Record]]]) -> None:
        self.splits = splits

    def plan_splits(self, parallelism: int) -> list[rt.Split]:
        return [rt.Split(str(number)) for number in range(len(self.splits))]

    def open_split(self, split: rt.Split, offset: Any) -> rt.SplitReader:
        return _Reader(self.splits[int(split.id)], offset or 0)


class _Reader(rt.SplitReader):
    def __init__(self, batches: list[list[Record]], offset: int) -> None:
        self._batches = batches
        self.offset = offset

    def read(self) -> list[Any] | None:
        if self.offset == len(self._batches):
            return None
        self.offset += 1
        return self._batches[self.offset - 1]


class Course:
    """All that a seed decides about a job and its life."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        ids = itertools.count()
        self.left, self.right = self._splits(ids), self._splits(ids)
        self.bound_s = rng.choice([0, 3, 10]) / 1000
        self.forms = [rng.randint(1, 4) for _ in range(rng.randint(2, 4))]
        self.mode = rng.choice(MODES)
        self.watermarks: Any = rng.choice(["regenerated", "restored"])
        self.results, self.late = TransactionalSink(), TransactionalSink()

    def _splits(self, ids: Iterator[int]) -> list[list[list[Record]]]:
        rng = self.rng
        spread, length, splits = rng.choice([0, 5, 30]), rng.randint(3, 9), []
        for _ in range(rng.randint(1, 3)):
            now, batches = rng.randint(0, 20), []
            for _ in range(length):
                now += rng.choice([0, 1, 2, 15])
                ages = [rng.randint(0, spread) for _ in range(rng.randint(1, 3))]
                batches.append(
                    [
                        {"k": rng.choice("abcdefgh"), "id": next(ids), "at": max(0, now - age)}
                        for age in ages
                    ]
                )
            splits.append(batches)
        return splits

    def source(self, env: rt.Environment, uid: str, splits: list[list[list[Record]]]) -> rt.Stream:
        marks = rt.Watermarks.bounded(self.bound_s, timestamp="at")
        read = env.source(Batches(splits), uid=uid, watermarks=marks, parallelism=1)
        return read.map(dict, uid=f"{uid}-copied", chain=False)

    def sink(self, stream: rt.Stream) -> None:
        stream.side_output("late").map(dict, uid="late-rows").sink(self.late, uid="late")
        stream.map(dict, uid="rows").sink(self.results, uid="results")

    def live(self, build: Callable[[rt.Environment], rt.Stream], folder: Path) -> int:
        """Run the job through all its forms to its end; count the checkpoints with records in flight."""
        in_flight, rng = 0, self.rng
        job = self._start(build, self.forms[0], folder, None)
        for parallelism in self.forms[1:]:
            for _ in range(rng.randint(0, 25)):
                if not job.over:
                    job._turn(lambda subtask: rng.random() < 0.6)
            if rng.random() < 0.5 and not job.over:
                job.clog()
            if rng.random() < 0.2 and not job.over:
                job.crash()
            manifest = None if job.over else _checkpoint(job)
            if manifest is None or job.over:
                break
            in_flight += bool(manifest.in_flight)
            job = self._start(build, parallelism, folder, RestoreOptions("latest"))
        if not job.over:
            job.finish()
        return in_flight

    def _start(
        self,
        build: Callable[[rt.Environment], rt.Stream],
        parallelism: int,
        folder: Path,
        restore: RestoreOptions | None,
    ) -> SteppedJob:
        env = rt.Environment(parallelism=parallelism, max_parallelism=16)
        self.sink(build(env))
        attempts = rt.Restart.fixed_delay(50, 1.0)
        return SteppedJob(
            env,
            folder,
            mode=self.mode,
            restore=restore,
            restart=attempts,
            watermarks=self.watermarks,
        )

    def on_time(self, splits: list[list[list[Record]]]) -> list[Record]:
        late = Counter(record["id"] for record in self.late.rows)
        assert set(late.values()) <= {1}
        records = [record for split in splits for batch in split for record in batch]
        return [record for record in records if record["id"] not in late]


def _checkpoint(job: SteppedJob) -> Manifest | None:
    """As many barriers as can overtake; what they cannot overtake is processed."""
    before = set(job.storage.manifest_keys())
    job._clock.at += INTERVAL_S
    job._shell.fire_timers()
    while not (new := set(job.storage.manifest_keys()) - before) and not job.over:
        assert job._turn(lambda subtask: False) or job._turn(lambda subtask: True)
    job._settle()
    return job.storage.read_manifest(max(new)) if new else None


def run_windows(kind: str, course: Course, folder: Path) -> int:
    window, how = WINDOWS[kind]

    def build(env: rt.Environment) -> rt.Stream:
        keyed = course.source(env, "left", course.left).key_by("k")
        return keyed.window(window).aggregate(rt.Collect("id", "ids"), uid="windows", **how)

    in_flight = course.live(build, folder)
    given: dict[tuple[str, int, int], list[Record]] = defaultdict(list)
    for row in course.results.rows:
        given[row["k"], _ms(row["window_start"]), _ms(row["window_end"])].append(row)
    counted: Counter[int] = Counter()
    for bounds, rows in given.items():
        panes = [row.get("pane", "on_time") for row in rows]
        if panes[-1] == "retracted":
            continue
        assert panes.count("on_time") == 1, (bounds, panes)
        assert panes[-1] == "on_time", (bounds, panes)
        counted.update(rows[-1]["ids"])
    overlapping = 3 if isinstance(window, rt.Sliding) else 1
    expected = {record["id"]: record["at"] for record in course.on_time(course.left)}
    assert set(counted) == set(expected)
    assert all(1 <= times <= overlapping for times in counted.values())
    return in_flight


def _ms(time: dt.datetime) -> int:
    return round(time.timestamp() * 1000)


def run_join(seed: int, folder: Path) -> int:
    course = Course(seed)
    rng = course.rng
    least = rng.choice([-20, -5, 0, 3])
    most = least + rng.choice([0, 5, 30])
    how: Any = rng.choice(HOWS)
    in_windows = rng.random() < 0.3
    bounds: dict[str, Any] = {"within": (least / 1000, most / 1000)}
    if in_windows:
        bounds = {"window": rt.Tumbling(SPAN_MS / 1000)}
    names = ["k", "id", "at"]

    def build(env: rt.Environment) -> rt.Stream:
        left = course.source(env, "left", course.left)
        right = course.source(env, "right", course.right)
        return left.join(right, on="k", how=how, columns=(names, names), uid="join", **bounds)

    def partners(left: Record, right: Record) -> bool:
        if left["k"] != right["k"]:
            return False
        if in_windows:
            return bool(left["at"] // SPAN_MS == right["at"] // SPAN_MS)
        return bool(least <= right["at"] - left["at"] <= most)

    in_flight = course.live(build, folder)
    lefts, rights = course.on_time(course.left), course.on_time(course.right)
    pairs = [(a["id"], b["id"]) for a in lefts for b in rights if partners(a, b)]
    found = Counter((row["id"], row.get("id_right")) for row in course.results.rows)
    assert found == Counter(_joined(how, lefts, rights, pairs))
    return in_flight


def _joined(how: str, lefts: list[Record], rights: list[Record], pairs: list[Any]) -> list[Any]:
    with_partner = {left for left, _ in pairs}, {right for _, right in pairs}
    alone = (
        [(record["id"], None) for record in lefts if record["id"] not in with_partner[0]],
        [(None, record["id"]) for record in rights if record["id"] not in with_partner[1]],
    )
    if how == "semi":
        return [(left, None) for left in with_partner[0]]
    if how == "anti":
        return alone[0]
    of_left = alone[0] if how in ("left", "full") else []
    return pairs + of_left + (alone[1] if how in ("right", "full") else [])


@pytest.mark.parametrize("kind", WINDOWS)
def test_each_record_that_is_not_late_counts_once(kind: str, tmp_path: Path) -> None:
    assert sum(run_windows(kind, Course(seed), tmp_path / str(seed)) for seed in range(5, 10)) > 0


def test_each_pair_that_is_not_late_is_given_out_once(tmp_path: Path) -> None:
    assert sum(run_join(seed, tmp_path / str(seed)) for seed in range(10)) > 0


class OneKeyAhead(Course):
    """A key has seen the end of a window at a checkpoint, and the other key of its later subtask has not.

    Of two subtasks "a" is in the first and "b" in the second, whose records are all in flight. The source
    goes back in event time when it is restored: what it read last is newer than what comes next. So early
    results of the window are due once more, for "b" alone.
    """

    BOTH, WINDOWS = 13, 6
    """For so many turns the source and the first subtask of the windows work, then only the latter, until
    the window is over for "a". The source has not read all of the older records of "b" by then."""

    def __init__(self) -> None:
        times = [("a", 15), ("b", 16), ("a", 31), ("b", 22), ("b", 24), ("b", 32), ("a", 33)]
        self.left = [
            [[{"k": key, "id": number, "at": at}] for number, (key, at) in enumerate(times)]
        ]
        self.bound_s, self.mode, self.watermarks = 0.0, "unaligned", "regenerated"
        self.results, self.late = TransactionalSink(), TransactionalSink()

    def source(self, env: rt.Environment, uid: str, splits: list[list[list[Record]]]) -> rt.Stream:
        marks = rt.Watermarks.bounded(self.bound_s, timestamp="at")
        return env.source(Batches(splits), uid=uid, watermarks=marks, parallelism=1)

    def sink(self, stream: rt.Stream) -> None:
        """No record is late. One sink alone is chained, and no queue before it holds a barrier up."""
        stream.map(dict, uid="rows").sink(self.results, uid="results")

    def live(self, build: Callable[[rt.Environment], rt.Stream], folder: Path) -> int:
        job = self._start(build, 2, folder, None)
        for _ in range(self.BOTH):
            job._turn(lambda subtask: subtask.id.index == 0)
        for _ in range(self.WINDOWS):
            job._turn(lambda subtask: subtask.id.index == 0 and subtask.id.vertex > 0)
        manifest = job.checkpoint()
        self._start(build, 1, folder, RestoreOptions("latest")).finish()
        return len(manifest.in_flight)


NO_KEY_LEFT = 18
"""The seed of a course in which a subtask gets a pane without keys."""


def test_early_results_are_for_keys_whose_window_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_windows("sliding, early", Course(NO_KEY_LEFT), tmp_path / "no key")
    assert run_windows("sliding, early", OneKeyAhead(), tmp_path / "right") > 0
    monkeypatch.setattr(SlidingFrame, "_not_given", lambda self, window, keys: keys)
    with pytest.raises(AssertionError, match="'on_time', 'early'"):
        run_windows("sliding, early", OneKeyAhead(), tmp_path / "wrong")
