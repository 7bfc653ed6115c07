"""Jobs that run when their program ends: it waits for them, as for its threads, and says so.

A program that ends with an error or by a signal cancels them. If a job fails while the program waits, or
a signal cancels it then, the exit status says so, as that of `minirt run` does.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable

from minirt.errors import MinirtError
from minirt.monitoring.logs import log_fields, logger_of
from minirt.protocol.job_events import ENDED, JobStatus
from minirt.runtime.program.job import Job, JobResult
from minirt.runtime.program.signals import SignalWatch, exit_status, has_ended_program

logger = logger_of("job")

FAILED = 1
_SAY_AFTER_S = 1.0
"""Jobs that end anyway are not worth a message."""


class _Leaving:
    """The jobs of a program that somebody may still have to wait for."""

    def __init__(self) -> None:
        self._jobs: list[tuple[int, Job]] = []
        self._status = 0
        # Threads end before `atexit` has its turn, and pools that storage needs end with them.
        first: Callable[[Callable[[], None]], object]
        first = getattr(threading, "_register_atexit", atexit.register)
        first(self._wait_for_all)
        atexit.register(self._exit)

    def add(self, job: Job) -> None:
        self._jobs = [each for each in self._jobs if each[1].status not in ENDED]
        self._jobs.append((os.getpid(), job))

    def _wait_for_all(self) -> None:
        for pid, job in self._jobs:
            if pid == os.getpid() and job.status not in ENDED:
                self._wait_for(job)

    def _wait_for(self, job: Job) -> None:
        with SignalWatch(job=job) as watch, log_fields(job=job.name):
            if has_ended_program() or _failed():
                logger.warning("the program ends, and job %r is cancelled", job.name)
                job.cancel(reason="the program ended")
            try:
                status = _result(job).status
            except MinirtError as error:
                logger.error("%s", error)
                self._status = FAILED
                return
        if status is JobStatus.CANCELLED and watch.came is not None:
            self._status = exit_status(watch.came)

    def _exit(self) -> None:
        """Python has no other way to an exit status here. It leaves out what was registered before us."""
        if self._status and not has_ended_program() and not _failed():
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(self._status)


def _result(job: Job) -> JobResult:
    try:
        return job.wait(_SAY_AFTER_S)
    except TimeoutError:
        logger.warning("the program is over but for job %r; Ctrl-C ends it", job.name)
        return job.wait()


def _failed() -> bool:
    """Whether the program ended with an error. A prompt remembers those of earlier lines as well."""
    return hasattr(sys, "last_value") and not hasattr(sys, "ps1")


_leaving: _Leaving | None = None


def wait_at_exit(job: Job) -> None:
    """Have the program wait for a job that it may not wait for itself."""
    global _leaving
    if _leaving is None:
        _leaving = _Leaving()
    _leaving.add(job)
