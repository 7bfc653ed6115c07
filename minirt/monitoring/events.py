"""What happened to a job, for its history on storage: starts, restarts, comebacks, and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from minirt.monitoring.causes import shortened
from minirt.monitoring.figures import JobFigures, OperatorFigures
from minirt.monitoring.monitor import JobMonitor
from minirt.protocol.giving_up import GivenUpOutput
from minirt.protocol.job_events import JobStatus
from minirt.runtime.coordinator.observer import JobObserver

FIGURES_BYTES_MAX = 32 * 1024
"""Figures of a job with so many operators that they take more are left out."""

TOTALS = (
    *("records_in", "records_out", "bytes_in", "bytes_out"),
    *("busy_s", "idle_s", "soft_backpressure_s", "hard_backpressure_s"),
    "drift_pause_s",
)


class JobEvents(JobObserver):
    """Has each event recorded, with the last figures of what ended. An entry is bounded in bytes.

    An event has `event`, `job`, `at`, `generation` and `restarts`. Where something ended it also has a
    `cause`, which may be None, counts of checkpoints, and the sums of each chain's subtasks until then.
    The cause is the error, or who told the job to end. A comeback has a cause, and ends nothing. Output
    that was given up has its `sink`, `checkpoint`, and how many pending `outputs` and `records` it had.
    """

    def __init__(self, monitor: JobMonitor, record: Callable[[dict[str, Any]], object]) -> None:
        self._monitor = monitor
        self._record = record
        self._told: str | None = None

    def on_status(self, status: JobStatus, generation: int) -> None:
        if status is JobStatus.RUNNING:
            self._record(_event("running", self._monitor.figures()))

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._end("restarting", str(error))

    def on_comeback(self, error: Exception, delay_s: float) -> None:
        event = _event("comeback", self._monitor.figures())
        self._record({**event, "cause": shortened(str(error))})

    def on_output_given_up(self, given_up: GivenUpOutput) -> None:
        self._record(
            {
                **_event("output given up", self._monitor.figures()),
                "cause": shortened(str(given_up)),
                "sink": given_up.uid,
                "checkpoint": given_up.checkpoint_id,
                "outputs": given_up.outputs,
                "records": given_up.records,
            }
        )

    def on_told_to_end(self, reason: str) -> None:
        self._told = reason

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        self._end(status.value, self._told if error is None else str(error))

    def _end(self, event: str, cause: str | None) -> None:
        figures = self._monitor.figures()
        operators = [_sums(operator) for operator in figures.operators()]
        fits = len(msgpack.packb(operators, unicode_errors="backslashreplace")) <= FIGURES_BYTES_MAX
        self._record(
            {
                **_event(event, figures),
                "cause": None if cause is None else shortened(cause),
                "completed_checkpoints": figures.checkpoints.completed,
                "failed_checkpoints": figures.checkpoints.failed,
                "operators": operators if fits else [],
            }
        )


def _event(event: str, figures: JobFigures) -> dict[str, Any]:
    return {
        "event": event,
        "job": figures.name,
        "at": figures.at,
        "generation": figures.generation,
        "restarts": figures.restarts,
    }


def _sums(operator: OperatorFigures) -> dict[str, Any]:
    each = [one.totals for one in operator.subtasks]
    return {
        "operator": operator.operator,
        "name": operator.name,
        "parallelism": len(each),
        **{name: sum(getattr(totals, name) for totals in each) for name in TOTALS},
    }
