"""Rates and sums of what subtasks count."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirt.cli.top_view import job_lines
from minirt.monitoring.catalogue import CATALOGUE
from minirt.monitoring.figures import CheckpointPart, RateMeter, Rates, SubtaskFigures
from minirt.monitoring.latency import LatencyHistogram
from minirt.monitoring.monitor import JobMonitor
from minirt.monitoring.subtask_metrics import Activity, SubtaskMetrics
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.job_events import JobStatus
from minirt.protocol.manifest import SinkHandles
from minirt.protocol.watermarks import MAX_WATERMARK
from tests.monitoring.samples import (
    NOW,
    UNDER_WAY,
    checkpoint,
    graph,
    progress,
    running_job,
    totals,
)

TIMES = [activity.value for activity in Activity]


@given(
    before=st.lists(st.floats(0, 1e6), min_size=5, max_size=5),
    passed=st.lists(st.floats(0, 1e3), min_size=5, max_size=5).filter(lambda parts: sum(parts) > 1),
)
def test_the_times_of_each_second_add_up_to_1000_ms(before, passed):
    earlier = SubtaskMetrics(**dict(zip(TIMES, before, strict=True)))
    later = SubtaskMetrics(**{n: b + p for n, b, p in zip(TIMES, before, passed, strict=True)})
    rates = Rates.between(earlier, later)
    times = [getattr(rates, f.name) for f in fields(rates) if f.name.endswith("_ms")]
    assert len(times) == 5
    assert sum(times) == pytest.approx(1000)


def test_rates_are_taken_over_a_second_or_more():
    meter = RateMeter()
    meter.update(totals(3.0, busy=1, records_in=100))
    assert meter.rates is None
    meter.update(totals(3.9, busy=1, records_in=190))
    assert meter.rates is None
    meter.update(totals(5.0, busy=1, records_in=500))
    assert meter.rates is not None
    assert (meter.rates.records_in, meter.rates.busy_ms) == (200, 1000)
    first = meter.rates
    meter.update(totals(5.5, busy=1, records_in=900))
    assert meter.rates is first
    meter.update(totals(7.0, busy=1, records_in=1500))
    assert meter.rates.records_in == 500


def test_figures_of_a_chain_are_those_of_its_subtasks():
    numbers, slow = running_job().figures().operators()
    assert (numbers.operator, slow.operator, slow.name) == ("numbers", "slow", "slow > out")
    assert slow.rates is not None
    assert (slow.rates.busy_ms, slow.rates.idle_ms) == (750, 250)
    assert slow.busiest_ms == 1000
    assert (slow.rates.records_in, slow.rates.bytes_in) == (100, 4000)
    assert (slow.input_queue_use, slow.output_queue_use) == (0.75, 1.5)
    assert slow.watermark_lag_s == 2.5
    assert (numbers.checkpoint_s, slow.checkpoint_s) == (0.0625, 0.25)
    assert slow.checkpoint == CheckpointPart(0.03125, 0.0625, 0.001, 0.125, 0.25)
    assert slow.input_window_bytes == 400
    assert numbers.rates is not None
    assert numbers.rates.soft_backpressure_ms == pytest.approx(750)
    assert numbers.watermark_lag_s is None


def test_latencies_are_those_of_the_last_seconds_and_of_all_subtasks_together():
    numbers, slow = running_job().figures().operators()
    assert numbers.latency is None
    assert numbers.to_plain(NOW)["latency"] is None
    told = slow.to_plain(NOW)["latency"]
    assert told["markers"] == 3
    assert told["p50_s"] == pytest.approx(0.5, rel=0.02)
    meter = RateMeter()
    for seconds in range(20):
        markers = [0.01] * 100 if seconds < 8 else [0.01] * 100 + [2.0] * seconds
        histogram = LatencyHistogram()
        for each in markers:
            histogram = histogram.noted(each)
        meter.update(totals(float(seconds), busy=1, latency={"numbers": histogram}))
    assert meter.latency is not None
    assert meter.latency.share_s(0.01) == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    ("watermark", "lag"), [(None, None), (MAX_WATERMARK, None), (500_000, 500), (1_500_000, -500)]
)
def test_a_watermark_that_says_nothing_has_no_lag(watermark, lag):
    subtask = SubtaskFigures("a", "a", 0, None, SubtaskMetrics(watermark=watermark), None)
    assert subtask.watermark_lag_s(1000) == lag


def test_comebacks_are_counted_by_themselves():
    monitor = running_job()
    for cause in ("first", "second"):
        monitor.on_comeback(ValueError(cause), 0.5)
    figures = monitor.figures()
    assert (figures.restarts, figures.comebacks, figures.last_failure) == (0, 2, "second")
    assert figures.to_plain()["comebacks"] == 2


def test_output_that_was_given_up_is_counted_once():
    monitor = running_job()
    assert monitor.figures().given_up == 0
    held = (SinkHandles("out", 5, 0, ({"rows": 3}, {"rows": 4})),)
    for _ in range(2):  # A restart restores the same checkpoint again.
        monitor.on_output_given_up(GivenUpOutput("out", 5, held))
    figures = monitor.figures()
    assert figures.to_plain()["given_up"] == 2
    [metric] = [each for each in CATALOGUE if each.name == "minirt_outputs_given_up_total"]
    assert list(metric.samples(figures)) == [({}, 2)]


def test_checkpoints_and_restarts_are_counted():
    monitor = running_job()
    monitor.on_restart(ValueError("a stone"), 0.5)
    figures = monitor.figures()
    assert (figures.restarts, figures.comebacks, figures.last_failure) == (1, 0, "a stone")
    found = figures.checkpoints.to_plain()
    assert (found["completed"], found["failed"]) == (1, 1)
    assert found["last_failure"] == "declined: the disk is full"
    newest = found["newest"]
    assert (newest["checkpoint_id"], newest["bytes"], newest["in_flight_bytes"]) == (2, 3000, 1200)


def test_checkpoints_are_shown_while_they_are_taken():
    monitor = running_job()
    assert monitor.figures().checkpoints.under_way == ()
    monitor.on_checkpoints_under_way([UNDER_WAY, replace(UNDER_WAY, checkpoint_id=4)])
    figures = monitor.figures()
    known = {name: value for name, value in asdict(UNDER_WAY).items() if name != "parts"}
    told = figures.to_plain()["checkpoints"]["under_way"]
    assert told == [known, {**known, "checkpoint_id": 4}]
    first, second = [line for line in job_lines(figures.to_plain()) if "being taken" in line]
    assert "for 0:00:05, stored by 1 of 2 subtasks: missing slow > out (1/2)" in first
    assert second.startswith("checkpoint 4 ")
    monitor.on_checkpoints_under_way(())
    assert monitor.figures().checkpoints.under_way == ()


def test_a_new_generation_does_not_inherit_rates():
    monitor = running_job()
    monitor.on_status(JobStatus.DEPLOYING, 2)
    assert monitor.figures().subtasks == ()
    monitor.on_progress(progress(source=totals(20, busy=1)))
    assert monitor.figures().subtasks[0].rates is None


def test_what_is_held_does_not_grow_with_time():
    monitor = JobMonitor(graph(), lambda: NOW)
    for id in range(1, 4):
        monitor.on_checkpoint(checkpoint(id))
    before = len(str(monitor.figures().to_plain()))
    for id in range(4, 10):
        monitor.on_checkpoint(checkpoint(id))
    assert len(str(monitor.figures().to_plain())) == before
