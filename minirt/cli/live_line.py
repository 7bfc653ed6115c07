"""One line that changes while something runs; in a pipe, a line every few seconds."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

_PIPE_EVERY_S = 3.0
_ERASE = "\r\x1b[2K"


class LiveLine:
    """Shows the newest state on `stream`, and messages that stay above it."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._due_at = clock() + _PIPE_EVERY_S
        self._text = ""
        self._ended = False

    def end(self) -> None:
        """Show nothing from now on: others write to the stream, for programs."""
        self.close()
        self._ended = True

    def update(self, text: str) -> None:
        """Show `text` instead of what was shown before."""
        if self._live:
            self._text = text[: shutil.get_terminal_size().columns - 1]
            self._write(_ERASE + self._text)
        elif self._clock() >= self._due_at:
            self._due_at = self._clock() + _PIPE_EVERY_S
            self._write(text + "\n")

    def say(self, message: str) -> None:
        """Print a line that stays."""
        self._write((_ERASE if self._live else "") + message + "\n" + self._text)

    def close(self) -> None:
        """Remove what was shown last."""
        if self._text:
            self._text = ""
            self._write(_ERASE)

    @contextmanager
    def logging(self, level: str = "warning") -> Iterator[None]:
        """Say what minirt logs from that level on, instead of having it run into the line."""
        handler = logging.Handler()
        handler.emit = lambda record: self.say(f"  {record.getMessage()}")  # type: ignore[method-assign]
        logger = logging.getLogger("minirt")
        propagate, before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(level.upper())
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(before)

    def _write(self, text: str) -> None:
        if self._ended:
            return
        # In one call, since several threads write. What is shown is not worth a failure.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
