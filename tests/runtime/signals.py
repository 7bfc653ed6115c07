"""Files by which the processes and threads of a job, and its test, tell each other how far they are."""

from __future__ import annotations

from pathlib import Path

from tests.runtime.processes import wait_until


class Signals:
    """In a folder that all of them know."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def give(self, name: str) -> None:
        (self._folder / name).touch()

    def given(self, name: str) -> bool:
        return (self._folder / name).exists()

    def wait(self, name: str) -> None:
        """Fails the test if nobody gives the signal in time."""
        wait_until(lambda: self.given(name), name)
