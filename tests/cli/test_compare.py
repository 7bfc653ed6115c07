"""`minirt compare`: a real comparison with a kill, and calls that are refused before anything starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psutil", reason="the extra lab is not installed")

from minirt.laboratory.measured import read_json, to_json
from tests.laboratory.example import comparison

if TYPE_CHECKING:
    from tests.cli.conftest import Call

JOB = """
import minirt as rt

env = rt.Environment("numbers")
by_number = rt.Watermarks.monotonous(timestamp=lambda n: n)
numbers = env.source(rt.SequenceSource.endless(), uid="numbers", watermarks=by_number, speed=1.0)
numbers.sink(rt.JsonlSink("out"), uid="out")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.mark.processes
def test_a_workload_is_compared_killed_and_verified(call: Call, folder: Path) -> None:
    called = call(
        *("compare", "--workload", "throttled", "--modes", "aligned,unaligned", "--seconds", "4"),
        *("--repeat", "1", "--kill", "every=2s", "--seed", "5", "--set", "interval=300ms"),
        *("--set", "record_ms=1", "--set", "input_queue_bytes=16KiB"),
        *("--set", "output_queue_bytes=8KiB", "--json", "all.json", "--csv", "csv"),
    )
    assert called.status == 0, called.err
    assert "Traceback" not in called.err
    found = read_json(folder / "all.json")
    assert found.complete
    assert [run.setting for run in found.runs] == [0, 1]
    for run in found.runs:
        assert run.verification.verdict == "passed", run.verification.words
        assert run.verification.expected
        assert len(run.kills) == 1
        assert run.restarts >= 1
        assert run.sink_records > 0
        assert run.latency is not None
        assert 0 < run.latency.p50_s <= run.latency.p99_s <= run.latency.p999_s
        assert run.peak_rss_bytes > 10_000_000
        assert {one.operator for one in run.operators} == {"numbers", "slow"}
        for one in run.operators:
            shares = one.busy + one.idle + one.soft_backpressure + one.hard_backpressure
            assert shares == pytest.approx(1, abs=0.01)
    assert any(run.kills[0].first_record_s is not None for run in found.runs)
    assert found.runs[0].kills[0].subtasks == found.runs[1].kills[0].subtasks
    assert (folder / "csv/kills.csv").read_text().count("\n") == 3


@pytest.mark.processes
@pytest.mark.soak
def test_workers_are_killed_at_the_moments_that_were_given(call: Call, folder: Path) -> None:
    called = call(
        *("compare", "--workload", "throttled", "--modes", "unaligned", "--seconds", "5"),
        *("--repeat", "1", "--kill", "at=3s,1s", "--set", "interval=300ms", "--json", "all.json"),
    )
    assert called.status == 0, called.err
    found = read_json(folder / "all.json")
    [run] = found.runs
    assert found.kill_at_s == (1.0, 3.0)
    # A job that restarts at the moment is struck as soon as it runs again.
    assert all(at <= kill.at_s for at, kill in zip((1.0, 3.0), run.kills, strict=True))
    assert run.verification.verdict == "passed", run.verification.words
    waits = run.one_series("until visible p50")
    assert waits is not None
    assert run.visible_after is not None
    assert 0 < min(waits.values) <= run.visible_after.p99_s


SHUFFLED = """
import minirt as rt

env = rt.Environment("shuffled", parallelism=2)
by_number = rt.Watermarks.monotonous(timestamp=lambda n: n)
numbers = env.source(rt.SequenceSource.endless(), uid="numbers", watermarks=by_number, speed=1.0)
numbers.rebalance().map(lambda number: number, uid="same").rebalance().sink(rt.DiscardSink(), uid="out")
"""
"""Nothing in its records says when they were made."""


@pytest.mark.processes
def test_latency_markers_tell_the_latency_over_time_and_past_a_kill(
    call: Call, folder: Path
) -> None:
    (folder / "job.py").write_text(SHUFFLED)
    called = call(
        *("compare", "job.py", "--modes", "unaligned", "--seconds", "4", "--repeat", "1"),
        *("--kill", "at=2s", "--json", "all.json", "--html", "page.html"),
    )
    assert called.status == 0, called.err
    found = read_json(folder / "all.json")
    [run] = found.runs
    [kill] = run.kills
    assert found.by_markers
    assert run.latency is not None
    assert run.latency.records > 100
    for name, least in (("latency p50", 0.0), ("latency p99", run.latency.p50_s / 10)):
        series = run.one_series(name)
        assert series is not None
        assert min(series.values) > least
        assert series.at_s[0] < kill.at_s < series.at_s[-1] < run.measured_s + 0.5
    page = (folder / "page.html").read_text()
    plot = page.partition('id="plot-latency"')[2].partition("</figure>")[0]
    assert "99 % of markers reached a sink within" in plot
    assert ">kill<" in plot


