"""Campaigns of kills strike where there is something to lose, and say when they have not."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests import program_kills
from tests.kills import CAMPAIGNS, Book, Run, Tally, campaign, table
from tests.program_kills import Program, Striker, Struck, run_to_its_end


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Who was killed; nobody is."""
    killed: list[Program] = []

    def kill(program: Program, chance: random.Random) -> bool:
        killed.append(program)
        return True

    monkeypatch.setattr(program_kills, "_kill", kill)
    return killed


@pytest.fixture
def program() -> Iterator[Program]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def complete(storage: Path, checkpoint: int) -> None:
    """Only the newest is kept."""
    (storage / "manifests").mkdir(parents=True, exist_ok=True)
    for file in (storage / "manifests").iterdir():
        file.unlink()
    (storage / "manifests" / f"chk-{checkpoint:08}-g00000001.manifest").touch()


def test_most_strikes_wait_for_a_new_checkpoint(
    tmp_path: Path, program: Program, killed: list[Program]
) -> None:
    crashed: list[int] = []
    striker = Striker(
        tmp_path, 100, random.Random(1), crashes=3, crash=lambda: crashed.append(len(killed))
    )
    for _ in range(500):
        striker.strike(program)
    assert len(killed) == 0
    longest = 0
    for checkpoint in range(1, 500):
        complete(tmp_path, checkpoint)
        before = len(killed) + len(crashed)
        for _ in range(3):
            striker.strike(program)
        longest = 0 if len(killed) + len(crashed) > before else longest + 1
        assert longest <= 8 or striker.done
    assert striker.done
    assert len(killed) == 100
    assert len(crashed) == 3
    assert 60 <= striker.so_far.behind_progress < 100


def test_the_first_kills_wait_for_nothing(
    tmp_path: Path, program: Program, killed: list[Program]
) -> None:
    striker = Striker(tmp_path, 10, random.Random(1), first=4)
    for _ in range(4):
        striker.strike(program)
    assert len(killed) == 4


def test_nobody_is_killed_behind_the_end(
    tmp_path: Path, program: Program, killed: list[Program]
) -> None:
    striker = Striker(tmp_path, 10, random.Random(1), first=4)
    program.kill()
    program.wait(30)
    striker.strike(program)
    assert killed == []


@pytest.mark.parametrize(
    ("struck", "shows_little"),
    [
        (Struck(kills=10, behind_progress=5, checkpoints=30), None),
        (Struck(kills=3, behind_progress=1, checkpoints=30), None),
        (Struck(), "nobody was killed"),
        (Struck(kills=3, checkpoints=30), "most kills struck before"),
        (Struck(kills=10, behind_progress=10, checkpoints=29), "fewer than 3 checkpoints"),
        (Struck(kills=10, behind_progress=4, checkpoints=300), "most kills struck before"),
    ],
)
def test_a_campaign_that_shows_little_is_refused(struck: Struck, shows_little: str | None) -> None:
    assert (struck.shows_little or "").startswith(shows_little or "")
    assert (struck.shows_little is None) == (shows_little is None)
    assert Tally(struck).status == (0 if shows_little is None else 2)
    for wrong in ({"lost": 1}, {"repeated": 1}, {"failed": 1}):
        assert Tally(struck, **wrong).status == 1


ENOUGH = Struck(kills=3, behind_progress=3, checkpoints=30)


def attempts_that(*ends: tuple[Struck, int, int] | Exception) -> Callable[[str], Any]:
    """One after another; the folder of each has a file."""
    left = iter(ends)

    def attempt(folder: Path, seed: int) -> tuple[Struck, int, int]:
        (folder / "log").touch()
        end = next(left)
        if isinstance(end, Exception):
            raise end
        return end

    return lambda argument: nullcontext(attempt)


def runs_of(file: Path, kills: int, *ends: tuple[Struck, int, int] | Exception) -> list[Run]:
    return list(campaign("kafka", kills, Book(file, ["kafka"]), attempts_that(*ends)))


def test_a_campaign_goes_on_from_where_it_was_stopped(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    assert len(runs_of(file, 5, (ENOUGH, 0, 0), (ENOUGH, 0, 0))) == 2
    assert len(runs_of(file, 9, (ENOUGH, 0, 0))) == 1
    assert runs_of(file, 9) == []
    tally = Book(file, ["kafka"]).tallies["kafka"]
    assert (tally.runs, tally.struck.kills, tally.status) == (3, 9, 0)
    assert "| kafka | 9 | 9 | 0 | 90 | 0 | 0 | 3 | 0 |" in table({"kafka": tally})


def test_what_tells_why_a_run_went_wrong_is_kept(tmp_path: Path) -> None:
    ends = ((ENOUGH, 0, 0), (ENOUGH, 1, 0), (ENOUGH, 0, 2), AssertionError("hangs"), (ENOUGH, 0, 0))
    runs = runs_of(tmp_path / "runs.jsonl", 12, *ends)
    assert [run.error for run in runs] == [None, None, None, "AssertionError: hangs", None]
    assert [run.kept is not None for run in runs] == [False, True, True, True, False]
    for run in runs:
        if run.kept is not None:
            assert (Path(run.kept) / "log").exists()
            shutil.rmtree(run.kept)
    tally = Book(tmp_path / "runs.jsonl", ["kafka"]).tallies["kafka"]
    assert (tally.lost, tally.repeated, tally.failed, tally.status) == (1, 2, 1, 1)


def test_a_campaign_whose_runs_fail_is_given_up(tmp_path: Path) -> None:
    runs = runs_of(tmp_path / "runs.jsonl", 5, *(OSError("no disk") for _ in range(9)))
    assert len(runs) == 3
    for run in runs:
        assert run.kept is not None
        shutil.rmtree(run.kept)


def test_every_campaign_is_there() -> None:
    for module, argument in CAMPAIGNS.values():
        found = pytest.importorskip(module)
        assert found.attempts(argument) is not None


def test_a_program_that_makes_no_progress_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_kills, "_LOOKS_WITHOUT_PROGRESS_MAX", 5)
    monkeypatch.setattr(program_kills, "_PAUSE_S", (0.01, 0.01))
    looks: list[Program] = []

    def strike(program: Program) -> None:
        looks.append(program)
        if len(looks) < 10:
            complete(tmp_path / "chk", len(looks))

    with pytest.raises(AssertionError, match=r"(?s)does not come to its end.*in <module>"):
        run_to_its_end(
            "import time; time.sleep(600)", [], tmp_path / "chk", random.Random(1), strike
        )
    assert 10 < len(looks) < 20
