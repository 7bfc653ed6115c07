"""Several observers of one job."""

from __future__ import annotations

import minirt as rt


class Audience(rt.JobObserver):
    """Passes everything on to each of `observers`, in this order."""

    def __init__(self, *observers: rt.JobObserver) -> None:
        self._observers = observers

    def on_status(self, status: rt.JobStatus, generation: int) -> None:
        for observer in self._observers:
            observer.on_status(status, generation)

    def on_checkpoint(self, report: rt.CheckpointReport) -> None:
        for observer in self._observers:
            observer.on_checkpoint(report)

    def on_restart(self, error: Exception, delay_s: float) -> None:
        for observer in self._observers:
            observer.on_restart(error, delay_s)

    def on_progress(self, progress: rt.JobProgress) -> None:
        for observer in self._observers:
            observer.on_progress(progress)
