"""Lanes, critical paths and files of pictures, from traces made by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from minirt.pictures.critical_path import Step, critical_path
from minirt.pictures.layout import LABEL_WIDTH, LINES_MAX, PLOT_WIDTH, folded, lay_out, ticks
from minirt.pictures.page import page
from minirt.pictures.perfetto import chrome_trace
from minirt.pictures.stage import stage
from minirt.pictures.svg import standalone
from minirt.pictures.timeline import timeline
from minirt.pictures.words import verdict
from tests.pictures.hand_made import aligned, line, source, timed_out, trace, unaligned, wide

BEGINNINGS = {"begun": 0, "first": -20, "second": -5, "map": -12}
"""When what the line is made of was there, in seconds since it was begun."""

EVERY = [aligned, unaligned, timed_out, lambda: wide(3)]


def steps(made):
    return [
        (step.kind, step.lane, round(step.start, 6), round(step.end, 6))
        for step in critical_path(timeline(made))
    ]


class TestCriticalPath:
    def test_an_aligned_checkpoint_waits_for_the_last_barrier_in_its_queue(self):
        assert steps(aligned()) == [
            ("order", 1, 0, 2),
            ("output queue", 2, 2, 10),
            ("input queue", 2, 10, 40),
            ("sync", 2, 40, 42),
            ("uploader", 2, 42, 43),
            ("async", 2, 43, 50),
            ("answer", 2, 50, 51),
            ("manifest", None, 51, 55),
        ]

    def test_an_unaligned_one_waits_for_the_last_barrier_to_arrive(self):
        assert steps(unaligned()) == [
            ("order", 1, 0, 2),
            ("output queue", 2, 2, 10),
            ("async", 2, 10, 14),
            ("answer", 2, 14, 15),
            ("manifest", None, 15, 16),
        ]

    def test_one_that_timed_out_waited_for_the_timeout(self):
        assert steps(timed_out())[:4] == [
            ("order", 0, 0, 1),
            ("output queue", 1, 1, 3),
            ("timeout", 1, 3, 20),
            ("sync", 1, 20, 21),
        ]

    def test_a_line_waits_for_the_last_mark_and_for_no_snapshot(self):
        """Times are since the oldest snapshot on it."""
        assert steps(line()) == [
            ("order", 2, 20, 21),
            ("last mark", 2, 21, 24),
            ("uploader", 2, 24, 25),
            ("async", 2, 25, 29),
            ("answer", 2, 29, 30),
            ("manifest", None, 30, 32),
        ]

    @pytest.mark.parametrize("make", [*EVERY, line])
    def test_its_steps_are_all_of_the_checkpoint(self, make):
        drawn = timeline(make())
        path = critical_path(drawn)
        assert path[0].start == drawn.triggered
        assert path[-1].end == pytest.approx(drawn.completed)
        for step, following in pairwise(path):
            assert step.end == following.start

    def test_the_words_name_the_longest_step_and_its_part(self):
        drawn = timeline(aligned())
        said = verdict(drawn, critical_path(drawn))
        assert said == (
            "The checkpoint took 55 s. 55% of it: 30 s in the input queue of map (1/2), behind the "
            "records of source (2/2)."
        )

    def test_the_words_tell_what_a_line_is_made_of(self):
        drawn = timeline(line())
        assert verdict(drawn, critical_path(drawn)) == (
            "The checkpoint took 12 s. It is made of the newest local snapshots that fit together, the "
            "oldest taken 20 s before, with 3,000 bytes in transit between them. 33% of it: 4 s to store "
            "what is in transit to map (1/2)."
        )

    def test_a_trace_that_lacks_events_ends_the_path_early(self):
        made = aligned()
        parts = [replace(part, events=part.events[-2:]) for part in made.subtasks]
        path = critical_path(timeline(replace(made, subtasks=tuple(parts))))
        assert path[-1].end == 55
        assert critical_path(timeline(replace(made, subtasks=()))) == ()


class TestTimeline:
    def test_clocks_that_differ_by_hours_give_one_axis(self):
        lane = timeline(aligned()).lanes[2]
        assert lane.at("sent") == pytest.approx(40)
        [first, second] = lane.channels
        assert first.blocked == pytest.approx((4, 42))
        assert second.blocked is None
        assert (second.sent, second.arrived, second.reached) == pytest.approx((2, 10, 40))

    def test_captured_bytes_belong_to_the_channel_that_held_them(self):
        lane = timeline(unaligned()).lanes[2]
        assert [channel.captured_in_bytes for channel in lane.channels] == [0, 3000]
        assert lane.captured_bytes == 3500

    def test_events_keep_their_order_though_clocks_be_wrong(self):
        made = trace(source(0, -3, 1), completed=5)
        times = [event.at for event in timeline(made).lanes[0].events]
        assert times == sorted(times)
        assert times[0] == 0


class TestLayout:
    def test_times_become_places(self):
        drawn = lay_out(timeline(aligned()))
        assert drawn.scale == pytest.approx(PLOT_WIDTH / 56)
        [sync] = [a for a in drawn.areas if a.kind == "sync" and a.lane == 2]
        assert sync.x == pytest.approx(LABEL_WIDTH + 40 * drawn.scale)
        assert sync.width == pytest.approx(2 * drawn.scale)
        [blocked] = [a for a in drawn.areas if a.kind == "blocked"]
        assert blocked.width == pytest.approx(38 * drawn.scale)
        [on_path] = [line for line in drawn.lines if line.on_path]
        assert (on_path.from_lane, on_path.to_lane) == (1, 2)
        assert on_path.times == pytest.approx((2, 10, 40))

    def test_a_line_has_its_snapshots_ahead_of_its_beginning(self):
        drawn = lay_out(timeline(line()))
        at = {kind: LABEL_WIDTH + (20 + time) * drawn.scale for kind, time in BEGINNINGS.items()}
        assert drawn.begun_x == pytest.approx(at["begun"])
        taken = [area.x for area in drawn.areas if area.kind == "sync"]
        assert taken == pytest.approx([at["first"], at["second"], at["map"]])
        [transit] = [area for area in drawn.areas if area.kind == "capture"]
        assert transit.x == pytest.approx(at["map"])
        assert transit.width == pytest.approx(16 * drawn.scale)
        assert not {"blocked", "queue"} & {area.kind for area in drawn.areas}
        marks = [(mark.from_lane, mark.to_lane, *mark.times[:2]) for mark in drawn.lines]
        assert marks == [(1, 2, 15, 24), (0, 2, 0, 5)]
        assert [mark.on_path for mark in drawn.lines] == [True, False]
        assert lay_out(timeline(aligned())).begun_x is None

    @pytest.mark.parametrize("parallelism", [1, 3, 100])
    def test_lanes_do_not_overlap_and_areas_stay_in_theirs(self, parallelism):
        drawn = lay_out(timeline(wide(parallelism)))
        bottom = 0.0
        for box in drawn.lanes:
            assert box.y >= bottom
            bottom = box.y + box.height
        assert bottom <= drawn.height
        heights = {box.lane: box.height for box in drawn.lanes}
        for area in drawn.areas:
            assert area.x >= LABEL_WIDTH
            assert area.x + area.width <= drawn.width
            assert area.y + area.height <= heights[area.lane]

    def test_two_hundred_subtasks_fold_to_those_that_matter(self):
        drawn = lay_out(timeline(wide(100)))
        assert len(drawn.lanes) == 200
        assert len(drawn.lines) <= LINES_MAX
        small = folded(drawn)
        assert len(small.lanes) <= 10
        on_path = {step.lane for step in drawn.path} - {None}
        assert on_path <= {box.lane for box in small.lanes}
        shown = {box.lane for box in small.lanes}
        assert all({line.from_lane, line.to_lane} <= shown for line in small.lines)
        assert any(line.on_path for line in small.lines)
        assert small.height < 500

    def test_ticks_are_round_and_few(self):
        assert ticks(56) == [0, 10, 20, 30, 40, 50]
        assert ticks(0.9) == [0, 0.2, 0.4, 0.6, 0.8]
        for end in (1e-6, 0.0031, 0.07, 1.0, 8.0, 59.9, 4000.0):
            assert 3 <= len(ticks(end)) <= 9

    def test_the_drawing_of_the_queues_has_a_column_for_each_operator(self):
        drawn = stage(timeline(aligned()), critical_path(timeline(aligned())))
        assert len({box.x for box in drawn.boxes}) == 2
        assert [queue.blocked for queue in drawn.queues].count(None) == 1
        large = stage(timeline(wide(100)), critical_path(timeline(wide(100))))
        assert (len(large.boxes), large.left_out) == (16, 184)


class TestFiles:
    @pytest.mark.parametrize("make", [*EVERY, line])
    def test_an_svg_is_well_formed_and_needs_nothing_else(self, make):
        text = standalone(timeline(make()))
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")

    def test_names_of_users_are_no_markup(self):
        made = aligned()
        evil = "</script><img src=x onerror=alert(1)> & \"'"
        parts = tuple(replace(part, name=f"{evil} (1/2)") for part in made.subtasks)
        made = replace(made, job=evil, subtasks=parts)
        for text in (standalone(timeline(made)), page([timeline(made)])):
            assert "<img" not in text
        ElementTree.fromstring(standalone(timeline(made)))

    def test_a_page_has_all_it_needs(self):
        text = page([timeline(aligned()), timeline(unaligned())])
        assert not re.search(r"(?:src|href)=\"(?!data:)", text)
        assert text.count('<svg class="timeline"') == text.count('<svg class="stage"') == 2
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
        assert [len(view["lines"]) for view in data["views"]] == [2, 2]
        assert data["end"] == 56

    def test_a_page_explains_what_is_in_it(self):
        both, barriers, marks = (
            page([timeline(make()) for make in makes])
            for makes in ((aligned, line), (aligned,), (line,))
        )
        assert "A dot is a barrier" in barriers
        assert "local snapshot" not in barriers
        assert "A dot is a mark" in marks
        assert "channel blocked" in barriers
        assert "channel blocked" not in marks
        assert "synchronous part or local snapshot" in both

    def test_a_page_of_two_hundred_subtasks_stays_small(self):
        assert len(page([timeline(wide(100))])) < 2_000_000

    def test_perfetto_gets_spans_and_pairs(self):
        events = chrome_trace([timeline(aligned())])["traceEvents"]
        json.dumps(events)
        spans = [event for event in events if event["ph"] == "X"]
        assert all(event["dur"] >= 0 for event in spans)
        assert {"synchronous part", "asynchronous part"} <= {event["name"] for event in spans}
        for begin, end in (("s", "f"), ("b", "e")):
            begun = [event["id"] for event in events if event["ph"] == begin]
            assert begun
            assert sorted(begun) == sorted(e["id"] for e in events if e["ph"] == end)


def test_a_step_lasts_from_its_start_to_its_end():
    assert Step("sync", 0, 1.0, 3.5).duration == 2.5
