"""What a job is doing, in one line of text."""

from __future__ import annotations

import time
from collections.abc import Callable

from minirt.monitoring.queued import queued_bytes
from minirt.protocol.job_events import JobStatus
from minirt.protocol.reports import CheckpointReport
from minirt.runtime.coordinator.observer import JobObserver, JobProgress


class StatusLine(JobObserver):
    """Calls `show` with the line whenever it has changed."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show_text = show
        self._began_at = time.monotonic()
        self._status = JobStatus.CREATED
        self._completed = 0
        self._newest = ""
        self._restarts = 0
        self._figures = ""

    def on_status(self, status: JobStatus, generation: int) -> None:
        self._status = status
        self._figures = ""
        self._show()

    def on_checkpoint(self, report: CheckpointReport) -> None:
        if report.completed:
            self._completed += 1
            self._newest = f" (newest {report.checkpoint_id})"

    def on_restart(self, error: Exception, delay_s: float) -> None:
        self._restarts += 1

    def on_progress(self, progress: JobProgress) -> None:
        records = sum(metrics.records_in for metrics in progress.metrics.values())
        queued = sum(map(queued_bytes, progress.metrics.values()))
        self._figures = f", {records:,} records in, {queued:,} bytes queued"
        self._show()

    def on_end(self, status: JobStatus, error: Exception | None) -> None:
        self._status = status
        self._show()

    def _show(self) -> None:
        elapsed_s = time.monotonic() - self._began_at
        self._show_text(
            f"{self._status.value}, {elapsed_s:.0f} s, {counted(self._completed, 'checkpoint')}"
            f"{self._newest}, {counted(self._restarts, 'restart')}{self._figures}"
        )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
