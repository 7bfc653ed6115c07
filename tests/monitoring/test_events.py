"""What a storage remembers of its job: starts, restarts with their causes, the end, and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

import minirt as rt
from minirt.monitoring import events
from minirt.monitoring.causes import CAUSE_TEXT_MAX
from minirt.monitoring.events import JobEvents
from minirt.protocol.checkpoint_paths import CheckpointPaths
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.job_events import JobStatus
from minirt.protocol.manifest import SinkHandles
from minirt.storage.history import EVENTS_MAX, History
from minirt.storage.store import ObjectStore
from tests.monitoring.samples import running_job


def recorded(act: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    act(JobEvents(running_job(), entries.append))
    return entries


def test_only_starts_restarts_and_the_end_are_recorded():
    def life(job: JobEvents) -> None:
        for status in JobStatus:
            job.on_status(status, 1)
        job.on_comeback(ValueError("a kill"), 0.5)
        job.on_restart(ValueError("a stone"), 0.5)
        job.on_end(JobStatus.FAILED, ValueError("another stone"))

    found = recorded(life)
    assert [(e["event"], e.get("cause")) for e in found] == [
        ("running", None),
        ("comeback", "a kill"),
        ("restarting", "a stone"),
        ("failed", "another stone"),
    ]
    assert found[-1]["completed_checkpoints"] == found[-1]["failed_checkpoints"] == 1
    slow = found[-1]["operators"][1]
    assert (slow["operator"], slow["parallelism"]) == ("slow", 2)
    assert (slow["records_in"], slow["busy_s"]) == (1000, 15)


def test_output_that_was_given_up_is_recorded():
    held = (SinkHandles("out", 5, 0, ({"rows": 3}, {})),)
    [entry] = recorded(lambda job: job.on_output_given_up(GivenUpOutput("out", 5, held)))
    assert (entry["event"], entry["sink"], entry["checkpoint"]) == ("output given up", "out", 5)
    assert (entry["outputs"], entry["records"]) == (2, None)
    assert entry["cause"].startswith("checkpoint 5 is restored without the output of sink 'out'")


def test_an_entry_is_bounded(monkeypatch):
    error = ValueError("x" * 10**6)
    [entry] = recorded(lambda job: job.on_restart(error, 1))
    assert len(msgpack.packb(entry)) < CAUSE_TEXT_MAX + 2000
    monkeypatch.setattr(events, "FIGURES_BYTES_MAX", 100)
    [entry] = recorded(lambda job: job.on_end(JobStatus.FINISHED, None))
    assert (entry["operators"], entry["cause"]) == ([], None)


def stumbling(folder: Path) -> rt.Environment:
    """Fails once."""
    stumbled = folder / "stumbled"

    def function(number: int) -> int:
        if number == 3 and not stumbled.exists():
            stumbled.touch()
            raise ValueError("a stone in the way")
        return number

    env = rt.Environment("walk")
    env.source(rt.SequenceSource(5), uid="numbers").map(function, uid="step").sink(rt.DiscardSink())
    return env


def test_a_job_in_the_calling_thread_leaves_its_history_as_well(tmp_path):
    checkpointing = rt.Checkpointing(tmp_path / "stored", interval="50ms")
    stumbling(tmp_path).execute(checkpointing=checkpointing, runner="inline")
    found = rt.open_checkpoints(tmp_path / "stored").events()
    assert [event["event"] for event in found] == ["running", "restarting", "running", "finished"]


@pytest.mark.processes
def test_a_job_leaves_its_history_behind(tmp_path, monkeypatch, capsys):
    checkpointing = rt.Checkpointing(tmp_path / "stored", interval="50ms")
    stumbling(tmp_path).execute(checkpointing=checkpointing)
    found = rt.open_checkpoints(tmp_path / "stored").events()
    assert [(e["event"], e["generation"], e["restarts"]) for e in found] == [
        ("running", 1, 0),
        ("restarting", 1, 1),
        ("running", 2, 1),
        ("finished", 2, 1),
    ]
    assert "a stone in the way" in found[1]["cause"]
    [numbers] = found[-1]["operators"]
    assert (numbers["operator"], numbers["records_in"]) == ("numbers", 5)

    from minirt.cli import main

    monkeypatch.setattr(sys, "argv", ["minirt", "history", str(tmp_path / "stored")])
    with pytest.raises(SystemExit, match="0"):
        main()
    out = capsys.readouterr().out
    assert "what happened to walk" in out
    assert "a stone in the way" in out
    assert "figures of generation 2, which ended finished" in out


def test_the_newest_events_are_kept_and_foreign_ones_ignored(tmp_path):
    store = ObjectStore(str(tmp_path))
    stored = History(store, CheckpointPaths.EVENTS, 1, EVENTS_MAX)
    fine = {"event": "running", "job": "a", "at": 1.0, "generation": 1, "restarts": 0}
    for number in range(EVENTS_MAX + 300):
        stored.append({**fine, "restarts": number})
    for foreign in (
        {},
        {**fine, "at": "now"},
        {**fine, "cause": 7},
        {**fine, "operators": 7},
        {**fine, "operators": [{"operator": "a"}]},
    ):
        stored.append(foreign)
    from minirt.inspect.checkpoints import Checkpoints

    found = Checkpoints(store, allow_pickle=False).events()
    assert [event["restarts"] for event in found] == list(range(305, EVENTS_MAX + 300))
    objects = store.list(CheckpointPaths.EVENTS)
    assert len(objects) <= 5


def test_a_folder_without_a_job_has_no_history(tmp_path, monkeypatch, capsys):
    from minirt.cli import main

    monkeypatch.setattr(sys, "argv", ["minirt", "history", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "holds no checkpoints" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
