"""A peer beside minirt: which settings it gets, what it refuses, and what its answers are read as."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minirt.errors import ConfigurationError
from minirt.laboratory.findings import findings, groups
from minirt.laboratory.matrix import Choice, Setting, labels
from minirt.laboratory.measured import Comparison, Run, from_json, read_json, to_json
from minirt.laboratory.one_run import RunRequest
from minirt.laboratory.peer import Peer, beside
from minirt.laboratory.peers import find_peer
from minirt.laboratory.peers.flink import Flink
from minirt.laboratory.peers.flink_run import Sample, _Told, checkpoint, operators, part
from minirt.monitoring.buckets import LAST, STEPS, UNIT_S, share_s
from tests.laboratory.example import comparison

ALIGNED, UNALIGNED = Setting("aligned"), Setting("unaligned")


class Other(Peer):
    name = "other"
    modes = frozenset(("aligned",))
    workloads = frozenset(("throttled",))
    options = frozenset(("options.debloat",))

    def __init__(self, missing: str | None = None) -> None:
        self._missing = missing

    def missing(self) -> str | None:
        return self._missing

    def version(self) -> str:
        return "9"

    def run(self, request: RunRequest, closed: threading.Event) -> Run:
        raise NotImplementedError


def test_each_setting_whose_mode_a_peer_has_is_run_in_it_too() -> None:
    found = beside([ALIGNED, UNALIGNED], [Other()], "throttled", False)
    assert found.settings == (ALIGNED, UNALIGNED, Setting("aligned", system="other"))
    assert labels(found.settings) == ("aligned", "unaligned", "other, aligned")
    assert any("no mode unaligned" in note for note in found.notes)
    assert found.versions == {"other": "9"}


@pytest.mark.parametrize(
    ("setting", "peer", "workload", "killed", "told"),
    [
        (ALIGNED, Other(), None, False, "runs --workload throttled, and no other job"),
        (ALIGNED, Other(), "windowed", False, "runs --workload throttled, and no other job"),
        (ALIGNED, Other(), "throttled", True, "--kill kills no worker of other"),
        (ALIGNED, Other("install it"), "throttled", False, "install it"),
        (UNALIGNED, Other(), "throttled", False, "has no mode unaligned"),
        (
            Setting("aligned", None, (Choice("limits.spill_bytes", "1"),)),
            Other(),
            "throttled",
            False,
            "--set limits.spill_bytes has no effect on other",
        ),
    ],
)
def test_what_a_peer_cannot_run_is_refused(
    setting: Setting, peer: Peer, workload: str | None, killed: bool, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        beside([setting], [peer], workload, killed)


def test_an_option_that_a_peer_lacks_is_refused_only_where_the_peer_runs_it() -> None:
    spilling = (Choice("limits.spill_bytes", "1"),)
    found = beside([ALIGNED, Setting("unaligned", None, spilling)], [Other()], "throttled", False)
    assert found.settings[2:] == (Setting("aligned", system="other"),)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean"):
        find_peer("flonk")


def test_a_peer_is_held_against_minirt_in_the_same_mode() -> None:
    from dataclasses import replace

    one = comparison()
    modes = tuple(dict.fromkeys(setting.mode for setting in one.settings))
    peers = tuple(replace(setting, system="flink") for setting in one.settings)
    copies = tuple(replace(run, setting=run.setting + len(peers)) for run in one.runs)
    settings = (*one.settings, *peers)
    both = replace(one, settings=settings, labels=labels(settings), runs=(*one.runs, *copies))
    pairs = [[place, place + len(peers)] for place in range(len(peers))]
    assert groups(both) == [*groups(one), *pairs]
    assert from_json(to_json(both), "it") == both
    noise = [str(found) for found in findings(both) if "flink" in str(found)]
    assert len(modes) > 1
    assert any(f"between flink, {modes[0]} and {modes[0]}" in words for words in noise)


def test_a_comparison_from_before_there_were_peers_is_read() -> None:
    plain = json.loads(to_json(comparison()))
    for setting in plain["settings"]:
        del setting["system"]
    assert from_json(json.dumps(plain), "it") == comparison()


def test_flinks_words_for_a_checkpoint_become_ours() -> None:
    entry: Mapping[str, Any] = {
        "id": 3,
        "status": "COMPLETED",
        "is_savepoint": False,
        "end_to_end_duration": 97,
        "checkpointed_size": 659_714,
        "state_size": 659_714,
        "persisted_data": 659_184,
    }
    of_subtask = {
        "index": 1,
        "state_size": 323_381,
        "checkpoint": {"sync": 1, "async": 33},
        "alignment": {"persisted": 323_116, "duration": 2},
        "start_delay": 10,
    }
    found = part({"name": "slow", "parallelism": 2}, of_subtask)
    times = (found.start_delay_s, found.alignment_s, found.sync_s, found.async_s)
    assert (found.operator, found.subtask, times) == ("slow (2/2)", 1, (0.01, 0.002, 0.001, 0.033))
    assert (found.state_bytes, found.in_flight_bytes) == (265, 323_116)
    one = checkpoint(entry, 1.0, (found,))
    assert (one.completed, one.duration_s, one.state_bytes) == (True, 0.097, 530)
    assert checkpoint({**entry, "status": "FAILED"}, 1.0, ()).bytes is None


def test_what_its_program_prints_is_counted_and_all_else_passed_over() -> None:
    lines = (
        b'{"job": "abc"}\n{"started_at": 3.5}\nWARNING: something\n'
        b'{"at": 4.0, "read": 9, "written": 5, "lag": 7, "latencies": [[484, 3], [485, 2]]}\n'
    )
    told = _Told()
    told.follow(iter(io.BytesIO(lines)))
    assert told.job == "abc"
    [look] = told.looks
    assert (look.at, look.read, look.written, look.lag) == (4.0, 9, 5, 7)
    assert share_s(look.latencies, 0.5) == pytest.approx(0.28, rel=0.02)


def test_its_program_counts_latencies_in_the_buckets_of_minirt() -> None:
    program = (Path(__file__).parents[2] / "benchmarks/peers/flink/Compare.java").read_text()
    assert f"UNIT_S = 0.001 / {0.001 / UNIT_S:g};" in program
    assert f"STEPS = {STEPS};" in program
    assert f"BUCKETS = {LAST // STEPS} * STEPS + 1;" in program


def test_shares_of_time_are_those_between_two_samples() -> None:
    def sample(at: float, busy: float, pressed: float) -> Sample:
        return Sample(at, 0.0, 0, {("slow", 0): {"busy": busy, "idle": 0.0, "pressed": pressed}})

    [one] = operators(sample(0, 1000, 500), sample(1, 1250, 1250))
    assert (one.busy, one.soft_backpressure, one.busiest) == (0.25, 0.75, 0.25)


def test_flink_is_missing_where_nobody_installed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIRT_PEERS", str(tmp_path))
    with pytest.raises(ConfigurationError, match="make bench-peers"):
        beside([ALIGNED], [find_peer("flink")], "throttled", False)


@pytest.mark.parametrize("name", sorted(find_peer("flink").workloads))
def test_flink_is_told_all_that_its_program_asks_for(name: str, tmp_path: Path) -> None:
    """The names are those that the Java program reads without a default."""
    request = RunRequest(None, name, Setting("aligned"), 10.0, 1.0, None, None, 0, str(tmp_path))
    command = Flink()._command(request, 1)
    told = dict(one.split("=", 1) for one in command[command.index("Compare") + 1 :])
    needed = {"work", "parallelism", "interval_ms", "debloat_ms", "keys", "hot_per_mille"}
    of_its_own = {
        "aws-peak": {"quota", "pace"},
        "joined": {"waiting"},
        "skewed-join": {"waiting", "pace"},
        "windowed": {"window_records"},
    }
    assert told.keys() >= needed | {"record_ms", "payload_chars", "rest_port"}
    assert told.keys() >= of_its_own.get(name, set())
    assert all(re.fullmatch(r"[\d.:,]+", told[key]) for key in told.keys() & {"pace", "quota"})


def test_a_pace_is_told_as_its_stretches() -> None:
    told = Flink()._command(
        RunRequest(None, "aws-peak", Setting("aligned"), 10.0, 1.0, None, None, 0, "/none"), 1
    )
    assert "pace=12.0:400.0,12.0:2500.0,1.0:400.0" in told


@pytest.mark.processes
def test_a_peak_takes_the_same_course_in_flink(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        *("aws-peak", "before_s=3", "peak_s=4", "debloat=off", "peak_rate=20000", "--seconds", "9"),
    )
    for run in found.runs:
        assert run.ended == "time is up", run.error
        lag = run.one_series("source lag")
        assert lag is not None
        assert max(lag.values) > 10_000, "without the peak, the quota is above the pace"
        assert 100 < run.sink_records / run.measured_s < 1500


@pytest.mark.processes
def test_a_workload_runs_in_flink_where_there_is_one(tmp_path: Path) -> None:
    found = compared(tmp_path, "throttled", "record_ms=1", "interval=500ms", "--seconds", "5")
    assert found.labels == ("unaligned", "flink, unaligned")
    own, peer = found.runs
    for run in (own, peer):
        assert run.ended == "time is up", run.error
        # Two subtasks that take a millisecond, or a little more, for each record.
        assert 500 < run.sink_records / run.measured_s < 2100
        assert len(run.completed) >= 3
        assert all(one.in_flight_bytes > 100_000 for one in run.completed)
        assert run.latency is not None
        pressed = {one.operator: one.soft_backpressure for one in run.operators}
        assert max(pressed.values()) > 0.5
        assert run.one_series("records at sinks") is not None
    sent = own.completed[-1].in_flight_bytes / peer.completed[-1].in_flight_bytes
    assert 0.5 < sent < 20, "records of the two do not carry the same payloads"


def compared(folder: Path, workload: str, *given: str) -> Comparison:
    """One unaligned run of each; options as they are, and parameters as `--set` takes them."""
    if (missing := find_peer("flink").missing()) is not None:
        pytest.skip(missing)
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    sets = [word for one in given if "=" in one for word in ("--set", one)]
    rest = [one for one in given if "=" not in one]
    command = [sys.executable, "-m", "minirt", "compare", "--workload", workload, *sets, *rest]
    size = ["--modes", "unaligned", "--repeat", "1", "--peers", "flink"]
    done = subprocess.run(
        [*command, *size, "--json", str(folder / "all")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return read_json(folder / "all")
