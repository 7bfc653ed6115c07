"""The newest log messages of a job's workers, bounded, for those who look at it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LINES_MAX = 200
"""How many messages of a job are remembered, the newest."""
WAITING_MAX = 50
"""How many messages of a worker wait for its next heartbeat, the newest."""
TEXT_MAX = 1000
"""How many characters of a message are remembered, its traceback included."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A message; `at` is in seconds since 1970."""

    at: float
    level: str
    logger: str
    text: str
    operator: str | None = None
    subtask: int | None = None

    @staticmethod
    def of(record: logging.LogRecord) -> LogLine:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + _TRACEBACK.formatException(record.exc_info)
        operator, subtask = getattr(record, "operator", None), getattr(record, "subtask", None)
        return LogLine(
            record.created,
            record.levelname,
            record.name,
            text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} ...",
            operator if isinstance(operator, str) else None,
            subtask if type(subtask) is int else None,
        )


_TRACEBACK = logging.Formatter()


class LineHandler(logging.Handler):
    """Keeps messages of this process until they are taken; if they are too many, the newest."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=WAITING_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(LogLine.of(record))
        except Exception:  # A message that cannot be formatted, as `logging` handles it.
            self.handleError(record)

    def take(self) -> tuple[LogLine, ...]:
        if not self._lines:
            return ()
        self.acquire()
        try:
            taken = tuple(self._lines)
            self._lines.clear()
        finally:
            self.release()
        return taken


class LogBook:
    """The newest messages of a job, numbered as they come; for any thread."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=LINES_MAX)
        self._total = 0
        self._lock = threading.Lock()

    def add(self, lines: Iterable[LogLine]) -> None:
        with self._lock:
            for line in lines:
                self._lines.append(line)
                self._total += 1

    def since(self, known: int) -> tuple[int, Sequence[LogLine]]:
        """How many messages there have been, and those after number `known` that are remembered."""
        with self._lock:
            new = max(0, min(self._total - known, len(self._lines)))
            return self._total, tuple(self._lines)[len(self._lines) - new :]
