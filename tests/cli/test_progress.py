"""How far long work is, as a person and as a pipe see it."""

from __future__ import annotations

import io
import sys

import pytest

from minirt.cli import live_line
from minirt.cli import progress as progress_module
from minirt.cli.progress import progress, time_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("checkpoint 3", 2000, "bytes") as show:
        show(1500)
    shown = terminal.getvalue()
    assert "━" in shown
    assert "1,500 of 2,000 bytes" in shown
    assert shown.endswith("\x1b[2K")


def test_a_pipe_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_line, "_PIPE_EVERY_S", 0.0)
    seconds = iter([100.0, 114.0, 140.0])
    monkeypatch.setattr(progress_module, "monotonic", lambda: next(seconds))
    with progress("mode aligned", 20, "runs") as show:
        for done in (0, 7, 10, 20):
            show(done)
    assert capsys.readouterr().err.splitlines() == [
        "mode aligned: 0 of 20 runs",
        "mode aligned: 7 of 20 runs, 26 s left",
        "mode aligned: 10 of 20 runs, 40 s left",
        "mode aligned: 20 of 20 runs",
    ]


def test_time_left_is_said_as_people_do() -> None:
    said = [time_left(seconds) for seconds in (0.2, 59, 61, 3599, 4200)]
    assert said == ["1 s", "59 s", "2 min", "1 h 0 min", "1 h 10 min"]
