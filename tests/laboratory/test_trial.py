"""A job made ready for a run: its options, its sinks, and what is refused."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import minirt as rt
from minirt.data.batch import Columns, Rows
from minirt.errors import ConfigurationError
from minirt.laboratory.kills import moments
from minirt.laboratory.matrix import Choice, Setting
from minirt.laboratory.notes import Notebook, buckets, read_tracks
from minirt.laboratory.sinks import MadeAt
from minirt.laboratory.trial import RunRequest, prepare, resolve
from minirt.laboratory.workload import with_parameters
from minirt.laboratory.workloads import WORKLOADS, find_workload
from minirt.laboratory.workloads.parts import steps
from minirt.monitoring.buckets import bucket_of, share_s

JOB = """
import minirt as rt

class Elsewhere(rt.Sink):
    def open_writer(self, context):
        raise AssertionError("a sink that cannot be redirected is not opened")

env = rt.Environment("job", checkpointing=rt.Checkpointing("real", interval="10s"))
numbers = env.source(rt.SequenceSource(10), uid="numbers")
numbers.sink(rt.JsonlSink("real/out"), uid="files")
numbers.sink(Elsewhere(), uid="elsewhere")
"""


UNALIGNED = Setting("unaligned")


def request(folder: Path, setting: Setting = UNALIGNED, **changes: object) -> RunRequest:
    (folder / "job.py").write_text(JOB)
    given = {
        "job": str(folder / "job.py"),
        "workload": None,
        "setting": setting,
        "seconds": 20.0,
        "warm_up_s": 0.0,
        "kill_every_s": None,
        "latency_from": None,
        "seed": 0,
        "folder": str(folder / "run"),
    }
    return RunRequest(**(given | changes))  # type: ignore[arg-type]


def test_checkpoints_and_files_go_into_the_folder_of_the_run(tmp_path):
    trial = prepare(request(tmp_path))
    checkpointing = trial.settings.checkpointing
    assert checkpointing is not None
    assert checkpointing.storage == f"{tmp_path}/run/checkpoints"
    assert (checkpointing.mode.name, checkpointing.interval_s) == ("unaligned", 2.0)
    assert {one.operator: one.treatment for one in trial.treatments} == {
        "files": "redirected",
        "elsewhere": "replaced",
    }
    assert "A checkpoint every 2 s, in place of 10 s." in trial.notes
    assert not (tmp_path / "real").exists()


def test_a_job_that_is_killed_restarts_at_once(tmp_path):
    assert prepare(request(tmp_path)).settings.restart is None
    killed = prepare(request(tmp_path, kill_every_s=5.0))
    assert killed.settings.restart is not None
    assert any("restart at once" in note for note in killed.notes)


def test_options_are_laid_over_the_job_and_off_means_none(tmp_path):
    one = Setting(
        "aligned", 3, (Choice("options.debloat", "1s"), Choice("checkpointing.interval", "3s"))
    )
    trial = prepare(request(tmp_path, one))
    assert trial.settings.options.debloat == "1s"
    assert trial.settings.checkpointing is not None
    assert trial.settings.checkpointing.interval_s == 3.0
    assert trial.graph.operators["numbers"].parallelism == 3
    off = prepare(request(tmp_path, Setting("aligned", None, (Choice("options.debloat", "off"),))))
    assert off.settings.options.debloat is None


@pytest.mark.parametrize(
    ("key", "workload", "found"),
    [
        ("debloat", None, ("options.debloat", "option")),
        ("interval", None, ("checkpointing.interval", "option")),
        ("record_ms", "throttled", ("record_ms", "parameter")),
        (
            "checkpointing.mode_options.timeout",
            None,
            ("checkpointing.mode_options.timeout", "option"),
        ),
    ],
)
def test_a_factor_is_an_option_or_a_parameter(key, workload, found):
    assert resolve(key, workload) == found


@pytest.mark.parametrize(
    ("key", "workload"),
    [
        ("record_ms", None),
        ("debloats", "throttled"),
        ("mode", None),
        ("parallelism", None),
        ("restore", None),
        ("checkpointing.storage", None),
    ],
)
def test_what_has_no_effect_is_refused(key, workload):
    with pytest.raises(ConfigurationError, match=key):
        resolve(key, workload)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_makes_a_job(name, tmp_path):
    trial = prepare(request(tmp_path, Setting("aligned"), job=None, workload=name))
    assert trial.workload is not None
    assert [one.treatment for one in trial.treatments] == ["kept"]


@pytest.mark.parametrize(
    "given",
    [{"record_ms": "-1"}, {"record_ms": "x"}, {"shape": "round"}, {"keys": "1.5"}, {"no": "1"}],
)
def test_a_parameter_that_cannot_be_is_refused(given):
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        with_parameters(find_workload("throttled"), given)


def test_kills_come_by_their_seed_and_leave_room_for_the_recovery():
    drawn = moments(60, 10, 1)
    assert drawn == moments(60, 10, 1) != moments(60, 10, 2)
    assert len(drawn) == 5
    assert all(abs(at - 10 * turn) <= 2 for turn, at in enumerate(drawn, 1))
    assert drawn[-1] <= 55


def test_a_course_of_rates_says_what_is_due():
    pace = steps((10, 100), (10, 1000), (1, 100))
    assert [pace(at) for at in (0, 5, 10, 15, 20, 30)] == [0, 500, 1000, 6000, 11_000, 12_000]


MADE = dt.datetime(2026, 1, 2, 3, 4, 5)
SINCE_1970 = MADE.replace(tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("field", "batch"),
    [
        ("at", Rows([{"at": SINCE_1970}])),
        ("at", Rows([{"at": int(SINCE_1970 * 1000)}])),
        ("1", Rows([(0, int(SINCE_1970 * 1e9))])),
        ("at", Rows([{"at": MADE}])),
        ("at", Columns(pa.record_batch({"at": pa.array([MADE], pa.timestamp("us"))}))),
        ("at", Columns(pa.record_batch({"at": [int(SINCE_1970 * 1e6)]}))),
    ],
)
def test_times_are_found_in_every_form_and_unit(field, batch):
    assert MadeAt(field).times(batch).tolist() == pytest.approx([SINCE_1970])


def test_a_record_without_a_time_is_told_by_the_name_of_the_option():
    with pytest.raises(ConfigurationError, match="--latency-from at"):
        MadeAt("at").times(Rows([{"other": 1}]))


def test_latencies_are_counted_in_the_buckets_of_markers_and_told_within_two_percent():
    each = np.concatenate([np.geomspace(1e-7, 1e5, 500), [0.0, -1.0, 0.001, 0.002]])
    assert buckets(each) == Counter(map(bucket_of, each.tolist()))
    found = buckets(np.linspace(0.001, 1.0, 1000))
    assert share_s(found, 0.5) == pytest.approx(0.5, rel=0.02)
    assert share_s(found, 0.99) == pytest.approx(0.99, rel=0.02)


def test_notes_are_read_up_to_where_a_kill_has_cut_them(tmp_path):
    book = Notebook(str(tmp_path), "sink-0-1", 3)
    book.add(5)
    book.mark(7)
    with (tmp_path / "sink-0-1@3.jsonl").open("a") as file:
        file.write('{"t": 1.0, "n"')
    [track] = read_tracks(tmp_path, "sink")
    assert (track.who, track.generation) == ("sink-0-1", 3)
    assert [(note.records, note.checkpoint) for note in track.notes] == [(5, None), (5, 7)]


def test_a_redirected_file_sink_writes_elsewhere_and_keeps_its_settings(tmp_path):
    sink = rt.JsonlSink(tmp_path / "real", partition_by="day", existing="refuse")
    other = sink.redirected(str(tmp_path / "trial"))
    env, elsewhere = rt.Environment(), rt.Environment()
    for target, kind in ((env, sink), (elsewhere, other)):
        target.source(rt.CollectionSource([{"day": "mon", "n": 1}]), uid="n").sink(kind, uid="out")
    elsewhere.execute(runner="inline")
    assert not (tmp_path / "real").exists()
    assert len(list((tmp_path / "trial/day=mon").glob("*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("choices", "field", "interval"),
    [
        ((), None, "10ms"),
        ((), "made", None),
        ((Choice("options.latency_interval", "1s"),), None, "1s"),
    ],
)
def test_sources_send_latency_markers_where_no_field_says_when_a_record_was_made(
    tmp_path, choices, field, interval
):
    trial = prepare(request(tmp_path, Setting("aligned", None, choices), latency_from=field))
    assert trial.settings.options.latency_interval == interval
    assert trial.sink_chains == {"numbers"}
