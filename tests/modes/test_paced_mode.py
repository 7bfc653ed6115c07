"""A family from outside with three ends of its own: each alone, in the kit, and with real processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import examples.paced_mode
import minirt as rt
import minirt.modes
from examples.paced_mode import Paced, PacedFamily, WorkPace
from minirt.errors import ConfigurationError
from minirt.modes import find_mode
from minirt.protocol.barriers import Barrier
from minirt.protocol.local_pace import LocalSnapshots
from minirt.testing.conformance import check_mode
from tests.campaigns import sampled
from tests.protocol.parts import SINK, SOURCE
from tests.protocol.test_uncoordinated import local
from tests.runtime.campaign import Plan, compare, run, write_files
from tests.runtime.jobs import CASES, build
from tests.runtime.processes import needs_proc
from tests.runtime.test_comebacks import COUNTED, Hears, kill_some

LINES_MAX = 300
BOTH = frozenset({SOURCE, SINK})
BARRIER = Barrier(1, "paced", 0.0)
SMALL = Paced(every_bytes=512, log_bytes=1 << 16)


def test_it_is_short_and_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(examples.paced_mode.__file__).read_text()
    assert len(text.splitlines()) < LINES_MAX
    declared = EntryPoint("paced", "examples.paced_mode:Paced", minirt.modes.ENTRY_POINT_GROUP)
    monkeypatch.setattr(minirt.modes, "entry_points", lambda group: [declared])
    assert find_mode("paced") == Paced()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every_bytes": 0}, "every_bytes must be from 1 to 8388608"),
        ({"every_bytes": 1025, "log_bytes": 8192}, "every_bytes must be from 1 to 1024"),
        ({"lead": 0}, "lead must be at least 1"),
        ({"comebacks": 0}, "comebacks must be at least 1"),
        ({"jitter": 2}, "jitter is a number from 0 to 1"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Paced(**options)


# At the subtask.


@pytest.fixture
def pace() -> WorkPace:
    """Of a subtask that starts at the time 100, with a second between checkpoints and no jitter."""
    made = replace(SMALL, jitter=0.0).local_snapshots(1.0).pace(SINK, 100.0, 5000.0)
    assert isinstance(made, WorkPace)
    return made


def test_a_snapshot_is_due_by_work_and_by_the_clock_now_and_then(pace: WorkPace) -> None:
    assert 102.0 <= pace.due_at <= 104.0
    assert not pace.is_due(101.0, 511)
    assert pace.is_due(101.0, 512)
    assert not pace.on_taken(1, 101.0, 600, None)
    assert pace.due_at == 105.0
    assert not pace.is_due(104.9, 600 + 511)
    assert pace.is_due(104.9, 600 + 512)
    assert pace.is_due(105.0, 600)


def test_marks_force_a_snapshot_once_they_are_far_ahead(pace: WorkPace) -> None:
    assert [pace.is_forced_by(index) for index in (1, 2, 7)] == [False, True, True]
    assert pace.next_index(7) == 7
    due_at = pace.due_at
    pace.on_taken(1, 101.0, 0, 7)
    assert pace.due_at == due_at
    assert [pace.is_forced_by(index) for index in (7, 8, 9)] == [False, False, True]
    assert pace.next_index(None) == 8


# At the coordinator, and what is restored.


def family(comebacks: int = 1) -> PacedFamily:
    return PacedFamily(BOTH | {replace(SOURCE, index=1), replace(SOURCE, index=2)}, comebacks)


def test_a_checkpoint_begins_when_half_of_the_subtasks_have_a_new_snapshot() -> None:
    made = PacedFamily(BOTH, 1)
    assert not made.ready
    made.on_local(local(SOURCE, 1), 1.0)
    made.on_local(local(SINK, 1, (SOURCE, 1)), 2.0)
    assert made.ready
    made.begin(1, BARRIER, pause=False)
    assert not made.ready


def test_or_when_one_has_several_and_may_soon_wait() -> None:
    made, others = family(), [replace(SOURCE, index=1), replace(SOURCE, index=2)]
    for subtask in (SOURCE, *others, SINK):
        made.on_local(local(subtask, 1), 1.0)
    made.begin(1, BARRIER, pause=False)
    made.on_local(local(SOURCE, 2), 2.0)
    assert not made.ready
    assert not made.urgent
    made.on_local(local(SOURCE, 3), 3.0)
    assert made.ready
    assert made.urgent


def test_who_dies_again_behind_one_line_comes_back_alone_no_more() -> None:
    made = PacedFamily(BOTH, 2)
    for subtask in BOTH:
        made.on_local(counted(subtask), 1.0)
    for _ in range(2):
        found = made.fall_back([SINK])
        assert found is not None
        assert found.keys() == {SINK}
    assert made.fall_back([SINK]) is None
    made.begin(1, BARRIER, pause=False)
    assert made.fall_back([SINK]) is not None


def counted(subtask: Any) -> Any:
    """A snapshot of one whose records are counted, as of those that may come back alone."""
    event = local(subtask, 1)
    assert event.local is not None
    return replace(event, local=replace(event.local, processed=()))


# All of it together.


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Why snapshots were taken, in this process."""
    found: Counter[str] = Counter()
    on_taken = WorkPace.on_taken

    def noting(self: WorkPace, number: int, now: float, moved: int, forced: int | None) -> bool:
        clock = "clock" if now >= self.due_at else "work"
        found[clock if forced is None else "mark"] += 1
        return on_taken(self, number, now, moved, forced)

    monkeypatch.setattr(WorkPace, "on_taken", noting)
    return found


def test_it_passes_the_kit_with_snapshots_for_each_reason(taken: Counter[str]) -> None:
    tally = check_mode(replace(SMALL, every_bytes=128), runs=sampled(16))
    assert tally.lost == tally.duplicated == 0
    assert min(tally.restarts, tally.rescales, tally.cuts) > 0
    assert taken.keys() == {"work", "clock", "mark"}


@pytest.mark.processes
@needs_proc
def test_real_workers_are_killed_and_nothing_is_lost_or_comes_twice(tmp_path: Path) -> None:
    outcome = run(Plan("keyed", SMALL, kills=3, seed=21, per_second=500), tmp_path)
    assert outcome.kills == 3
    assert outcome.restarts >= 1
    assert (outcome.lost, outcome.duplicated) == (0, 0)


@pytest.mark.processes
@needs_proc
def test_a_real_worker_comes_back_alone(tmp_path: Path) -> None:
    hears = Hears()
    env = rt.Environment("alone", parallelism=2)
    let_go, count = tmp_path / "let-go", 3000
    outputs = build(CASES["keyed"], env, count, per_second=600, let_go=let_go)
    write_files(outputs, tmp_path)
    job = env.start(
        checkpointing=rt.Checkpointing(tmp_path / "checkpoints", interval="50ms", mode=SMALL),
        restart=rt.Restart.fixed_delay(None, "10ms", scope="subtask"),
        observer=hears,
    )
    try:
        kill_some(hears, 2, COUNTED[:2])
        let_go.touch()
        result = job.wait(120)
    finally:
        job.cancel()
    assert (len(hears.comebacks), result.restarts) == (2, 0)
    assert compare(CASES["keyed"], count, 2, tmp_path) == (0, 0)


def test_another_pace_is_an_ordinary_plan() -> None:
    """What is sent to workers says all: nothing of the mode itself is needed there."""
    plan = Paced(every_bytes=77, lead=3, stagger="20ms").local_snapshots(0.5)
    assert isinstance(plan, LocalSnapshots)
    assert (plan.interval_s, plan.induced, plan.stagger_s) == (2.0, True, 0.02)
