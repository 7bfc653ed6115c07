"""Workers killed with SIGKILL that come back alone: the others go on, nothing is lost or comes twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import minirt as rt
from minirt.graph.planner import build_execution_graph
from minirt.protocol.ids import SubtaskId
from tests.campaigns import soaked
from tests.runtime.processes import needs_proc, wait_until

pytestmark = [pytest.mark.processes, needs_proc]

COUNT, KEYS, WORKERS = 1680, 48, 4
PAUSE_S = 0.004
COUNTED = [SubtaskId(1, index) for index in range(WORKERS)]


class Number(rt.KeyedProcess):
    """Numbers the records of each key; every instance begins at 0 unless state is restored."""

    seen = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[dict[str, int]]:
        self.seen.value += 1
        yield {"n": record, "seen": self.seen.value, "pid": os.getpid()}


def slowly(number: int, senders: int = 1) -> int:
    """So that there is time for some kills."""
    time.sleep(PAUSE_S * senders)
    return number


class Hears(rt.JobObserver):
    def __init__(self) -> None:
        self.pids: dict[SubtaskId, int] = {}
        self.comebacks: list[str] = []
        self.restarts: list[str] = []
        self.completed = 0

    def on_progress(self, progress: Any) -> None:
        self.pids = dict(progress.pids)

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        self.comebacks.append(str(error))

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self.restarts.append(str(error))

    def on_checkpoint(self, report: Any) -> None:
        self.completed += report.completed


def kill_some(hears: Hears, kills: int, victims: Sequence[SubtaskId] = COUNTED[:2]) -> None:
    """One after the other, each once lines are written again and it has another process."""
    killed: set[int] = set()
    for turn in range(kills):
        victim, completed = victims[turn % len(victims)], hears.completed
        wait_until(
            lambda victim=victim, completed=completed: (  # type: ignore[misc]
                hears.completed >= completed + 2 and hears.pids.get(victim, 0) not in {0, *killed}
            ),
            "a line behind the last kill",
        )
        killed.add(hears.pids[victim])
        os.kill(hears.pids[victim], signal.SIGKILL)
        wait_until(lambda turn=turn: len(hears.comebacks) > turn, "news of the kill")  # type: ignore[misc]


def rows_in(folder: Path) -> list[dict[str, int]]:
    return [
        json.loads(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("transport", ["tcp", *soaked("unix")])
def test_others_keep_their_processes_and_output_is_exactly_once(
    tmp_path: Path, transport: str
) -> None:
    kills, hears = 2, Hears()
    env = rt.Environment("alone", parallelism=WORKERS)
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers", parallelism=1)
    slow = numbers.map(slowly, uid="slow", parallelism=1)
    counted = slow.key_by(lambda n: n % KEYS).process(Number(), uid="count")
    counted.sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "cp", interval="100ms", mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(kills, "20ms", scope="subtask"),
        options=rt.Options(transport=transport),  # type: ignore[arg-type]
        observer=hears,
    )
    killer = threading.Thread(target=kill_some, args=(hears, kills))
    killer.start()
    result = job.wait(120)
    killer.join()
    assert (len(hears.comebacks), hears.restarts, result.restarts) == (kills, [], 0)
    assert all("was killed by SIGKILL" in error for error in hears.comebacks)
    rows = rows_in(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == list(range(COUNT))
    assert Counter(row["seen"] for row in rows) == Counter(
        dict.fromkeys(range(1, COUNT // KEYS + 1), KEYS)
    )
    unharmed = {hears.pids[subtask] for subtask in COUNTED[2:]}
    wrote = {key: {row["pid"] for row in rows if row["n"] % KEYS == key} for key in range(KEYS)}
    assert len({pid for pids in wrote.values() for pid in pids} - unharmed) > 2
    for pids in wrote.values():
        assert len(pids) == 1 or not pids & unharmed


class Times(rt.KeyedProcess):
    """Adds how often a record has come."""

    times = rt.ValueState(0)

    def process(self, row: dict[str, int], ctx: rt.KeyedContext) -> Iterable[dict[str, int]]:
        self.times.value += 1
        yield row | {"times": self.times.value, "pid": os.getpid()}


class Count(rt.KeyedProcess):
    """As `Number`, and deterministic."""

    seen = rt.ValueState(0)

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[dict[str, int]]:
        self.seen.value += 1
        yield {"n": record, "seen": self.seen.value}


@pytest.mark.parametrize(
    ("transport", "senders"),
    [
        pytest.param("tcp", 2, id="tcp, 2 channels"),
        pytest.param("unix", 1, id="unix", marks=pytest.mark.soak),
        pytest.param("tcp", 1, id="tcp", marks=pytest.mark.soak),
        pytest.param("unix", 2, id="2 channels", marks=pytest.mark.soak),
    ],
)
def test_one_in_the_middle_sends_what_nobody_has_had(
    tmp_path: Path, transport: str, senders: int
) -> None:
    kills, hears = 2, Hears()
    env = rt.Environment("middle", parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers", parallelism=senders)
    slow = numbers.map(lambda n: slowly(n, senders), uid="slow", parallelism=senders)
    counted = slow.key_by(lambda n: n % KEYS).process(Count(), uid="count")
    again = counted.key_by(lambda row: row["n"]).process(Times(), uid="again")
    again.sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "cp", interval="100ms", mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(kills, "20ms", scope="replay"),
        options=rt.Options(transport=transport),  # type: ignore[arg-type]
        observer=hears,
    )
    victims = [SubtaskId(1, 0), SubtaskId(2, 1)]
    killer = threading.Thread(target=kill_some, args=(hears, kills, victims))
    killer.start()
    result = job.wait(120)
    killer.join()
    assert (len(hears.comebacks), hears.restarts, result.restarts) == (kills, [], 0)
    rows = rows_in(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == list(range(COUNT))
    assert {row["times"] for row in rows} == {1}
    assert Counter(row["seen"] for row in rows) == Counter(
        dict.fromkeys(range(1, COUNT // KEYS + 1), KEYS)
    )
    unharmed = hears.pids[SubtaskId(2, 0)]
    assert sum(row["pid"] == unharmed for row in rows) > COUNT / 3


def test_one_behind_its_end_ends_once(tmp_path: Path) -> None:
    """Its input is over within moments; another stream goes on for as long as workers are killed."""
    kills, hears, early = 2, Hears(), 96
    env = rt.Environment("ended", parallelism=2)
    short = env.source(rt.SequenceSource(early), uid="short", parallelism=1)
    counted = short.key_by(lambda n: n % KEYS).process(Count(), uid="count")
    numbers = env.source(rt.SequenceSource(COUNT // 2), uid="numbers", parallelism=1)
    slow = numbers.map(lambda n: {"n": early + slowly(n), "seen": 0}, uid="slow", parallelism=1)
    again = counted.union(slow).key_by(lambda row: row["n"]).process(Times(), uid="again")
    again.sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    [ended] = [
        vertex.id
        for vertex in build_execution_graph(env.graph("ended")).vertices
        if any(node.uid == "count" for node in vertex.operators)
    ]
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "cp", interval="100ms", mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(kills, "20ms", scope="replay"),
        observer=hears,
    )
    victims = [SubtaskId(ended, 0), SubtaskId(ended, 1)]
    wait_until(lambda: hears.completed >= 3, "lines behind the end")
    killer = threading.Thread(target=kill_some, args=(hears, kills, victims))
    killer.start()
    result = job.wait(120)
    killer.join()
    assert (len(hears.comebacks), hears.restarts, result.restarts) == (kills, [], 0)
    rows = rows_in(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == list(range(early + COUNT // 2))
    assert {row["times"] for row in rows} == {1}


def test_windows_in_the_middle_are_given_out_once(tmp_path: Path) -> None:
    kills, hears, width = 2, Hears(), 100
    env = rt.Environment("windows", parallelism=2)
    times = rt.Watermarks.bounded("1ms", timestamp=lambda n: n)
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers", parallelism=1, watermarks=times)
    rows = numbers.map(lambda n: {"k": slowly(n) % KEYS, "of": n}, uid="slow", parallelism=1)
    windows = rows.key_by("k").window(rt.Tumbling(f"{width}ms"))
    sums = windows.aggregate(rt.Count("seen"), rt.Sum("of", "n"), uid="windows")
    again = sums.key_by(lambda row: (row["k"], row["n"])).process(Times(), uid="again")
    plain = again.map(
        lambda row: {key: row[key] for key in ("k", "n", "seen", "times")}, uid="plain"
    )
    plain.sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "cp", interval="100ms", mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(kills, "20ms", scope="replay"),
        observer=hears,
    )
    killer = threading.Thread(
        target=kill_some, args=(hears, kills, [SubtaskId(1, 0), SubtaskId(1, 1)])
    )
    killer.start()
    result = job.wait(120)
    killer.join()
    assert (len(hears.comebacks), hears.restarts, result.restarts) == (kills, [], 0)
    found = rows_in(tmp_path / "out")
    assert {row["times"] for row in found} == {1}
    wanted: Counter[tuple[int, int, int]] = Counter()
    for start in range(0, COUNT, width):
        for key in range(KEYS):
            of = [n for n in range(start, min(start + width, COUNT)) if n % KEYS == key]
            wanted.update([(key, sum(of), len(of))])
    assert Counter((row["k"], row["n"], row["seen"]) for row in found) == wanted


class Wait(rt.KeyedProcess):
    """Numbers the records of a key, at once or by a timer of the clock, as the clock will have it."""

    seen = rt.ValueState(0)
    held = rt.ListState()

    def process(self, record: int, ctx: rt.KeyedContext) -> Iterable[dict[str, int]]:
        if ctx.processing_time % 2:
            yield self._numbered(record)
        else:
            self.held.add(record)
            ctx.set_processing_timer(ctx.processing_time + 1 + record % 40)

    def on_timer(self, timestamp: int, ctx: rt.KeyedContext) -> Iterable[dict[str, int]]:
        for record in self.held.get():
            yield self._numbered(record)
        self.held.clear()

    def _numbered(self, record: int) -> dict[str, int]:
        self.seen.value += 1
        return {"n": record, "seen": self.seen.value}


def test_timers_of_the_clock_fire_where_they_had_fired(tmp_path: Path) -> None:
    kills, hears = 2, Hears()
    env = rt.Environment("clock", parallelism=2)
    numbers = env.source(rt.SequenceSource(COUNT), uid="numbers", parallelism=1)
    slow = numbers.map(slowly, uid="slow", parallelism=1)
    counted = slow.key_by(lambda n: n % KEYS).process(Wait(), uid="wait")
    again = counted.key_by(lambda row: row["n"]).process(Times(), uid="again")
    again.sink(rt.JsonlSink(tmp_path / "out"), uid="out")
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "cp", interval="300ms", mode="uncoordinated"),
        restart=rt.Restart.fixed_delay(kills, "20ms", scope="replay"),
        observer=hears,
    )
    killer = threading.Thread(
        target=kill_some, args=(hears, kills, [SubtaskId(1, 0), SubtaskId(1, 1)])
    )
    killer.start()
    result = job.wait(120)
    killer.join()
    assert (len(hears.comebacks), hears.restarts, result.restarts) == (kills, [], 0)
    rows = rows_in(tmp_path / "out")
    assert sorted(row["n"] for row in rows) == list(range(COUNT))
    assert {row["times"] for row in rows} == {1}
    assert Counter(row["seen"] for row in rows) == Counter(
        dict.fromkeys(range(1, COUNT // KEYS + 1), KEYS)
    )
