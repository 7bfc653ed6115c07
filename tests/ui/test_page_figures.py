"""What the page shows of operators, links, subtasks and checkpoints, and that its size is bounded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from minirt.ui import figures as shown
from minirt.ui import timeline
from minirt.ui.reading import Plain
from minirt.ui.snapshot import Course, snapshot
from tests.ui.samples import (
    NOW,
    SINK,
    SLOW,
    SOURCE,
    checkpoint,
    description,
    figures,
    operator,
    parts,
    reading,
    subtask,
)


def test_an_operator_shows_its_times_its_busiest_subtask_and_its_skew() -> None:
    plan = description(SOURCE, SLOW, SINK)
    source, slow, _ = shown.operators(figures(SOURCE, SLOW, SINK), plan)
    assert source["times"] == pytest.approx(
        {"busy": 0.1, "idle": 0.04, "soft": 0.86, "hard": 0, "drift": 0}
    )
    assert source["skew"] is None
    assert slow["busiest"] == {"subtask": 2, "share": 0.99}
    assert slow["skew"] == {"subtask": 2, "share": 0.7, "times_fair": pytest.approx(2.8)}
    assert [cell["busy"] for cell in slow["cells"]] == [0.2, 0.3, 0.99, 0.2]


def test_the_cells_of_many_subtasks_show_the_busiest_of_each_few() -> None:
    many = [subtask(at, busy=0.9 if at == 500 else 0.1) for at in range(1000)]
    found = shown.cells(many)
    assert len(found) <= shown.CELLS_MAX
    assert [(cell["first"], cell["last"]) for cell in found if cell["busy"] > 0.5] == [(483, 503)]
    assert found[-1]["last"] == 999


def test_a_link_has_a_rate_where_the_figures_tell_it() -> None:
    plan = description(SOURCE, SINK, SLOW, links=[(0, 1), (0, 2), (1, 2)])
    views = shown.operators(figures(SOURCE, SINK, SLOW), plan)
    rates = [link["rate"] for link in shown.links(plan, views)]
    # From the only input of its receiver; not known; from the only output of its sender.
    assert rates == [100.0, None, 100.0]


def test_the_most_lagging_subtasks_come_first_and_those_without_watermark_not_at_all() -> None:
    assert [one["lag_s"] for one in shown.lagging(figures(SOURCE, SLOW, SINK))] == [40.0, 2.5]
    assert [one["subtask"] for one in shown.busiest(figures(SLOW))] == [2, 1, 0, 3]


def test_a_timeline_has_the_missing_on_top_then_stragglers_and_sums_up_the_rest() -> None:
    told = {
        **checkpoint(5, 1.2),
        "subtasks": parts(100, slow=60),
        "missing": ["slow chain (7/101)"],
    }
    found = timeline.timeline(told, description(SOURCE, SLOW)["vertices"])
    first, second, third, *_ = found["rows"]
    assert (first["missing"], first["name"], first["number"], first["of"]) == (
        *(True, "slow chain", 7),
        101,
    )
    assert (second["number"], second["outlier"], second["stored_s"]) == (61, True, 1.0)
    assert not third["outlier"]
    assert len(found["rows"]) == timeline.ROWS_MAX
    unknown = timeline.timeline(told, [])["rows"][1]  # Its name tells it where the graph does not.
    assert (unknown["number"], unknown["of"]) == (61, 100)
    rest = 101 - timeline.ROWS_MAX
    assert found["others"] == {"count": rest, "missing": 0, "median_s": 0.1, "max_s": 0.1}


def test_a_checkpoint_under_way_lasts_until_now() -> None:
    told = {**checkpoint(5), "triggered_at": NOW - 3, "subtasks": [], "missing": ["x"] * 50}
    found = timeline.timeline(told, [], NOW)
    assert (found["under_way"], found["so_far_s"], found["missing"]) == (True, 3, 50)
    assert found["others"]["missing"] == 50 - timeline.ROWS_MAX


def test_a_strip_goes_back_in_steps() -> None:
    known = [checkpoint(id) for id in range(1, 151)]
    newest = timeline.strip(known)
    assert (newest["first"], newest["end"], newest["total"]) == (90, 150, 150)
    assert [one["checkpoint_id"] for one in timeline.strip(known, 10)["shown"]] == [*range(1, 11)]
    assert timeline.strip(known, 10**9)["end"] == 150
    assert timeline.strip([])["shown"] == []


def test_durations_count_completed_checkpoints_only() -> None:
    known = [checkpoint(id, took=id / 10) for id in range(1, 21)]
    known.append(checkpoint(21, 600, status="failed"))
    found = timeline.durations(known)
    assert found == {"p50": pytest.approx(1.05), "p95": 2.0, "max": 2.0, "count": 20}
    assert timeline.durations(known[-1:]) is None


def test_a_page_of_1000_subtasks_and_10000_checkpoints_stays_small() -> None:
    many = [
        operator(f"operator {at}", [subtask(i, 0.5, 0.2, lag_s=1, stored_s=1) for i in range(100)])
        for at in range(10)
    ]
    failure = "x" * 10_000
    known = [checkpoint(id, status="failed", reason=failure) for id in range(10_000)]
    newest = {**checkpoint(10_000), "subtasks": parts(1000), "missing": ["y"] * 1000}
    events = [{"at": 1, "event": "restarting", "generation": 1, "cause": failure}] * 1000
    told = reading(*many)
    told = replace(told, checkpoints=known, newest=newest, events=events)
    course = Course()
    point_names = shown.point(told.description, shown.operators(told.figures, told.description), 0)
    for at in range(1000):
        later = replace(told, figures={**told.figures, "at": NOW + at})
        if at < 999:
            course.add(dict.fromkeys(point_names, 1.5) | {"at": NOW + at})
    assert len(json.dumps(snapshot(later, course))) < 256 * 1024


def test_where_something_is_wrong_the_page_names_the_command_that_says_what_would_help() -> None:
    held_up = reading(SOURCE, SLOW, SINK)
    assert snapshot(held_up, Course())["advice"] == "minirt advise sample"
    over = replace(held_up, live=False)
    assert snapshot(over, Course())["advice"] == "minirt advise /stored"
    odd = replace(held_up, figures={**held_up.figures, "name": "a; b"})
    assert snapshot(odd, Course())["advice"] == "minirt advise 'a; b'"
    without = replace(held_up, description={**held_up.description, "storage": None})
    assert snapshot(without, Course())["advice"] is None
    well = reading(operator("quick", [subtask(0, 0.1)]))
    assert snapshot(well, Course())["advice"] is None


def test_the_lines_over_time_add_up_sources_and_ends() -> None:
    plan = description(SOURCE, SLOW, SINK)
    views = shown.operators(figures(SOURCE, SLOW, SINK), plan)
    point = shown.point(plan, views, NOW)
    assert point == {
        "at": NOW,
        "read": 100,
        "written": 100,
        "lag_s": 40.0,
        "queue": 0.5,
        "p50_s": None,
        "p99_s": None,
    }


def test_latencies_over_time_are_those_of_the_slowest_end() -> None:
    def told(p50_s: float | None, p99_s: float | None) -> Plain:
        return {"latency": {"markers": 3, "p50_s": p50_s, "p99_s": p99_s, "p999_s": p99_s}}

    slow, fast = SLOW | told(7.0, 9.0), SINK | told(0.1, 0.7)
    none = operator("none", [subtask(0, busy=0.05)]) | told(None, None)
    plan = description(SOURCE, slow, fast, none, links=[(0, 1), (1, 2), (1, 3)])
    told_figures = figures(SOURCE, slow, fast, none)
    views = shown.operators(told_figures, plan)
    assert [one["latency"] is None for one in views] == [True, False, False, False]
    point = shown.point(plan, [*views[:3], {**views[3], "latency": None}], NOW)
    assert (point["p50_s"], point["p99_s"]) == (0.1, 0.7)
    point = shown.point(plan, views, NOW)
    assert (point["p50_s"], point["p99_s"]) == (0.1, 0.7)
