"""`minirt bench`: a quick look at the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minirt.cli.bench_peers import CHECKPOINT_MS, MILLION_RECORDS_PER_S
from minirt.cli.bench_recovery import first_record_at
from minirt.laboratory.notes import Note, Track
from minirt.modes import MODES

if TYPE_CHECKING:
    from tests.cli.conftest import Call

DOCS = Path(__file__).parents[2] / "docs" / "performance.md"


@pytest.mark.processes
def test_it_measures_every_case_and_every_mode(call: Call) -> None:
    called = call("bench", "--seconds", "0.1", "--json")
    assert called.status == 0, called.err
    assert "Traceback" not in called.err
    measured = json.loads(called.out)
    rates = {row["case"]: row["records_per_s"] for row in measured["throughput"]}
    assert rates.keys() == {"keyed-sum-rows", "keyed-sum-columns"}
    assert min(rates.values()) > 0
    assert [row["mode"] for row in measured["checkpoints"]] == list(MODES)
    elsewhere = {(row["case"], row["system"]) for row in measured["measured_elsewhere"]}
    assert {("keyed-sum-columns", "flink"), ("keyed-sum-rows", "pyflink")} < elsewhere
    for row in measured["checkpoints"]:
        assert (row["median_s"] is None) == (row["checkpoints"] == 0)
    recovery = measured["recovery"]
    assert recovery["kills"] == 1
    assert 0 < recovery["median_s"] == recovery["longest_s"] < 60


def test_a_recovery_ends_with_the_first_record_of_a_later_generation() -> None:
    def track(generation: int, *notes: tuple[float, int]) -> Track:
        return Track("sink-0-0", generation, tuple(Note(at, n, {}, None) for at, n in notes))

    tracks = [
        track(1, (1.0, 5)),
        track(2, (2.0, 0)),
        track(2, (2.5, 3), (2.6, 9)),
        track(3, (4, 1)),
    ]
    assert first_record_at(tracks, 1) == 2.5
    assert first_record_at(tracks, 2) == 4
    assert first_record_at(tracks, 3) is None


def test_checkpoints_of_other_systems_are_those_of_the_documentation() -> None:
    """The table beside Flink has six columns: place, record, and two of each system."""
    told: dict[tuple[str, str], dict[str, str]] = {}
    place = ""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 6 and cells[4].endswith(" ms"):
            place = cells[0] or place
            told[place, cells[1]] = {
                "minirt": cells[2].removesuffix(" ms"),
                "flink": cells[4].removesuffix(" ms"),
            }
    assert {case: told[case] for case in CHECKPOINT_MS} == CHECKPOINT_MS


def test_figures_of_other_systems_are_those_of_the_documentation() -> None:
    told: dict[tuple[str, str], str] = {}
    case = ""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 6:
            case = cells[0] or case
            told[case, cells[1]] = cells[2]
    for case, systems in MILLION_RECORDS_PER_S.items():
        for system, rate in systems.items():
            assert told[case, system] == rate


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "x", "601"])
def test_a_time_that_cannot_be_is_refused(call: Call, seconds: str) -> None:
    called = call("bench", "--seconds", seconds)
    assert called.status == 2
    assert "Traceback" not in called.err
