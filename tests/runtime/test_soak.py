"""A campaign of kills says when a mode is wrong, and when too little was seen to tell."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from minirt.modes import MODES
from tests import program_kills
from tests.program_kills import Program, Struck, run_to_its_end
from tests.runtime import soak
from tests.runtime.kill_settings import SETTINGS, Setting
from tests.runtime.soak import Seen

ALIGNED, REPEATING = SETTINGS["aligned"], SETTINGS["at_least_once"]
ENOUGH = Seen(runs=5, struck=Struck(kills=20, behind_progress=15, checkpoints=200))


def test_every_mode_is_there_and_what_may_overlap_or_come_back_alone() -> None:
    assert MODES.keys() < SETTINGS.keys()
    overlapping = [one for one in SETTINGS.values() if one.max_concurrent > 1]
    assert {one.mode.name for one in overlapping} == {"aligned", "at_least_once"}
    assert all(one.savepoints for one in overlapping)
    assert {one.scope for one in SETTINGS.values()} == {"job", "subtask", "replay"}


@pytest.mark.parametrize(
    ("setting", "seen", "wrong"),
    [
        (ALIGNED, ENOUGH, False),
        (ALIGNED, replace(ENOUGH, lost=1), True),
        (ALIGNED, replace(ENOUGH, duplicated=1), True),
        (ALIGNED, replace(ENOUGH, stuck=1), True),
        (REPEATING, replace(ENOUGH, duplicated=1), False),
        (REPEATING, replace(ENOUGH, lost=1), True),
    ],
)
def test_a_broken_promise_is_told(setting: Setting, seen: Seen, wrong: bool) -> None:
    assert seen.wrong(setting) is wrong


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("aligned", {}, None),
        ("aligned", {"struck": Struck(kills=19, checkpoints=200)}, "19 kills were dealt of 20"),
        ("aligned", {"struck": Struck(20, 9, checkpoints=200)}, "before there was anything new"),
        ("aligned", {"struck": Struck(20, 15, checkpoints=20)}, "fewer than 3 checkpoints"),
        ("uncoordinated-subtask", {}, "no worker came back alone"),
        ("uncoordinated-subtask", {"comebacks": 1}, None),
        ("aligned-overlapping", {"savepoints": 1}, "no checkpoints overlapped"),
        ("aligned-overlapping", {"at_once": 2}, "no savepoint was taken"),
        ("aligned-overlapping", {"at_once": 2, "savepoints": 1}, None),
    ],
)
def test_what_shows_little_does_not_count(
    name: str, more: dict[str, object], words: str | None
) -> None:
    seen = replace(ENOUGH, **more)  # type: ignore[arg-type]
    found = seen.shows_little(SETTINGS[name], 20)
    assert found is None if words is None else words in (found or "")


def test_runs_that_deal_few_kills_end_a_campaign_that_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "_run", lambda *args: Seen(runs=1, uncounted=1))
    assert soak.main(["--mode", "aligned", "--kills", "3"]) == 2
    assert "aligned: does not count: 0 kills were dealt of 3" in capsys.readouterr().out


def test_the_first_wrong_run_ends_its_campaign_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def run(name: str, *args: object) -> Seen:
        ran.append(name)
        return replace(ENOUGH, duplicated=1)

    monkeypatch.setattr(soak, "_run", run)
    monkeypatch.setattr(soak, "mkdtemp", lambda prefix: str(tmp_path))
    told = tmp_path / "told.json"
    names = ["--mode", "aligned", "unaligned"]
    assert soak.main([*names, "--kills", "90", "--json", str(told)]) == 1
    assert ran == ["aligned", "unaligned"]
    assert told.read_text().count("WRONG") == 2


GOES_ON = """
import pathlib, sys, time
for n in range(12):
    pathlib.Path(sys.argv[1]).write_text(str(n))
    time.sleep(0.25)
"""


def test_a_program_may_take_its_time_as_long_as_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_kills, "_PAUSE_S", (0.05, 0.1))
    monkeypatch.setattr(program_kills, "_LOOKS_WITHOUT_PROGRESS_MAX", 25)
    said = tmp_path / "said"

    def progress() -> str:
        return said.read_text() if said.exists() else ""

    def strike(program: Program) -> None:
        """Nobody is killed."""

    chance = random.Random(1)
    storage = tmp_path / "checkpoints"
    run_to_its_end(GOES_ON, [str(said)], storage, chance, strike, progress)
    assert said.read_text() == "11"
    with pytest.raises(AssertionError, match="does not come to its end"):
        run_to_its_end(GOES_ON, [str(said)], storage, chance, strike)


@pytest.mark.processes
def test_a_run_kills_a_real_job_and_compares_what_it_puts_out(tmp_path: Path) -> None:
    name = "aligned-overlapping"
    plan = soak.Plan("united", 1, "slots", "unix", kills=1, seed=5)
    seen = soak._run(name, SETTINGS[name], plan, tmp_path)
    assert (seen.struck.kills, seen.lost, seen.duplicated, seen.stuck) == (1, 0, 0, 0)
    assert seen.savepoints > 0
    [file, *_] = sorted((tmp_path / "united").glob("*.jsonl"))
    file.write_text("")
    striker = soak.Striker(tmp_path / "checkpoints", 0, random.Random(1))
    assert soak._judged(plan, tmp_path, striker).lost > 0
