"""The figures of all subtasks as log messages, every now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict

from minirt.clock import SYSTEM_CLOCK
from minirt.monitoring.logs import logger_of
from minirt.monitoring.monitor import JobMonitor
from minirt.runtime.coordinator.observer import JobObserver, JobProgress

logger = logger_of("metrics")


class FiguresReport(JobObserver):
    """Logs what the monitor knows each `every_s` seconds, one message for each subtask, as INFO."""

    def __init__(
        self,
        monitor: JobMonitor,
        every_s: float,
        monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._monitor = monitor
        self._every_s = every_s
        self._monotonic = monotonic
        self._due_at = 0.0

    def on_progress(self, progress: JobProgress) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        now = self._monotonic()
        if now < self._due_at:
            return
        figures = self._monitor.figures()
        for one in figures.subtasks:
            if one.rates is None:
                continue
            self._due_at = now + self._every_s
            rates = {name: round(rate, 1) for name, rate in asdict(one.rates).items()}
            logger.info(
                "in each second %s",
                ", ".join(f"{name} {rate:g}" for name, rate in rates.items()),
                extra={
                    "job": figures.name,
                    "generation": figures.generation,
                    "operator": one.operator,
                    "subtask": one.subtask,
                    "per_second": rates,
                    "input_queue_use": one.totals.input_queue_use,
                    "output_queue_use": one.totals.output_queue_use,
                    "watermark_lag_s": one.watermark_lag_s(figures.at),
                },
            )
