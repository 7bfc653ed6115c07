"""The parts of the demo: who is killed when, what the progress line shows, when a run has passed."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
from typing import Any, ClassVar

import pytest

import minirt as rt
from minirt.monitoring.subtask_metrics import SubtaskMetrics
from minirt.protocol.ids import SubtaskId
from minirt.protocol.reasons import CheckpointFailure, CheckpointFailureReason
from minirt.protocol.reports import CheckpointReport
from minirt_connectors.flights import processes
from minirt_connectors.flights.audience import Audience
from minirt_connectors.flights.demo import DemoRun, EndedJob
from minirt_connectors.flights.job import SOURCE_NAME
from minirt_connectors.flights.killer import Choice, Kill, Killer, any_worker, worker_or_executor
from minirt_connectors.flights.live import LiveFigures
from minirt_connectors.spark import Verdict

SOURCE, OTHER = SubtaskId(0, 0), SubtaskId(1, 0)
NAMES = {SOURCE: f"{SOURCE_NAME} (1/1)", OTHER: "hourly (1/1)"}


class FakeJob:
    """A job whose workers are processes 101 and 102."""

    status = rt.JobStatus.RUNNING
    progress = rt.JobProgress({}, NAMES, {SOURCE: 101, OTHER: 102})


def checkpoint(
    generation: int, kind: Any = "checkpoint", failure: CheckpointFailure | None = None
) -> CheckpointReport:
    return CheckpointReport(1, generation, "aligned", kind, 0.0, 0.1, failure=failure)


FAILED = checkpoint(1, failure=CheckpointFailure(CheckpointFailureReason.DECLINED, "full"))


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were killed, instead of killing them."""
    pids: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        pids.append(pid)

    monkeypatch.setattr(os, "kill", kill)
    return pids


def announced(
    wanted: int,
    checkpoints: list[CheckpointReport],
    job: Any = FakeJob,
    choose: Choice = any_worker,
) -> list[Kill]:
    """The kills after all these checkpoints, one after the other, in this thread."""
    announced: list[Kill] = []
    killer = Killer(wanted, 0.0, random.Random(1), announced.append, choose)
    for entry in checkpoints:
        killer.on_checkpoint(entry)
    killer._completed.put(None)
    killer._run(job)
    assert killer.kills == announced
    return announced


def test_there_is_one_kill_after_the_first_checkpoint_of_each_generation(killed: list[int]) -> None:
    generations = [1, 1, 1, 2, 3, 3, 4]
    kills = announced(3, [checkpoint(generation) for generation in generations])
    assert [kill.pid for kill in kills] == killed
    assert len(kills) == 3
    assert len(announced(9, [checkpoint(generation) for generation in generations])) == 4
    assert {name for kill in kills for name in kill.subtasks} <= set(NAMES.values())


class Tree:
    """Of processes: two executors, each with an agent that has forked one of the workers."""

    commands: ClassVar[dict[int, str]] = {
        10: "java CoarseGrainedExecutorBackend --x",
        20: "java CoarseGrainedExecutorBackend --x",
    }
    parents: ClassVar[dict[int, int]] = {101: 11, 11: 10, 10: 5, 102: 21, 21: 20, 20: 5}


