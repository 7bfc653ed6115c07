"""Reports of checkpoints: values, their JSON, and what older versions have stored."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

import minirt as rt
from minirt.protocol.barriers import Switch

PART = rt.SubtaskReport(
    *("map (1/2)", 1, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 10, 42, 5, True),
    switches=(Switch("outputs", 1.5, "age 1.500 s passed the timeout 1 s"),),
    channels=(rt.ChannelReport("a > b:0", 0, 1, "out", 42, 4),),
)
COMPLETED = rt.CheckpointReport(1, 2, "unaligned", "checkpoint", 10.0, 2.5, 20, (PART, PART))
FAILURE = rt.CheckpointFailure(rt.CheckpointFailureReason.DECLINED, "full", ("out (1/1)",), 2)
FAILED = replace(COMPLETED, bytes=None, subtasks=(PART,), failure=FAILURE)


def test_a_report_tells_what_became_of_a_checkpoint() -> None:
    assert (COMPLETED.status, COMPLETED.completed) == (rt.CheckpointStatus.COMPLETED, True)
    assert (FAILED.status, FAILED.completed) == (rt.CheckpointStatus.FAILED, False)
    assert COMPLETED.in_flight_bytes == 84


def test_a_report_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        COMPLETED.mode = "aligned"  # type: ignore[misc]
    assert len({COMPLETED, FAILED, replace(COMPLETED)}) == 2


@pytest.mark.parametrize(
    "report", [COMPLETED, replace(COMPLETED, stored="kept")], ids=["told", "stored"]
)
def test_the_json_of_a_completed_checkpoint(report: rt.CheckpointReport) -> None:
    part = {
        "name": "map (1/2)",
        "vertex": 1,
        "subtask": 0,
        "start_delay_s": 0.1,
        "alignment_s": 0.2,
        "sync_s": 0.3,
        "async_s": 0.4,
        "acknowledged_after_s": 0.5,
        "state_bytes": 10,
        "in_flight_bytes": 42,
        "processed_bytes": 5,
        "unaligned": True,
        "switches": [
            {"where": "outputs", "after_s": 1.5, "reason": "age 1.500 s passed the timeout 1 s"}
        ],
        "local": 0,
        "age_s": 0.0,
        "skipped": 0,
        "forced": 0,
        "channels": [
            {
                "link": "a > b:0",
                "sender": 0,
                "receiver": 1,
                "side": "out",
                "bytes": 42,
                "records": 4,
            }
        ],
    }
    expected = {
        "checkpoint_id": 1,
        "generation": 2,
        "mode": "unaligned",
        "status": "completed",
        "kind": "checkpoint",
        "triggered_at": 10.0,
        "duration_s": 2.5,
        "bytes": 20,
        "subtasks": [part, part],
        **({} if report.stored is None else {"stored": "kept"}),
    }
    assert json.dumps(report.to_plain()) == json.dumps(expected)


def test_the_json_of_a_failed_checkpoint_has_the_words_and_the_missing_subtasks() -> None:
    entry = FAILED.to_plain()
    assert list(entry) == [
        *("checkpoint_id", "generation", "mode", "status", "kind", "reason"),
        *("triggered_at", "duration_s", "subtasks", "missing"),
    ]
    assert (entry["status"], entry["reason"]) == ("failed", "declined: full")
    assert entry["missing"] == ["out (1/1)"]


def test_a_report_reads_like_its_json() -> None:
    assert COMPLETED["status"] == "completed"
    assert COMPLETED["subtasks"][0]["sync_s"] == 0.3
    assert FAILED.to_plain() == {**FAILED}
    assert ("reason" in COMPLETED, COMPLETED.get("reason"), FAILED["reason"]) == (
        *(False, None),
        "declined: full",
    )


def test_what_was_stored_is_read_back() -> None:
    assert rt.CheckpointReport.from_plain(COMPLETED.to_plain()) == COMPLETED
    again = rt.CheckpointReport.from_plain(FAILED.to_plain())
    words = rt.CheckpointFailureReason.RECORDED
    assert again.failure == rt.CheckpointFailure(words, "declined: full", ("out (1/1)",), 2)
    assert again.to_plain() == FAILED.to_plain()


def test_what_the_first_versions_stored_is_read_as_well() -> None:
    old = {"checkpoint_id": 1, "generation": 1, "mode": "aligned", "triggered_at": 10}
    failed = rt.CheckpointReport.from_plain(
        {**old, "status": "failed", "duration_s": 1, "reason": "expired"}
    )
    assert (failed.kind, failed.bytes, failed.subtasks) == ("checkpoint", None, ())
    assert str(failed.failure) == "expired"
    parts = [{"name": "map", "vertex": 0, "subtask": 0, "alignment_s": 0.5}]
    entry = {**old, "status": "completed", "duration_s": 1, "bytes": 3, "subtasks": parts}
    [part] = rt.CheckpointReport.from_plain(entry).subtasks
    assert (part.alignment_s, part.switches, part.in_flight_bytes) == (0.5, (), 0)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {},
        {**COMPLETED.to_plain(), "status": "lost"},
        {**COMPLETED.to_plain(), "triggered_at": "now"},
        {**COMPLETED.to_plain(), "subtasks": 3},
    ],
)
def test_what_is_no_report_is_refused(entry: Any) -> None:
    with pytest.raises(ValueError, match="_Entry"):
        rt.CheckpointReport.from_plain(entry)
