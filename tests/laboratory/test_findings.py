"""Sentences: what differs, what is noise, and what went wrong."""

from __future__ import annotations

from dataclasses import replace

from minirt.laboratory.findings import findings, groups
from minirt.laboratory.matrix import Factor, Setting, cross
from minirt.laboratory.measured import Comparison, Verification
from tests.laboratory.example import comparison


def words(made: Comparison, kind: str) -> list[str]:
    return [str(one) for one in findings(made) if one.kind == kind]


def test_a_difference_names_both_figures_and_how_much_it_is():
    first = words(comparison(), "differs")[0]
    assert first.startswith("Checkpoints took 15 ms (14 ms to 16 ms) with unaligned, 1.8 s")
    assert first.endswith("119 times less (p = 0.1).")


def test_a_peak_that_most_checkpoints_do_not_see_is_told():
    made = comparison()
    most = [replace(one, duration_s=0.015) for one in made.runs[1].checkpoints]
    quick = replace(made.runs[1], checkpoints=tuple(most))
    peaked = replace(quick, checkpoints=(*most[:-1], replace(most[-1], duration_s=6.0)))
    runs = tuple(replace((peaked, quick)[one.setting], setting=one.setting) for one in made.runs)
    told = words(replace(made, runs=runs), "differs")
    assert (
        "99 % of checkpoints took at most 15 ms with unaligned, 6 s with aligned: 400 times less (p = 0.1)."
        in told
    )
    assert not any(one.startswith("Checkpoints took") for one in told)


def test_what_is_within_the_noise_is_called_so():
    [*_, noise] = words(comparison(), "noise")
    assert noise.startswith("Within the noise between unaligned and aligned: records at sinks (")


def test_two_runs_are_too_few():
    made = comparison(repeat=2)
    assert words(made, "differs") == []
    told = [one for one in words(made, "fact") if " with " in one]
    assert told[0].startswith("Checkpoints took")
    assert all(
        one.endswith("times less; 2 runs of each: too few to tell noise.") for one in told[:1]
    )
    [rest] = words(made, "noise")
    assert rest.startswith(
        "So few runs of unaligned and aligned tell nothing of records at sinks ("
    )


def test_an_interrupted_run_counts_for_nothing():
    made = comparison()
    cut = replace(made.runs[-1], ended="interrupted")
    assert words(replace(made, runs=(*made.runs[:-1], cut)), "differs") == []


def test_wrong_output_stands_first():
    made = comparison()
    wrong = replace(made.runs[1], verification=Verification("failed", "1 missing", 10, 1, 0))
    first = findings(replace(made, runs=(made.runs[0], wrong, *made.runs[2:])))[0]
    assert (first.kind, first.words) == (
        "wrong",
        "The output of run 1 of unaligned is wrong: 1 missing.",
    )


def test_a_setting_without_a_checkpoint_is_told():
    made = comparison()
    runs = tuple(replace(run, checkpoints=()) if run.setting == 0 else run for run in made.runs)
    assert any(
        "With aligned no checkpoint completed" in one
        for one in words(replace(made, runs=runs), "wrong")
    )


def test_a_setting_whose_runs_end_before_the_first_kill_is_told():
    made = comparison()
    runs = tuple(replace(run, kills=()) if run.setting == 0 else run for run in made.runs)
    said = "With aligned no worker was killed"
    planned = replace(made, runs=runs, kill_every_s=2.0)
    assert [one for one in words(planned, "wrong") if "killed" in one] == [
        f"{said}: its runs were over before."
    ]
    unplanned = replace(planned, kill_every_s=None, kill_at_s=())
    assert not any(said in one for one in words(unplanned, "wrong"))


def test_runs_without_a_checkpoint_are_told_beside_those_with_some():
    made = comparison()
    runs = tuple(
        replace(run, checkpoints=()) if number in (0, 2) else run
        for number, run in enumerate(made.runs)
    )
    cut = replace(made, runs=runs)
    assert "With aligned no checkpoint completed: 2 of 3 runs of up to 10 s." in words(cut, "wrong")
    [told] = [one for one in words(cut, "fact") if one.startswith("Checkpoints took")]
    assert told.endswith("times less; 3 runs and 1 run: too few to tell noise.")


def test_times_that_a_job_writes_itself_are_no_ages_after_a_kill():
    said = [one for one in words(comparison(), "fact") if "looks younger than it is" in one]
    assert len(said) == 1
    for made in (comparison(kills=0), replace(comparison(), workload="throttled")):
        assert not any("looks younger" in one for one in words(made, "fact"))


def test_modes_are_compared_where_all_else_is_the_same():
    settings = cross(["aligned", "unaligned"], [], [Factor("debloat", ("off", "1s"))])
    assert groups(comparison(settings, repeat=1)) == [[0, 1], [2, 3]]
    alone = [Setting("aligned", 2), Setting("aligned", 4)]
    assert groups(comparison(alone, repeat=1)) == [[0, 1]]


def test_a_job_that_is_over_before_it_is_measured_is_told_in_one_line_and_counts_for_nothing():
    made = comparison(kills=0)
    early = replace(made.runs[0], ended="finished", sink_records=0)
    told = replace(made, runs=(early, *made.runs[1:]))
    assert len(told.of_setting(early.setting)) == len(made.of_setting(early.setting)) - 1
    [line] = [one for one in words(told, "wrong") if "no figures" in one]
    assert line.startswith("Of run 1 of aligned there are no figures: the job was over before")
    assert "Give it more input, or fewer --seconds" in line
    assert not any("no figures" in one for one in words(made, "wrong"))


def test_latencies_of_markers_are_said_to_be_that():
    made = replace(comparison(), latency_from=None)
    said = "Latencies are those of markers"
    assert any(one.startswith(said) for one in words(made, "fact"))
    apart = tuple(
        replace(run, latency=replace(run.latency, p99_s=1.0 + 9 * run.setting)) for run in made.runs
    )
    told = words(replace(made, runs=apart), "differs")
    assert any(one.startswith("99 % of latency markers reached a sink within") for one in told)
    without = tuple(replace(run, latency=None) for run in made.runs)
    for other in (comparison(), replace(made, runs=without)):
        assert not any(one.startswith(said) for one in words(other, "fact"))
