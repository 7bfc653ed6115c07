"""Log messages of workers on other hosts, handed on to the logging of the job's program."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minirt.monitoring.log_lines import LogLine
from minirt.runtime.coordinator.observer import JobObserver


class HostLogs(JobObserver):
    """Logs what workers have logged, as they write to the standard error of other machines.

    Messages keep their date, level and logger, and go where those of minirt go.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._logger = logging.getLogger("minirt")

    def on_logs(self, lines: Sequence[LogLine]) -> None:
        for line in lines:
            fields = {"job": self._job, "operator": line.operator, "subtask": line.subtask}
            record = logging.makeLogRecord(
                {
                    "name": line.logger,
                    "levelname": line.level,
                    "levelno": logging.getLevelNamesMapping().get(line.level, logging.INFO),
                    "msg": "%s",
                    "args": (line.text,),
                    "created": line.at,
                    "msecs": line.at % 1 * 1000,
                    **{name: value for name, value in fields.items() if value is not None},
                }
            )
            self._logger.handle(record)
