"""The line that changes while something runs."""

from __future__ import annotations

import io
import logging
from itertools import count

import pytest

from minirt.cli.live_line import LiveLine

ERASE = "\r\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_is_replaced_and_removed_in_the_end() -> None:
    terminal = Terminal()
    line = LiveLine(terminal)
    line.update("one")
    line.update("two")
    line.close()
    assert terminal.getvalue() == f"{ERASE}one{ERASE}two{ERASE}"


def test_a_message_stays_above_the_line() -> None:
    terminal = Terminal()
    line = LiveLine(terminal)
    line.update("state")
    line.say("news")
    assert terminal.getvalue() == f"{ERASE}state{ERASE}news\nstate"


def test_the_line_is_cut_where_the_terminal_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    LiveLine(terminal).update("x" * 100)
    assert terminal.getvalue() == ERASE + "x" * 19


def test_in_a_pipe_a_plain_line_comes_every_few_seconds() -> None:
    pipe, seconds = io.StringIO(), count()
    line = LiveLine(pipe, clock=lambda: next(seconds))
    for state in range(12):
        line.update(f"state {state}")
    line.say("news")
    line.close()
    *states, news = pipe.getvalue().splitlines()
    assert news == "news"
    assert 2 <= len(states) <= 4
    assert all(state.startswith("state ") for state in states)


def test_what_minirt_logs_is_said_only_while_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    pipe = io.StringIO()
    line = LiveLine(pipe)
    logger = logging.getLogger("minirt.job")
    with line.logging():
        logger.warning("job %r restarts", "j")
    assert caplog.records == []
    logger.warning("later")
    assert pipe.getvalue() == "  job 'j' restarts\n"
    assert [record.getMessage() for record in caplog.records] == ["later"]
