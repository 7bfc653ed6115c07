"""Medians with their spread, and whether two settings differ by more than noise.

A run is one observation, however many checkpoints it had: those of one run resemble each other more
than those of two. Two settings are compared by the Mann-Whitney test (H. B. Mann and D. R. Whitney,
1947) in its exact form: how many of all ways to deal the observed values to the two settings set them
as far apart as they are. It assumes nothing about how the values are distributed, and holds for as few
as three runs each, where no value of one lies among those of the other in one of ten ways.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

from minirt.laboratory.measured import CheckpointMeasured, Comparison, Run

ALPHA = 0.1
"""Two settings differ if chance alone sets them so far apart at most this often. Three runs of each cannot
say more."""

RUNS_MIN = 3
"""With fewer runs of a setting, nothing is said about differences."""

_EXACT_MAX = 20
"""Up to so many values in both settings all ways are counted; with more, the test is by the normal law."""

Difference = Literal["differs", "within the noise", "too few runs"]


@dataclass(frozen=True, slots=True)
class Summary:
    """A figure of one setting over its runs."""

    median: float
    least: float
    most: float
    n: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Summary | None:
        """None if no run has the figure."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return Summary(statistics.median(known), min(known), max(known), len(known))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that each run has: its name, its unit, and how a run tells it."""

    name: str
    title: str
    unit: Literal["s", "bytes", "per s", "records", "cores", "share", "count"]
    of_run: Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of a setting beside that of the first setting. `p` is None if nothing could be tested."""

    difference: Difference
    p: float | None


def compare(first: Sequence[float | None], other: Sequence[float | None]) -> Compared:
    """Whether the values of two settings differ by more than noise."""
    one = [value for value in first if value is not None]
    two = [value for value in other if value is not None]
    if min(len(one), len(two)) < RUNS_MIN:
        return Compared("too few runs", None)
    p = mann_whitney(one, two)
    return Compared("differs" if p <= ALPHA + 1e-9 else "within the noise", p)


def mann_whitney(one: Sequence[float], two: Sequence[float]) -> float:
    """The two-sided p-value: how often chance alone sets two samples so far apart, or farther."""
    pooled = sorted([*one, *two])
    ranks = {value: _mean_rank(pooled, value) for value in pooled}
    centre = len(one) * (len(pooled) + 1) / 2
    seen = abs(sum(ranks[value] for value in one) - centre)
    if len(pooled) > _EXACT_MAX:
        return _normal_tail(seen, len(one), len(two))
    ways = list(combinations([ranks[value] for value in pooled], len(one)))
    return sum(abs(sum(way) - centre) >= seen - 1e-9 for way in ways) / len(ways)


def _normal_tail(seen: float, one: int, two: int) -> float:
    deviation = (one * two * (one + two + 1) / 12) ** 0.5
    return 2 * (1 - statistics.NormalDist().cdf(seen / deviation))


def _mean_rank(ordered: Sequence[float], value: float) -> float:
    """Equal values share their ranks."""
    first = ordered.index(value) + 1
    return first + (ordered.count(value) - 1) / 2


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None


def _median_of(part: Callable[[CheckpointMeasured], float]) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        values = [part(one) for one in run.completed]
        return statistics.median(values) if values else None

    return of_run


def _sum_of_local(part: Callable[[CheckpointMeasured], int]) -> Callable[[Run], float | None]:
    """Over all checkpoints of a run. Only a run whose checkpoints are made of local snapshots has it."""

    def of_run(run: Run) -> float | None:
        local = any(one.age_s for one in run.completed)
        return sum(part(one) for one in run.completed) if local else None

    return of_run


def _median_of_local(part: Callable[[CheckpointMeasured], float]) -> Callable[[Run], float | None]:
    """Likewise: with barriers, the first snapshot is taken at the trigger."""
    median = _median_of(part)
    return lambda run: median(run) if any(one.age_s for one in run.completed) else None


def _protocol_rate(run: Run) -> float | None:
    if run.protocol_bytes is None or run.measured_s <= 0:
        return None
    return run.protocol_bytes / run.measured_s


def _longest_part(name: str) -> Callable[[CheckpointMeasured], float]:
    def of_checkpoint(one: CheckpointMeasured) -> float:
        return max((getattr(part, name) for part in one.parts), default=0.0)

    return of_checkpoint


def _of_kills(name: str) -> Callable[[Run], float | None]:
    """The median of a run's kills."""

    def of_run(run: Run) -> float | None:
        values = [value for kill in run.kills if (value := getattr(kill, name)) is not None]
        return statistics.median(values) if values else None

    return of_run


