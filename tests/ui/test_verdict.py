"""The verdict on hand-made figures: each disease is named, and the healthy job is left in peace."""

from __future__ import annotations

from typing import Any

import pytest

from minirt.ui import figures as shown
from minirt.ui.reading import Plain
from minirt.ui.verdict import Facts, Sentence, verdict
from tests.ui.samples import (
    NOW,
    SINK,
    SLOW,
    SOURCE,
    checkpoint,
    description,
    figures,
    operator,
    subtask,
)


def judged(*operators: Plain, links: Any = None, events: Any = (), **more: Any) -> list[Sentence]:
    told, plan = figures(*operators, **more), description(*operators, links=links)
    views = shown.operators(told, plan)
    return verdict(Facts(told, views, shown.links(plan, views), events=events))


def test_the_operator_that_others_wait_for_is_named_with_its_subtask_and_its_share() -> None:
    [first, *_] = judged(SOURCE, SLOW, SINK)
    assert first == Sentence(
        "bad",
        "“slow chain” subtask 3 of 4 is the bottleneck, 99% busy; it has 70% of the records, its share "
        "would be 25%. “numbers chain” waits for it 86% of the time.",
        1,
    )


def test_a_job_in_which_nobody_waits_is_left_in_peace() -> None:
    source = operator("numbers", [subtask(0, busy=0.2)])
    assert judged(source, SINK) == [
        Sentence("good", "Nothing is held up: “numbers chain” works most, 20% of the time.", 0)
    ]


def test_a_source_at_its_limit_is_no_bottleneck() -> None:
    [first] = judged(operator("numbers", [subtask(0, busy=0.97)]), SINK)
    assert (first.level, first.operator) == ("good", 0)
    assert "sets the pace, 97% busy" in first.text


def test_all_subtasks_are_named_where_all_are_busy() -> None:
    even = operator("slow", [subtask(at, busy=0.95) for at in range(4)])
    [first, *_] = judged(SOURCE, even, SINK)
    assert "“slow chain” (all 4 subtasks) is the bottleneck, 95% busy. “numbers" in first.text


def test_of_a_chain_of_waiters_the_last_one_is_the_bottleneck() -> None:
    middle = operator("middle", [subtask(0, busy=0.3, waits=0.7)])
    first = judged(SOURCE, middle, SLOW, SINK)[0]
    assert first.operator == 2
    assert "“middle chain” waits for it 70%" in first.text


def test_where_two_are_waited_for_the_busier_one_is_named() -> None:
    light = operator("light", [subtask(0, busy=0.3)])
    assert judged(SOURCE, light, SLOW, links=[(0, 1), (0, 2)])[0].operator == 2


def test_the_last_checkpoint_names_whom_it_waited_for_and_in_which_phase() -> None:
    slow = operator("slow", [subtask(0, 0.1, stored_s=0.2), subtask(1, 0.1, stored_s=2.1)])
    newest = {"newest": checkpoint(41, 2.2), "completed": 41}
    told = judged(operator("numbers", [subtask(0, 0.1, stored_s=0.1)]), slow, checkpoints=newest)
    assert told[1] == Sentence(
        "note",
        "Checkpoint 41 (aligned) took 2.20 s; it waited longest for “slow chain” subtask 2 of 2, "
        "mostly start delay (1.68 s).",
        1,
    )


def test_a_checkpoint_under_way_names_who_is_missing_once_it_takes_long() -> None:
    def told(began: float, missing: tuple[str, ...]) -> list[str]:
        pending = {"checkpoint_id": 7, "triggered_at": began, "missing": missing}
        return [one.text for one in judged(SINK, checkpoints={"under_way": [pending]})]

    waits = "Checkpoint 7 has taken 12.00 s so far: "
    assert f"{waits}2 subtasks have not stored their part yet, first slow (1/2)." in told(
        NOW - 12, ("slow (1/2)", "x")
    )
    assert f"{waits}its manifest is being stored." in told(NOW - 12, ())
    assert not [one for one in told(NOW - 0.5, ("x",)) if "Checkpoint 7" in one]


def test_a_job_without_any_complete_checkpoint_says_why() -> None:
    told = judged(SINK, checkpoints={"failed": 3, "last_failure": "declined: the disk is full\nx"})
    text = "No checkpoint has completed; the last one failed: declined: the disk is full."
    assert Sentence("bad", text) in told


@pytest.mark.parametrize("status", ["restarting", "failed"])
def test_a_job_that_failed_says_so_first_with_one_line_of_the_cause(status: str) -> None:
    events = [{"cause": "worker 3 was killed\nTraceback", "event": status}]
    first = judged(SOURCE, SLOW, status=status, events=events)[0]
    assert first == Sentence("bad", f"The job is {status}: worker 3 was killed.")


def test_restarts_are_told_with_the_last_cause() -> None:
    told = judged(SINK, restarts=2, last_failure="boom\nTraceback")
    assert told[-1].text == "The job restarted 2 times, last because of: boom."


def test_a_job_that_has_just_started_has_no_verdict_yet() -> None:
    new = operator("numbers", [subtask(0, 0.1)], per_second=None)
    new["subtasks"][0]["per_second"] = None
    assert judged(new) == [Sentence("note", "There are no rates yet.")]


def test_a_job_that_fails_again_and_again_says_so_first_and_why() -> None:
    cause = "operator price failed on record 7\nTraceback (most recent call last):\nValueError: no price."
    events = [{"at": NOW - ago, "event": "restarting", "cause": cause} for ago in (9, 5)]
    first, *_ = judged(SINK, restarts=2, last_failure=cause, events=events)
    assert first == Sentence(
        "bad",
        "The job restarted 2 times, last 5 s ago, because of: operator price failed on record 7 "
        "(ValueError: no price).",
    )
    calm = [{**one, "at": NOW - 3600} for one in events]
    assert judged(SINK, restarts=2, last_failure=cause, events=calm)[-1].level == "note"
