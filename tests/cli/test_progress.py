"""How far long work is, as a person and as a pipe see it."""

from __future__ import annotations

import io
import sys

import pytest

from minirt.cli import live_line
from minirt.cli.progress import progress


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
    with progress("mode aligned", 20, "runs") as show:
        show(7)
    assert capsys.readouterr().err == "mode aligned: 7 of 20 runs\n"
