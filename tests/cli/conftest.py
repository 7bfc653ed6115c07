"""Calls the command line as its console script does."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import typer.main

from minirt.cli import main


@dataclass(frozen=True)
class Called:
    """What a command has printed, and its exit status."""

    status: int
    out: str
    err: str


Call = Callable[..., Called]


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """To make all commands takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["minirt", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        printed = capsys.readouterr()
        status = exited.value.code
        assert isinstance(status, int)
        return Called(status, printed.out, printed.err)

    return run