@pytest.mark.processes
def test_ctrl_c_keeps_what_was_measured(folder: Path) -> None:
    program = [sys.executable, "-m", "minirt", "compare", "job.py"]
    options = ["--seconds", "600", "--modes", "aligned", "--json", "all.json"]
    with subprocess.Popen(
        [*program, *options], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        began = time.monotonic()
        for (
            line
        ) in running.stderr:  # A line every few seconds tells how long the run has been under way.
            seconds = re.search(r", (\d+) s; .* left", line)
            if (seconds and int(seconds[1]) >= 8) or time.monotonic() - began > 100:
                break
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=100)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    found = read_json(folder / "all.json")
    assert not found.complete
    assert [run.ended for run in found.runs] == ["interrupted"]
    assert not (folder / "out").exists()
    assert "numbers" in out


def test_a_comparison_is_drawn_again(call: Call, folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra lab is not installed")
    (folder / "all.json").write_text(to_json(comparison()))
    called = call("compare", "--from", "all.json", "--html", "page.html", "--svg", "plots")
    assert called.status == 0, called.err
    assert "119 times less" in called.out
    assert "119 times less" in (folder / "page.html").read_text()
    assert (folder / "plots/parts.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name the Python file"),
        (("job.py", "--workload", "throttled"), "not both"),
        (("--workload", "throtled"), "did you mean throttled"),
        (("job.py", "--modes", "aligned,unalined"), "unalined"),
        (("job.py", "--modes", "aligned,aligned"), "twice"),
        (("job.py", "--set", "record_ms=1"), "record_ms"),
        (("job.py", "--set", "debloat"), "OPTION=VALUE"),
        (("job.py", "--set", "debloat=soon"), "debloat"),
        (("job.py", "--set", "mode=aligned"), "--modes"),
        (("job.py", "--set", "checkpointing.mode_options.timeout=1s"), "has no option"),
        (("job.py", "--seed", "1"), "--seed has no effect"),
        (("job.py", "--peers", "flink"), "--peers has no effect without --workload"),
        (("--workload", "throttled", "--expect", "job.py"), "--expect has no effect"),
        (("job.py", "--expect", "missing"), "--expect: there is nothing at missing"),
        (("--workload", "nexmark", "--peers", "flink"), "--peers flink runs --workload"),
        (("job.py", "--kill", "10s"), "every="),
        (("job.py", "--kill", "every=19s"), "no room"),
        (("job.py", "--kill", "at=15s"), "a run is over after 15 s"),
        (("job.py", "--kill", "at=3s,x"), "--kill at"),
        (("job.py", "--parallelism", "0"), "--parallelism"),
        (("job.py", "--seconds", "0"), "seconds"),
        (("missing.py",), "missing.py"),
        (("job.py:other",), "other"),
        (("job.py", "--json", "missing/all.json"), "--json"),
        (("job.py", "--html", "."), "--html"),
        (("job.py", "--csv", "job.py"), "--csv"),
        (("--workload", "throttled", "--latency-from", "x"), "--latency-from has no effect"),
        (("job.py", "--latency-from", " "), "--latency-from names no field"),
        (("--from", "job.py"), "no comparison"),
        (("--from", "missing.json"), "cannot read"),
        (("--from", "x.json", "--modes", "aligned"), "--modes has no effect"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    call: Call, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    called = call("compare", *arguments)
    assert called.status == 2, called.err
    assert said in called.err
    assert called.err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} <= {"job.py", "__pycache__"}


def test_a_job_that_does_not_build_is_refused(call: Call, folder: Path) -> None:
    (folder / "job.py").write_text("import minirt as rt\nenv = rt.Environment()\n")
    called = call("compare", "job.py")
    assert called.status == 2
    assert "no source" in called.err


def test_json_of_another_format_is_refused(call: Call, folder: Path) -> None:
    plain = json.loads(to_json(comparison())) | {"format": 2}
    (folder / "all.json").write_text(json.dumps(plain))
    called = call("compare", "--from", "all.json")
    assert called.status == 2
    assert "format 2" in called.err
