"""Log messages of workers, handed on to the logging of the job's program."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence

from minirt.monitoring.log_lines import LogLine
from minirt.runtime.coordinator.observer import JobObserver


class WorkerLogs(JobObserver):
    """Logs what workers have logged: messages keep their date, level and logger.

    Workers on other hosts write to the standard error of their machines, so their messages go wherever
    those of minirt go. Workers `on_this_console` have written theirs there already: only the other handlers
    of the program get them, such as one that writes a file.
    """

    def __init__(self, job: str, *, on_this_console: bool) -> None:
        self._job = job
        self._on_this_console = on_this_console

    def on_logs(self, lines: Sequence[LogLine]) -> None:
        for line in lines:
            record = self._record(line)
            if not self._on_this_console:
                logging.getLogger("minirt").handle(record)
                continue
            logger = logging.getLogger(line.logger)
            if logger.isEnabledFor(record.levelno):
                for handler in _handlers(logger):
                    if not _writes_to_console(handler) and record.levelno >= handler.level:
                        handler.handle(record)

    def _record(self, line: LogLine) -> logging.LogRecord:
        fields = {"job": self._job, "operator": line.operator, "subtask": line.subtask}
        return logging.makeLogRecord(
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


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and of those above it, as far as messages propagate."""
    here: logging.Logger | None = logger
    while here is not None:
        yield from here.handlers
        here = here.parent if here.propagate else None


def _writes_to_console(handler: logging.Handler) -> bool:
    consoles = (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__)
    return getattr(handler, "stream", None) in consoles
