"""Watches the lease of a job, and runs the job's program once nobody else does."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeVar
from uuid import uuid4

from minirt.errors import ConfigurationError, JobFailedError, StorageError
from minirt.process_names import has_surely_ended
from minirt.protocol.job_events import JobStatus
from minirt.protocol.lease import Lease, LeaseWatch, Outlook
from minirt.protocol.pauses import pause_s
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.leases import RUN_VARIABLE, LeaseReader

T = TypeVar("T")

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_PAUSE_S, _PAUSE_S_MAX = 1.0, 60.0
"""Before a program that died is started again, which may die again."""
_STEADY_S = 600.0
"""A program that ran for so long has not died of its start."""
_STORAGE_PAUSE_S = 2.0
_NOT_BEGUN = 2
"""The exit status for a command that ends well, and runs no job in this storage."""


_WHY = {
    Outlook.NOBODY: "nobody runs the job",
    Outlook.FELL_SILENT: "no sign of the job for {timeout_s:g} s",
    Outlook.INTERRUPTED: "the job's program was ended by a signal",
}
"""Why a standby takes the job over."""


@dataclass
class Standby:
    """One `minirt standby`. `say` tells people; `default_s` is the timeout of jobs with no lease yet."""

    storage: CheckpointStorage
    command: Sequence[str]
    default_s: float
    timeout_s: float | None
    at_once: bool
    say: Callable[[str], None]
    _program: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _starting: bool = field(init=False, default=False)
    _signal: signal.Signals | None = field(init=False, default=None)
    _deaths: int = field(init=False, default=0)
    _unreadable: bool = field(init=False, default=False)
    _seen: LeaseWatch = field(init=False)
    _leases: LeaseReader = field(init=False)

    def __post_init__(self) -> None:
        self._leases = LeaseReader(self.storage.store)
        self._seen = LeaseWatch(self.default_s, self.timeout_s, at_once=self.at_once)

    def run(self) -> int:
        """Watch, and run the command when it must be; the exit status. Leaves signals as they were.

        Raises JobFailedError if the job has failed for good elsewhere, ConfigurationError if the command
        cannot be started.
        """
        with self._passing_signals_on():
            while True:
                ended = self._watch()
                if ended is not None:
                    self.say(f"the job is over: {ended.ended}")
                    return _status_of(ended)
                status = self._take_over()
                if status is not None:
                    return status
                if self._deaths:
                    time.sleep(pause_s(_PAUSE_S, _PAUSE_S_MAX, self._deaths - 1))

    def _watch(self) -> Lease | None:
        """Until the job is over, which gives its last lease, or must be run, which gives None."""
        watch = self._seen
        self.say(f"watches {self.storage.store.root}")
        while True:
            try:
                seen, lease = self._leases.read()
                outlook = watch.on_look(seen, lease, time.monotonic())
                ended = lease if outlook is Outlook.OVER else None
                # A coordinator that was replaced may say so as well, before its successor says anything.
                if ended is not None and self.storage.is_current(ended.generation):
                    return ended
                if outlook is not Outlook.WATCH:
                    why = _WHY.get(outlook, _WHY[Outlook.FELL_SILENT])
                    self.say(why.format(timeout_s=watch.timeout_s))
                    return None
                if lease is not None and _has_died(lease):
                    self.say("the job's program has died")
                    return None
                self._unreadable = False
            except StorageError as error:
                self._complain(error)
            time.sleep(watch.look_s)

    def _take_over(self) -> int | None:
        """Run the command. None if the job goes on elsewhere, or must go on as its program has died."""
        before = self._surely(self._newest_claim)
        run, began_at = uuid4().hex, time.monotonic()
        status = self._run_command(run)
        if self._signal is not None:
            return status
        claimed = self._surely(self._newest_claim)
        if claimed == before:
            self.say(f"the command has ended with status {status}, and has not begun the job")
            return status or _NOT_BEGUN
        if status == 0:
            return 0
        _, lease = self._surely(self._leases.read)
        if lease is None or lease.run != run or lease.generation != claimed:
            self._deaths = 0
            self.say("somebody else runs the job")
            return None
        if lease.ended is not None:
            return status if lease.ended == JobStatus.FAILED.value else 0
        steady = time.monotonic() - began_at > _STEADY_S
        self._deaths = 1 if steady else self._deaths + 1
        self.say(f"the command has died with status {status}")
        return None

    def _run_command(self, run: str) -> int:
        """The exit status, as shells give it."""
        self.say(f"starts {' '.join(self.command)}")
        environment = {**os.environ, RUN_VARIABLE: run}
        self._starting = True
        try:
            # Signals of the terminal go to its own group: what comes from there is passed on, once.
            self._program = subprocess.Popen(
                self.command, env=environment, stdin=subprocess.DEVNULL, process_group=0
            )
        except OSError as error:
            raise ConfigurationError(f"cannot start {self.command[0]}: {error}") from error
        finally:
            self._starting = False
        try:
            if self._signal is not None:  # It came while there was nobody to pass it on to.
                self._program.send_signal(self._signal)
            status = self._program.wait()
        finally:
            self._program = None
        return 128 - status if status < 0 else status

    def _newest_claim(self) -> int:
        return max((claim.generation for claim in self.storage.claims()), default=0)

    def _surely(self, look: Callable[[], T]) -> T:
        """Look at the storage until that succeeds."""
        while True:
            try:
                found = look()
                self._unreadable = False
                return found
            except StorageError as error:
                self._complain(error)
                time.sleep(_STORAGE_PAUSE_S)

    def _complain(self, error: StorageError) -> None:
        if not self._unreadable:
            self.say(f"cannot look: {error}; looks again")
        self._unreadable = True

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number)
        if self._program is not None:
            self._program.send_signal(number)
        elif not self._starting:
            raise SystemExit(128 + number)


def _has_died(lease: Lease) -> bool:
    return lease.ended is None and lease.process is not None and has_surely_ended(lease.process)


def _status_of(lease: Lease) -> int:
    if lease.ended == JobStatus.FAILED.value:
        raise JobFailedError(f"job {lease.job!r} has failed: {lease.cause}")
    return 0
