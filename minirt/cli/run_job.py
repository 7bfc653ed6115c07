"""The job of `minirt run`: runs it, shows what it does, and goes on at another parallelism if asked to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from minirt.api.environment import Environment
from minirt.cli.job_file import load_environment
from minirt.cli.live_line import LiveLine
from minirt.cli.tables import in_one_line
from minirt.errors import ConfigurationError, JobFailedError, MinirtError
from minirt.monitoring.status_line import StatusLine, counted
from minirt.protocol.job_events import JobStatus
from minirt.runtime.program.job import Job, JobResult
from minirt.runtime.program.signals import SignalWatch
from minirt.runtime.program.signals import exit_status as status_of_signal
from minirt.settings.build import JobSettings, apply_settings
from minirt.settings.sources import Layer
from minirt.units import positive

INTERRUPTED = 130
"""The exit status of a job that was cancelled, unless it was by another signal than Ctrl-C."""


def execute(target: str, given: Layer, watch: SignalWatch) -> JobResult:
    """Run the job, and again at another parallelism whenever it is rescaled.

    If it cannot be restored at that, it goes on from the savepoint at the parallelism before.
    """
    at = given["parallelism"].value if "parallelism" in given else None
    before, rescaled = at, False
    env: Environment | None = load_environment(target, at)
    savepoint: str | None = None
    line = LiveLine(sys.stderr)
    while env is not None:
        rescaling = _Rescaling(target)
        try:
            result = _run(env, given, savepoint, line, rescaling)
        except ConfigurationError as error:
            if not rescaled:
                raise
            line.say(
                f"cannot go on at parallelism {at}: {error}\ngoes on at the parallelism before"
            )
            env, at, rescaled = load_environment(target, before), before, False
            continue
        finally:
            watch.detach()
        line.say(_in_words(result))
        env = None
        if rescaling.next is not None and result.savepoint is not None and watch.came is None:
            env, savepoint, rescaled = rescaling.next, result.savepoint.path, True
            before, at = at, rescaling.parallelism
            line.say("goes on from there at another parallelism")
    return result


class _Rescaling:
    """Stops a job once it is sure that its file makes a job at the wanted parallelism."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self.next: Environment | None = None
        """The job that goes on when this one has ended with a savepoint."""
        self.parallelism: int | None = None
        """What was asked for it."""

    def answer(self, job: Job, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request for another parallelism; the program goes on with it. Raises MinirtError."""
        wanted = positive("parallelism", request.get("parallelism"))
        with self._lock:
            env = load_environment(self._target, wanted)
            env.graph()
            self.next, self.parallelism = env, wanted
            try:
                savepoint = job.stop(
                    reason=f"`minirt rescale` to parallelism {wanted}", goes_on=True
                )
            except MinirtError:
                self.next = None
                raise
        return {"parallelism": wanted, "savepoint": savepoint.path}


def _run(
    env: Environment,
    given: Layer,
    savepoint: str | None,
    line: LiveLine,
    rescaling: _Rescaling,
) -> JobResult:
    """Wait until the job has ended; it goes on from `savepoint` if there is one already."""
    code = env.defaults
    settings = apply_settings(
        given,
        JobSettings(checkpointing=code.checkpointing, restart=code.restart, options=code.options),
    )
    if settings.checkpointing is None and settings.restore is not None:
        raise ConfigurationError("--restore needs --storage: it says where checkpoints are")
    origin = settings.origin if savepoint is None else {"restore": savepoint}
    status_line = _WhatWasSaid(line)
    # With log_format "json", programs read standard error: write each message there by itself.
    in_words = settings.options.log_format == "text"
    if not in_words:
        line.end()
    with line.logging(settings.options.log_level) if in_words else nullcontext():
        try:
            job = env.start(
                settings.name,
                checkpointing=settings.checkpointing,
                restart=settings.restart,
                options=settings.options,
                observer=status_line,
                **origin,
            )
            job.desk.offer("rescale", partial(rescaling.answer, job))
            if job.desk.reached_by and settings.options.log_level not in ("debug", "info"):
                line.say(job.desk.reached_by)  # It is logged otherwise.
            return job.wait()
        except JobFailedError as error:
            raise status_line.without_what_was_said(error) from error.__cause__
        finally:
            line.close()


class _WhatWasSaid(StatusLine):
    """The live line of a job, which knows the error that stands above it already."""

    def __init__(self, line: LiveLine) -> None:
        super().__init__(line.update)
        self._said: str | None = None

    def on_restart(self, error: Exception, delay_s: float) -> None:
        super().on_restart(error, delay_s)
        self._said = str(error)

    def without_what_was_said(self, error: JobFailedError) -> JobFailedError:
        """The error in one line if its traceback stands above it already."""
        if str(error.__cause__) != self._said:
            return error
        return JobFailedError(in_one_line(str(error)), error.reason)


def _in_words(result: JobResult) -> str:
    words = (
        f"job {result.name!r} {result.status.value} after {result.duration_s:.1f} s, "
        f"{counted(result.completed_checkpoints, 'checkpoint')}, {counted(result.restarts, 'restart')}"
    )
    savepoint = result.savepoint
    return words if savepoint is None else f"{words}\nsavepoint: {savepoint.path}"


def exit_status(result: JobResult, watch: SignalWatch) -> int:
    """That of the command, for a job that has not failed."""
    if result.status is not JobStatus.CANCELLED:
        return 0
    return INTERRUPTED if watch.came is None else status_of_signal(watch.came)


def to_plain(result: JobResult) -> dict[str, Any]:
    """The result as `--json` prints it."""
    savepoint = result.savepoint
    return {
        "name": result.name,
        "status": result.status.value,
        "restarts": result.restarts,
        "duration_s": result.duration_s,
        "completed_checkpoints": result.completed_checkpoints,
        "savepoint": None if savepoint is None else savepoint.path,
    }