def test_on_spark_workers_and_the_executors_of_workers_are_killed_in_turn(
    killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_command", lambda pid: Tree.commands.get(pid, "python"))
    monkeypatch.setattr(processes, "_parent", lambda pid: Tree.parents.get(pid, 0))
    kills = announced(4, [checkpoint(n) for n in range(1, 5)], choose=worker_or_executor)
    assert [kill.role for kill in kills] == ["worker", "executor", "worker", "executor"]
    for kill in kills:
        victim = Tree.parents[Tree.parents[kill.pid]] if kill.role == "worker" else kill.pid
        assert kill.subtasks == ((NAMES[SOURCE] if victim == 10 else NAMES[OTHER]),)
    assert killed == [kill.pid for kill in kills]
    assert "SIGKILL to executor, process" in str(kills[1])


def test_a_worker_that_no_executor_has_started_is_left_alone(
    killed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_command", lambda pid: "python")
    monkeypatch.setattr(processes, "_parent", lambda pid: 0)
    kills = announced(9, [checkpoint(n) for n in range(1, 5)], choose=worker_or_executor)
    assert [kill.role for kill in kills] == ["worker"]


@pytest.mark.usefixtures("cold_starts")  # A mark is looked for among what a process began with.
def test_what_carries_the_mark_of_a_demo_is_found_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEMO_OF_MINIRT", "")  # As it was, when the test is over.
    mark = processes.Mark()
    command = [sys.executable, "-c", "input()  # minirt host"]
    agent = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        assert mark.left_of_jobs(0.2) == [agent.pid]
        assert mark.left_of_executors(0) == []
        assert processes.Mark().left_of_jobs(0) == []
    finally:
        agent.communicate(b"\n")
    assert mark.left_of_jobs(5) == []


def test_without_a_checkpoint_to_come_back_from_nobody_is_killed(killed: list[int]) -> None:
    assert announced(1, [FAILED, checkpoint(1, "final")]) == []
    assert killed == []


def test_a_job_that_is_restarting_is_left_alone(killed: list[int]) -> None:
    class RestartingJob(FakeJob):
        status = rt.JobStatus.WAITING

    assert announced(1, [checkpoint(1)], RestartingJob) == []
    assert killed == []


def test_a_worker_that_is_gone_already_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, number: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    assert announced(1, [checkpoint(1)]) == []


def test_a_killer_that_was_stopped_kills_no_more(killed: list[int]) -> None:
    killer = Killer(5, 1000.0, random.Random(1))
    job: Any = FakeJob
    killer.start(job)
    killer.on_checkpoint(checkpoint(1))
    killer.stop()
    killer.on_checkpoint(checkpoint(2))
    assert killed == []


def progress(records: int, busy_s: float, blocked_s: float) -> rt.JobProgress:
    source = SubtaskMetrics(
        records_in=records,
        busy_s=busy_s,
        soft_backpressure_s=blocked_s,
        watermark=1_357_034_400_000,
    )
    return rt.JobProgress({SOURCE: source, OTHER: SubtaskMetrics(records_in=999)}, NAMES, {})


def test_figures_are_those_of_the_sources_and_go_on_over_a_restart() -> None:
    now = [100.0]
    live = LiveFigures(lambda: 1, clock=lambda: now[0])
    live.on_status(rt.JobStatus.DEPLOYING, 1)
    live.on_status(rt.JobStatus.RUNNING, 1)
    live.on_progress(progress(1000, busy_s=1.0, blocked_s=0.0))
    now[0] += 1.0
    live.on_progress(progress(3000, busy_s=1.25, blocked_s=0.75))
    live.on_checkpoint(checkpoint(1))
    live.on_checkpoint(FAILED)
    figures = live.figures()
    assert (figures.records, figures.records_per_s) == (3000, 2000)
    assert figures.backpressure == 0.75
    assert (figures.elapsed_s, figures.checkpoints, figures.kills) == (1.0, 1, 1)
    assert "day 2013-01-01" in str(figures)

    live.on_restart(rt.WorkerLostError("died"), 0.05)
    live.on_progress(progress(3000, busy_s=1.25, blocked_s=0.75))
    live.on_status(rt.JobStatus.DEPLOYING, 2)
    live.on_progress(progress(500, busy_s=0.1, blocked_s=0.0))
    figures = live.figures()
    assert (figures.records, figures.restarts, figures.status) == (3500, 1, "deploying")


def test_several_observers_hear_the_same() -> None:
    first, second = LiveFigures(), LiveFigures()
    both = Audience(first, second)
    both.on_status(rt.JobStatus.RUNNING, 1)
    both.on_checkpoint(checkpoint(1))
    both.on_restart(rt.WorkerLostError("died"), 0.05)
    both.on_progress(progress(10, busy_s=1.0, blocked_s=0.0))
    for each in (first, second):
        figures = each.figures()
        assert (figures.status, figures.checkpoints) == ("running", 1)
        assert (figures.restarts, figures.records) == (1, 10)


def ended(mode: str, lost: int, duplicated: int, unexpected: int) -> DemoRun:
    result = rt.JobResult("flights", rt.JobStatus.FINISHED, 2, 15.0, 1, (checkpoint(1),))
    job = EndedJob(mode, (Kill(1, ("a",), 0.0), Kill(2, ("b",), 1.0)), 2, result, "out")
    return DemoRun(job, 100, Verdict(50, 50 + duplicated - lost, lost, duplicated, unexpected))


@pytest.mark.parametrize(
    ("mode", "counts", "passed", "says"),
    [
        ("aligned", (0, 0, 0), True, "exactly once"),
        ("aligned", (1, 0, 0), False, "FAILED"),
        ("aligned", (0, 1, 0), False, "FAILED"),
        ("aligned", (0, 0, 1), False, "FAILED"),
        ("at_least_once", (0, 0, 0), True, "this time"),
        ("at_least_once", (0, 7, 3), True, "7 results came twice and 3 have wrong counts"),
        ("at_least_once", (1, 0, 0), False, "FAILED"),
    ],
)
def test_a_run_has_passed_if_its_mode_kept_its_promise(
    mode: str, counts: tuple[int, int, int], passed: bool, says: str
) -> None:
    run = ended(mode, *counts)
    assert run.passed == passed
    assert says in run.conclusion
    lost, duplicated, unexpected = counts
    assert run.to_plain() == {
        "mode": mode,
        "kills": 2,
        "restarts": 2,
        "checkpoints": 1,
        "rows_in": 100,
        "rows_out": 50 + duplicated - lost,
        "lost": lost,
        "duplicated": duplicated,
        "unexpected": unexpected,
        "left_running": 0,
    }


def test_a_run_that_leaves_a_process_has_failed() -> None:
    run = dataclasses.replace(ended("aligned", 0, 0, 0), left_running=1)
    assert not run.passed
    assert "FAILED, processes of the job are left running: 1" in run.conclusion


def test_a_run_whose_kills_were_not_all_made_has_failed() -> None:
    run = ended("aligned", 0, 0, 0)
    run = dataclasses.replace(run, job=dataclasses.replace(run.job, kills=run.job.kills[:1]))
    assert not run.passed
    assert "FAILED, the job was over after 1 of 2 kills" in run.conclusion
    assert "more --seconds, or fewer --kills" in run.conclusion


def test_a_run_whose_output_is_wrong_says_so_whoever_was_killed() -> None:
    run = ended("aligned", 1, 0, 0)
    run = dataclasses.replace(run, job=dataclasses.replace(run.job, kills=()))
    assert "FAILED, the output is not what this mode promises" in run.conclusion


def test_a_run_says_whom_it_has_killed() -> None:
    job = ended("aligned", 0, 0, 0).job
    assert "2 workers killed" in str(job)
    kills = (Kill(1, ("a",), 0.0), Kill(2, ("b",), 1.0, "executor"))
    assert "1 worker and 1 executor killed" in str(dataclasses.replace(job, kills=kills))
