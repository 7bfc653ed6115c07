"""`minirt run`: a job from its file, with options from outside, to its end."""

from __future__ import annotations

import json as json_format
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minirt.cli.live_line import LiveLine
from minirt.config import positive
from minirt.errors import ConfigurationError, MinirtError
from minirt.protocol.job_events import JobStatus
from minirt.runtime.observer import JobObserver, JobProgress

if TYPE_CHECKING:
    from minirt.api.environment import Environment
    from minirt.runtime.job import Job, JobResult
    from minirt.settings.sources import Layer

INTERRUPTED = 130
"""The exit status of a job that was cancelled, by Ctrl-C or otherwise."""

RestoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="latest|none|ID|PATH",
        help='What to start from: the newest checkpoint, one by id or path; "none" starts over.',
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option; can be given repeatedly."),
]


def run(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB.PY[:ENV]",
            help="The Python file, and which Environment in it if there are several.",
        ),
    ],
    restore: RestoreOption = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Where checkpoints are stored.")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="Checkpoint mode, such as unaligned.")] = None,
    parallelism: Annotated[
        int | None, typer.Option(help="Subtasks of each operator that states no number itself.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the job.")] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A TOML file with options.")
    ] = None,
    set_: SetOption = None,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state", help="Drop restored state that no operator claims."
        ),
    ] = False,
    allow_restore_fallback: Annotated[
        bool,
        typer.Option("--allow-restore-fallback", help="Pass over damaged checkpoints."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; all else on standard error.")
    ] = False,
) -> None:
    """Run a job until it ends.

    The file defines an Environment; what it does below `if __name__ == "__main__":` is left out. Options
    come from its code, --config, environment variables MINIRT_..., and --set, where later ones count.
    Ctrl-C cancels the job, and ends it at once when pressed again.

    The exit status is 0 if the job finished or was stopped, 1 if it failed, 2 for a wrong call, and 130
    if it was cancelled.
    """
    from minirt.settings.build import read_settings

    flags = {
        "checkpointing.storage": storage,
        "checkpointing.mode": mode,
        "parallelism": parallelism,
        "name": name,
    }
    assignments = [f"{key}={value}" for key, value in flags.items() if value is not None]
    given = read_settings(config, None, [*assignments, *(set_ or [])])
    origin = {
        "restore": int(restore) if restore is not None and restore.isdecimal() else restore,
        "allow_non_restored_state": allow_non_restored_state,
        "allow_restore_fallback": allow_restore_fallback,
    }
    result = _execute(job, given, origin, LiveLine(sys.stderr if json else sys.stdout))
    if json:
        typer.echo(json_format.dumps(_to_plain(result), indent=2))
    if result.status is JobStatus.CANCELLED:
        raise typer.Exit(INTERRUPTED)


def _execute(target: str, given: Layer, origin: Mapping[str, Any], line: LiveLine) -> JobResult:
    """Run the job, and again at another parallelism whenever it is rescaled."""
    from minirt.cli.job_file import load_environment

    try:
        wanted = given["parallelism"].value if "parallelism" in given else None
        env: Environment | None = load_environment(target, wanted)
        while env is not None:
            rescaling = _Rescaling(target)
            result = _run(env, given, origin, line, rescaling)
            line.say(_in_words(result))
            env = None
            if rescaling.next is not None and result.savepoint is not None:
                env, origin = rescaling.next, {"restore": result.savepoint.path}
                line.say("goes on from there at another parallelism")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    return result


class _Rescaling:
    """Stops a job once it is sure that its file makes a job at the wanted parallelism."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._lock = threading.Lock()
        self.next: Environment | None = None
        """What goes on when the job has ended with a savepoint."""

    def answer(self, job: Job, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request for another parallelism; the program goes on with it. Raises MinirtError."""
        from minirt.cli.job_file import load_environment

        wanted = positive("parallelism", request.get("parallelism"))
        with self._lock:
            env = load_environment(self._target, wanted)
            env.graph()
            self.next = env
            try:
                savepoint = job.stop()
            except MinirtError:
                self.next = None
                raise
        return {"parallelism": wanted, "savepoint": savepoint.path}


def _run(
    env: Environment,
    given: Layer,
    origin: Mapping[str, Any],
    line: LiveLine,
    rescaling: _Rescaling,
) -> JobResult:
    from minirt.settings.build import JobSettings, apply_settings

    code = env.defaults
    settings = apply_settings(
        given,
        JobSettings(checkpointing=code.checkpointing, restart=code.restart, options=code.options),
    )
    if settings.checkpointing is None and origin.get("restore") is not None:
        raise ConfigurationError("--restore needs --storage: it says where checkpoints are")
    # What programs are to read goes to standard error, each message by itself.
    in_words = settings.options.log_format == "text"
    with line.logging(settings.options.log_level) if in_words else nullcontext():
        try:
            job = env.start(
                settings.name,
                checkpointing=settings.checkpointing,
                restart=settings.restart,
                options=settings.options,
                observer=_StatusLine(line),
                **origin,
            )
            job.desk.offer("rescale", partial(rescaling.answer, job))
            return _wait(job, line)
        finally:
            line.close()


def _wait(job: Job, line: LiveLine) -> JobResult:
    try:
        return job.wait()
    except KeyboardInterrupt:
        job.cancel()
        line.say(f"job {job.name!r} is cancelled; Ctrl-C again ends it at once")
        try:
            return job.wait()
        except KeyboardInterrupt:
            # Its workers end themselves when they lose their coordinator.
            os._exit(INTERRUPTED)


class _StatusLine(JobObserver):
    """Says what the job does: what passes on the live line, the steps of its life above it."""

    def __init__(self, line: LiveLine) -> None:
        self._line = line
        self._began_at = time.monotonic()
        self._status = JobStatus.CREATED
        self._completed = 0
        self._newest = ""
        self._restarts = 0

    def on_status(self, status: JobStatus, generation: int) -> None:
        self._status = status
        self._show("")

    def on_checkpoint(self, entry: Mapping[str, Any]) -> None:
        if entry["status"] == "completed":
            self._completed += 1
            self._newest = f" (newest {entry['checkpoint_id']})"

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._restarts += 1

    def on_progress(self, progress: JobProgress) -> None:
        records = sum(metrics.records_in for metrics in progress.metrics.values())
        self._show(f", {records:,} records in")

    def _show(self, figures: str) -> None:
        elapsed_s = time.monotonic() - self._began_at
        self._line.update(
            f"{self._status.value}, {elapsed_s:.0f} s, {_count(self._completed, 'checkpoint')}"
            f"{self._newest}, {_count(self._restarts, 'restart')}{figures}"
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _in_words(result: JobResult) -> str:
    words = (
        f"job {result.name!r} {result.status.value} after {result.duration_s:.1f} s, "
        f"{_count(result.completed_checkpoints, 'checkpoint')}, {_count(result.restarts, 'restart')}"
    )
    savepoint = result.savepoint
    return words if savepoint is None else f"{words}\nsavepoint: {savepoint.path}"


def _to_plain(result: JobResult) -> dict[str, Any]:
    savepoint = result.savepoint
    return {
        "name": result.name,
        "status": result.status.value,
        "restarts": result.restarts,
        "duration_s": result.duration_s,
        "completed_checkpoints": result.completed_checkpoints,
        "savepoint": None if savepoint is None else savepoint.path,
    }
