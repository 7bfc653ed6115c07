"""`python -m benchmarks.protocols`: which stages it runs, what counts as sustained, and what it writes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra lab is not installed")

from benchmarks import line_distance, protocols_report
from benchmarks.forced_snapshots import ByIndex, Hmnr, Job
from benchmarks.forced_snapshots import Run as ForcedRun
from benchmarks.protocols import CASES, Campaign, Effort, sustains
from benchmarks.protocols_report import (
    BEGIN,
    END,
    PLOTS,
    shown_stages,
    sustained,
    write_docs,
    write_report,
)
from minirt.errors import ConfigurationError
from minirt.laboratory.bench import Plan
from minirt.laboratory.measured import Comparison, Run, Series
from tests.laboratory.example import run as example_run

MODES = ("aligned", "uncoordinated")
JOIN = CASES["skewed-join"]


def late(one: Run, *seconds: float) -> Run:
    """With these latencies, second by second."""
    at = tuple(float(place) for place in range(len(seconds)))
    series = (Series("latency p50", "s", at, seconds),)
    return replace(one, measured_s=float(len(seconds)), series=series)


def made(setting: int, mode: str, lateness: float, kills: int) -> Run:
    return late(example_run(setting, 0, mode, 2, kills), 0.1, 0.1, lateness)


def test_a_rate_is_sustained_if_results_are_in_time_in_the_end() -> None:
    right = example_run(0, 0, "aligned", 2, 0)
    assert sustains(late(right, 9.0, 9.0, 0.9), 1.0)
    assert not sustains(late(right, 0.1, 0.1, 1.1), 1.0)
    assert not sustains(replace(late(right, 0.1), checkpoints=()), 1.0)
    assert not sustains(replace(late(right, 0.1), ended="failed"), 1.0)
    wrong = replace(right.verification, verdict="failed")
    assert not sustains(replace(late(right, 0.1), verification=wrong), 1.0)
    assert not sustains(replace(right, series=()), 1.0)


class Made:
    """Stages without runs: a mode sustains up to a rate of its own."""

    limits = {"aligned": 10_000.0, "uncoordinated": 20_000.0}

    def __init__(self) -> None:
        self.stages: list[tuple[str, Comparison]] = []

    def keep(self, name: str, comparison: Comparison) -> None:
        self.stages.append((name, comparison))

    def run(self, plan: Plan, comparison: Comparison) -> Comparison:
        runs = []
        for place, setting in enumerate(comparison.settings):
            rate = float(setting.of("parameter").get("records_per_s", 0))
            lateness = 0.1 if rate <= self.limits[setting.mode] else 5.0
            runs.append(made(place, setting.mode, lateness, int(bool(comparison.kill_every_s))))
        return replace(comparison, runs=tuple(runs), complete=True)


def campaign(until: float = float("inf"), kills: bool = True) -> tuple[Campaign, Made]:
    making, effort = Made(), Effort(MODES, 2.0, 1, kills=kills)
    cases = [JOIN, CASES["one-slow"]]
    return Campaign(cases, effort, making.keep, until, run=making.run), making


def test_what_a_later_stage_cannot_do_is_refused_before_the_first_one_runs() -> None:
    making = Made()
    effort = Effort(("uncoordinated",), 2.0, 1, kills=True, peers=("flink",))
    cases = [JOIN, CASES["one-slow"]]
    with pytest.raises(ConfigurationError, match="has no mode uncoordinated"):
        Campaign(cases, effort, making.keep, run=making.run).make()
    assert making.stages == []


def test_rates_rise_for_those_modes_that_sustain_them() -> None:
    all_stages, making = campaign()
    all_stages.make()
    assert [(name, len(found.settings)) for name, found in making.stages] == [
        ("skewed-join at 5,000 a second", 2),
        ("one-slow", 2),
        ("skewed-join with a kill", 2),
        ("skewed-join at 10,000 a second", 2),
        ("skewed-join at 20,000 a second", 2),
        ("skewed-join at 40,000 a second", 1),
    ]
    of = sustained(making.stages, lambda run, case: sustains(run, 1.0))
    assert of == {"skewed-join": {"aligned": (10_000, True), "uncoordinated": (20_000, True)}}
    assert not all_stages.left_out


def test_what_there_is_no_time_for_is_left_out_and_named() -> None:
    late_one, making = campaign(until=time.monotonic() + 1)
    late_one.make()
    assert making.stages == []
    assert "skewed-join with a kill" in late_one.left_out


def test_the_report_has_a_table_and_a_plot_of_what_all_modes_sustain(tmp_path: Path) -> None:
    all_stages, making = campaign()
    all_stages.make()
    judge = lambda run, case: sustains(run, 1.0)  # noqa: E731
    shown = [name for name, _ in shown_stages(making.stages, judge)]
    assert shown == [
        "skewed-join at 10,000 a second",
        "one-slow",
        "skewed-join with a kill",
    ]
    text = write_report(making.stages, ["q1 at 5 a second"], tmp_path, judge)
    assert "| aligned | 10,000 |" in text
    assert "**skewed-join with a kill**" in text
    assert "Left out for lack of time: q1 at 5 a second." in text
    for plot in PLOTS:
        assert (tmp_path / f"{plot.name}.svg").read_text().count("<svg") == 1


def test_figures_are_written_into_their_place_in_the_page(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    (docs / protocols_report.PLOT_FOLDER).mkdir(parents=True)
    out.mkdir()
    (out / f"{PLOTS[0].name}.svg").write_text("drawn")
    page = docs / protocols_report.PAGE
    page.write_text(f"ahead\n{BEGIN}\nold\n{END}\nbehind\n")
    write_docs("new", out, docs)
    assert page.read_text() == f"ahead\n{BEGIN}\n\nnew\n\n{END}\nbehind\n"
    assert (docs / protocols_report.PLOT_FOLDER / f"{PLOTS[0].name}.svg").read_text() == "drawn"
    page.write_text("no place")
    with pytest.raises(ConfigurationError, match="no place for figures"):
        write_docs("new", out, docs)


@pytest.mark.parametrize(
    ("job", "by_index", "by_vectors"),
    [(Job(2, 2), 2, 0), (Job(3, 2), 6, 2), (Job(3, 2, source_snapshots=2), 390, 194)],
)
def test_forced_snapshots_are_counted_alike_everywhere(
    job: Job, by_index: int, by_vectors: int
) -> None:
    index, vectors = ForcedRun(job, ByIndex).make(), ForcedRun(job, Hmnr).make()
    assert (index.forced, vectors.forced) == (by_index, by_vectors)
    assert index.by_clock == vectors.by_clock


def test_snapshots_of_sinks_first_make_lines_that_are_as_new_as_barriers_would() -> None:
    free, staggered = (
        line_distance.measure(Job(3, 2), *line_distance.PLANS[name])
        for name in ("jitter 0.1", "stagger 0.01")
    )
    assert (round(free.behind, 2), round(staggered.behind, 2)) == (2.06, 0.52)
    assert (round(free.in_transit, 2), round(staggered.in_transit, 2)) == (0.7, 0.01)
    assert free.skipped > staggered.skipped == 0
