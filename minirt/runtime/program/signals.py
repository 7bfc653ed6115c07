"""Signals that ask a program to end: its job ends first, in an orderly way and within a bounded time.

SIGTERM, SIGHUP and Ctrl-C do what `Options.on_signal` says. A second one ends the program at once; the
workers end themselves then. A library may not take signals over, so all this holds only

* while the main thread starts a job or waits for one: afterwards the handlers are what they were;
* for signals that the program has not given a handler of its own.

What the signal asked of the program itself then happens, too: Ctrl-C raises KeyboardInterrupt, the others
SystemExit, so that `finally` and `atexit` do their work.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import minirt
from minirt.errors import MinirtError
from minirt.monitoring.logs import log_fields, logger_of
from minirt.protocol.job_events import JobStatus
from minirt.threads import start_thread

if TYPE_CHECKING:
    from minirt.runtime.program.job import Job

logger = logger_of("job")

OF_SERVICES = (signal.SIGTERM, signal.SIGHUP)
OF_PROGRAMS = (signal.SIGINT, *OF_SERVICES)

_OWN_FOLDER = os.path.dirname(minirt.__file__) + os.sep

_ONE_S = 0.1
"""Within this time two signals count as one: `timeout` signals the process and then its group."""


class SignalWatch:
    """While it is entered, a signal ends the job that is attached, or the program if there is none yet.

    Anywhere but in the main thread, and within another watch, it does nothing.
    """

    def __init__(
        self, signals: Sequence[signal.Signals] = OF_PROGRAMS, job: Job | None = None
    ) -> None:
        self._signals = signals
        self._job = job
        self._counts = False
        self._before: dict[signal.Signals, Any] = {}
        self._came_at = 0.0
        self._held = False
        self._asked: queue.SimpleQueue[str | None] | None = None
        """Wakes the thread that ends the job: a handler may neither wait nor take a lock."""
        self.came: signal.Signals | None = None
        """The first signal."""

    def __enter__(self) -> Self:
        global _active
        if _active is None and threading.current_thread() is threading.main_thread():
            _active, self._counts = self, True
            if self._job is not None:
                self.attach(self._job)
            for number in self._signals:
                before = signal.getsignal(number)
                if before in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = before
                    signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        global _active
        self.detach()
        if _active is self:
            _active = None
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)

    def attach(self, job: Job) -> None:
        """From now on, signals end this job."""
        self.detach()
        if not self._counts:
            return
        asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._asked = asked
        if self.came is not None:
            asked.put(self.came.name)
        start_thread(
            "minirt-signals",
            partial(_end_when_asked, job, asked),
            on_error=lambda error: job.cancel(reason=f"a signal, {error}"),
        )

    def detach(self) -> None:
        """The job has ended."""
        if self._asked is not None:
            self._asked.put(None)
            self._asked = None

    def pass_on(self, status: JobStatus) -> None:
        """Do to the program what the signal asked, now that its job has ended. Failures say more."""
        if self.came is not None and status is not JobStatus.FAILED:
            _end_program(self.came, orderly=status in (JobStatus.FINISHED, JobStatus.STOPPED))

    @contextmanager
    def _holding(self) -> Iterator[Callable[[Job], None]]:
        self._held = True
        try:
            yield self.attach
        finally:
            self._held = False
        if self.came is not None and self._asked is None:
            _end_program(self.came, orderly=False)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.came is None:
            self.came, self._came_at = signal.Signals(number), now
            if self._asked is not None:
                self._asked.put(self.came.name)
            elif not self._held:
                _end_program(self.came, orderly=False)
        elif now - self._came_at > _ONE_S:
            os._exit(exit_status(signal.Signals(number)))


_active: SignalWatch | None = None
"""Handlers belong to the process: there is one watch at a time."""


@contextmanager
def launching() -> Iterator[Callable[[Job], None]]:
    """Within, a signal waits until the job is there; it must be handed to what this yields."""
    watch = _active
    if watch is None or threading.current_thread() is not threading.main_thread():
        yield lambda job: None
        return
    with watch._holding() as attach:
        yield attach


def exit_status(number: signal.Signals) -> int:
    """The exit status of a program that this signal has ended, as shells give it."""
    return 128 + number


_ended_program = False


def has_ended_program() -> bool:
    """Whether the program ends because of a signal, however it was told."""
    return _ended_program


def _end_program(number: signal.Signals, *, orderly: bool) -> NoReturn:
    global _ended_program
    _ended_program = True
    if number is signal.SIGINT:
        interrupt = KeyboardInterrupt()
        _show_in_the_callers_code(interrupt)
        raise interrupt
    raise SystemExit(0 if orderly else exit_status(number))


def _show_in_the_callers_code(interrupt: KeyboardInterrupt) -> None:
    """Have the traceback of an unhandled Ctrl-C end where the user waits, not within minirt."""
    show = sys.excepthook

    def without_own_frames(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if error is interrupt:
            last, frame = None, trace
            while frame is not None:
                if not frame.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
                    last = frame
                frame = frame.tb_next
            if last is not None:
                last.tb_next = None
        show(kind, error, trace)

    sys.excepthook = without_own_frames


def _end_when_asked(job: Job, asked: queue.SimpleQueue[str | None]) -> None:
    by = asked.get()
    if by is None:
        return
    with log_fields(job=job.name):
        if job.options.on_signal == "stop":
            timeout_s = job.options.limits.signal_stop_s
            logger.warning(
                "%s: job %r stops with a savepoint, within %g s; a second signal ends it at once",
                *(by, job.name, timeout_s),
            )
            try:
                job.stop(timeout=timeout_s, reason=by)
                return
            except (MinirtError, TimeoutError) as error:
                logger.warning("job %r is cancelled instead: %s", job.name, error)
        else:
            logger.warning("%s: job %r is cancelled; a second signal ends it at once", by, job.name)
    job.cancel(reason=by)
