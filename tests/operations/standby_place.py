"""A folder with a job and its standbys, as processes of a test."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import LeaseReader
from minirt.storage.store import ObjectStore
from tests.operations.standby_job import create, in_database, in_files, is_locked, judged
from tests.runtime.processes import children, command_line, freeze, send, wait_until

COUNT = 2000
JOB = [sys.executable, "-m", "tests.operations.standby_job"]


class Program:
    """A process of the test, with what it has said."""

    def __init__(self, folder: Path, name: str, command: list[str]) -> None:
        self._errors = folder / f"{name}.err"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def command(self) -> int:
        """The process that a standby has started."""
        (found,) = [pid for pid in children(self.pid) if JOB[-1] in command_line(pid)]
        return found

    def said(self) -> str:
        return self._errors.read_text()

    def ends(self, timeout: float = 200) -> int:
        """The exit status. A test that fails shows what the program has said."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs, and has said: {self.said()}")
        print(f"process {self.pid} ended with {status}, and has said:\n{self.said()}")
        return status

    def kill(self) -> None:
        for pid in [*children(self.pid), self.pid]:
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
        self.process.wait()


class Place:
    """A folder with a job's output and checkpoints, and the programs that work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = CheckpointStorage(ObjectStore(str(folder / "checkpoints")), 1000)
        self.programs: list[Program] = []
        create(folder)

    @classmethod
    @contextlib.contextmanager
    def made(cls, folder: Path) -> Iterator[Place]:
        """In an empty folder. Kills at the end what still runs."""
        place = cls(folder)
        try:
            yield place
        finally:
            for program in place.programs:
                program.kill()

    def job(self, *options: str) -> Program:
        return self._started("job", [*JOB, str(self.folder), *options])

    def standby(self, *options: str, command: list[str] | None = None) -> Program:
        storage = ["--storage", str(self.folder / "checkpoints")]
        command = [*JOB, str(self.folder)] if command is None else command
        called = [sys.executable, "-m", "minirt", "standby", *storage, *options, "--", *command]
        return self._started("standby", called)

    def _started(self, name: str, command: list[str]) -> Program:
        self.programs.append(Program(self.folder, f"{name}{len(self.programs)}", command))
        return self.programs[-1]

    @property
    def committed(self) -> int:
        return len(in_files(self.folder))

    @property
    def generation(self) -> int:
        """The newest of which there is a lease; 0 without any."""
        lease = LeaseReader(self.storage.store).read()[1]
        return 0 if lease is None else lease.generation

    def runs(self, *, after: int = 0) -> None:
        wait_until(lambda: self.committed > after, "the job has output", 60)

    def freeze(self, job: Program) -> None:
        """Outside of a transaction of its ledger, whose lock SQLite would keep for as long."""
        while True:
            freeze(job.pid)
            if not is_locked(self.folder):
                return
            send(job.pid, signal.SIGCONT)
            time.sleep(0.01)

    def holds_each_record_once(self, count: int = COUNT, sinks: int = 2) -> None:
        for found in (in_files, in_database)[:sinks]:
            assert judged(found(self.folder), count) == (0, 0)


def watches(standby: Program) -> None:
    wait_until(lambda: "watches /" in standby.said(), "it watches")
