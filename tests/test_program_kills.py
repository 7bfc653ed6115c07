"""Campaigns of kills strike where there is something to lose, and say when they have not."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import program_kills
from tests.program_kills import Program, Striker, Struck, soak


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
    (storage / "manifests").mkdir(exist_ok=True)
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
def test_a_campaign_that_shows_little_is_refused(
    struck: Struck,
    shows_little: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    assert (struck.shows_little or "").startswith(shows_little or "")
    assert (struck.shows_little is None) == (shows_little is None)
    if struck.kills:
        assert soak(1, lambda storage, seed: (struck, 0, 0)) == (0 if shows_little is None else 2)
        said = "this campaign does not count" in capsys.readouterr().out
        assert said == (shows_little is not None)
        assert soak(1, lambda storage, seed: (struck, 0, 1)) == 1
