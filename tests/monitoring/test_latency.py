"""The histogram of latency markers."""

from __future__ import annotations

from random import Random

import pytest

from minirt.monitoring.buckets import bucket_of
from minirt.monitoring.latency import (
    BOUNDS_S,
    NO_LATENCIES,
    LatencyHistogram,
    RecentLatencies,
    together,
)
from minirt.monitoring.subtask_metrics import SubtaskMetrics


def of(*latencies: float) -> LatencyHistogram:
    found = NO_LATENCIES
    for each in latencies:
        found = found.noted(each)
    return found


def test_shares_are_within_2_percent() -> None:
    random = Random(7)
    latencies = sorted(10 ** random.uniform(-4.5, 2) for _ in range(2000))
    found = of(*latencies)
    for share in (0.1, 0.5, 0.99, 0.999):
        assert found.share_s(share) == pytest.approx(latencies[int(share * 2000) - 1], rel=0.02)


def test_nothing_has_no_share_and_outliers_fit() -> None:
    assert NO_LATENCIES.share_s(0.5) is None
    assert of(-1.0, 0.0).counts == {0: 2}
    assert of(-1.0, 0.5).sum_s == 0.5
    assert bucket_of(1e12) == bucket_of(1e9)


def test_histograms_add_up_and_differ() -> None:
    early = of(0.001, 0.2)
    late = early.noted(0.2).noted(3.0)
    assert late.since(early).counts == of(0.2, 3.0).counts
    assert late.since(early).sum_s == pytest.approx(3.2)
    assert together([early, of(0.2, 3.0)]).counts == late.counts


def test_the_bounds_are_those_of_buckets() -> None:
    for bound in BOUNDS_S:
        assert of(bound).below(bound) == 0
        assert of(bound * 0.999).below(bound) == 1


def test_a_copy_of_the_figures_stays_as_it_is() -> None:
    metrics = SubtaskMetrics()
    metrics.note_latency("a", 0.5)
    before = metrics.latency
    metrics.note_latency("a", 0.5)
    metrics.note_latency("b", 0.5)
    assert {uid: each.count for uid, each in before.items()} == {"a": 1}
    assert {uid: each.count for uid, each in metrics.latency.items()} == {"a": 2, "b": 1}


def test_what_is_recent_came_in_the_last_five_to_ten_seconds() -> None:
    recent, whole = RecentLatencies(), NO_LATENCIES
    counts = []
    for second in range(20):
        whole = whole.noted(0.5)
        counts.append(recent.after(float(second), whole).count)
    assert counts[:5] == [1, 2, 3, 4, 5]
    assert all(5 <= count <= 10 for count in counts[5:])
    assert counts[-1] < 20


def test_what_is_recent_begins_anew_with_a_process() -> None:
    recent = RecentLatencies()
    for second in range(20):
        recent.after(float(second), of(*[0.5] * second))
    assert recent.after(0.5, of(4.0)).counts == of(4.0).counts