def _latency(name: str, visible: bool = False) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        latency = run.visible_after if visible else run.latency
        return None if latency is None else getattr(latency, name)

    return of_run


def _p99_duration(run: Run) -> float | None:
    return percentile([one.duration_s for one in run.completed], 0.99)


def _backpressure(run: Run) -> float | None:
    """The share of time in which the most backpressured operator had no room for output."""
    shares = [one.soft_backpressure + one.hard_backpressure for one in run.operators]
    return max(shares, default=None)


def _peak(name: str) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        series = run.one_series(name)
        values = (
            []
            if series is None
            else [value for at, value in zip(series.at_s, series.values, strict=True) if at >= 0]
        )
        return max(values, default=None)

    return of_run


def _rate(name: str) -> Callable[[Run], float | None]:
    def of_run(run: Run) -> float | None:
        count: int = getattr(run, name)
        return count / run.measured_s if run.measured_s > 0 else None

    return of_run


FIGURES: tuple[Figure, ...] = (
    Figure("duration_s", "checkpoint, median", "s", _median_of(lambda one: one.duration_s)),
    Figure("duration_p99_s", "checkpoint, 99 %", "s", _p99_duration),
    Figure(
        "whole_s",
        "from first snapshot",
        "s",
        _median_of_local(lambda one: one.duration_s + one.age_s),
    ),
    Figure("start_delay_s", "start delay", "s", _median_of(_longest_part("start_delay_s"))),
    Figure("alignment_s", "alignment", "s", _median_of(_longest_part("alignment_s"))),
    Figure("sync_s", "synchronous", "s", _median_of(_longest_part("sync_s"))),
    Figure("async_s", "asynchronous", "s", _median_of(_longest_part("async_s"))),
    Figure("completed", "checkpoints", "count", lambda run: len(run.completed)),
    Figure("failed", "failed", "count", lambda run: len(run.failed)),
    Figure("in_flight_bytes", "in flight", "bytes", _median_of(lambda one: one.in_flight_bytes)),
    Figure("state_bytes", "state", "bytes", _median_of(lambda one: one.state_bytes)),
    Figure("stored_bytes", "stored", "bytes", _median_of(lambda one: one.bytes or 0)),
    Figure("skipped", "skipped snapshots", "count", _sum_of_local(lambda one: one.skipped)),
    Figure("forced", "forced snapshots", "count", _sum_of_local(lambda one: one.forced)),
    Figure("protocol_rate", "protocol a second", "bytes", _protocol_rate),
    Figure("queued_bytes", "most in queues", "bytes", _peak("queued bytes")),
    Figure("sink_rate", "records at sinks", "per s", _rate("sink_records")),
    Figure("source_rate", "records of sources", "per s", _rate("source_records")),
    Figure("lag", "most source lag", "records", _peak("source lag")),
    Figure("latency_p50_s", "latency, median", "s", _latency("p50_s")),
    Figure("latency_p99_s", "latency, 99 %", "s", _latency("p99_s")),
    Figure("latency_p999_s", "latency, 99.9 %", "s", _latency("p999_s")),
    Figure("visible_p50_s", "until visible, median", "s", _latency("p50_s", True)),
    Figure("visible_p99_s", "until visible, 99 %", "s", _latency("p99_s", True)),
    Figure("first_record_s", "first record after a kill", "s", _of_kills("first_record_s")),
    Figure("first_new_s", "first new record", "s", _of_kills("first_new_record_s")),
    Figure("caught_up_s", "at the rate before", "s", _of_kills("caught_up_s")),
    Figure("rollback_s", "rolled back", "s", _of_kills("rollback_s")),
    Figure("processed_twice", "processed twice", "records", _of_kills("processed_twice")),
    Figure("backpressure", "backpressure", "share", _backpressure),
    Figure(
        "cpu",
        "CPU",
        "cores",
        lambda run: run.cpu_s / run.measured_s if run.measured_s > 0 else None,
    ),
    Figure("rss_bytes", "memory", "bytes", lambda run: float(run.peak_rss_bytes)),
)
"""Every figure that settings are compared by. Of kills and checkpoints it is the median of a run."""


@cache
def _by_name() -> dict[str, Figure]:
    return {figure.name: figure for figure in FIGURES}


def figure(name: str) -> Figure:
    return _by_name()[name]


def values(comparison: Comparison, setting: int, figure: Figure) -> list[float | None]:
    """The figure of each run of a setting that counts."""
    return [figure.of_run(run) for run in comparison.of_setting(setting)]


def summary(comparison: Comparison, setting: int, name: str) -> Summary | None:
    """The figure of that name over the runs of a setting."""
    return Summary.of(values(comparison, setting, figure(name)))
