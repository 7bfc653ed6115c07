"""Log messages with the fields job, generation, operator, subtask and checkpoint.

Fields say what a thread works on: `log_fields` sets them, and messages of minirt and of user code that are
logged meanwhile carry them. `operator` and `subtask` are those of the metrics.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from minirt.secret_texts import without_secrets

FIELDS = ("job", "generation", "operator", "subtask", "checkpoint")

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
LOG_FIELDS: ContextVar[Mapping[str, Any]] = ContextVar("minirt_log_fields", default=_NO_FIELDS)
"""The fields of this thread. Code that sets them very often does so without `log_fields`."""


@contextmanager
def log_fields(**given: object) -> Iterator[None]:
    """Add these fields to messages that are logged within the block, beside those that hold already."""
    token = LOG_FIELDS.set({**LOG_FIELDS.get(), **given})
    try:
        yield
    finally:
        LOG_FIELDS.reset(token)


class AddFields(logging.Filter):
    """Adds the fields to messages that do not bring their own, and leaves out secrets of URLs."""

    def __init__(self, **always: object) -> None:
        super().__init__()
        self._always = always

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in {**self._always, **LOG_FIELDS.get()}.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return True  # Whoever handles the record says that it cannot be formatted.
        if (shown := without_secrets(message)) != message:
            record.msg, record.args = shown, ()
        return True


def logger_of(part: str) -> logging.Logger:
    """The logger of a part of minirt: its messages carry the fields whatever handles them."""
    logger = logging.getLogger(f"minirt.{part}")
    logger.addFilter(AddFields())
    return logger


class TextFormatter(logging.Formatter):
    """One line of text, the fields at its end."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        known = [(name, getattr(record, name, None)) for name in FIELDS]
        fields = " ".join(f"{name}={value}" for name, value in known if value is not None)
        return super().formatMessage(record) + (f" [{fields}]" if fields else "")


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, all fields, and `exception` if there was one."""

    def format(self, record: logging.LogRecord) -> str:
        time = dt.datetime.fromtimestamp(record.created, dt.UTC)
        plain = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{n: value for n, value in vars(record).items() if n not in _OF_EVERY_RECORD},
        }
        if record.exc_info:
            plain["exception"] = self.formatException(record.exc_info)
        try:
            return json.dumps(plain, default=str, allow_nan=False)
        except Exception:  # What users give as `extra` may be anything.
            return json.dumps({name: _as_json(value) for name, value in plain.items()})


def _as_json(value: object) -> object:
    """The value if it has a form in JSON, else a text that tells it."""
    try:
        json.dumps(value, allow_nan=False)
    except Exception:
        try:
            return str(value)
        except Exception as error:
            return f"<{type(value).__name__}: {type(error).__name__}>"
    return value


_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}

FORMATTERS: Mapping[str, Callable[[], logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}


def set_up_worker(
    format: str, level: str, of_program: Callable[[], None] | None = None, **always: object
) -> None:
    """Send all messages of this process to standard error, unless the job's modules have seen to that.

    `of_program` sets logging up as the job's program has. Either way messages carry the fields, and those
    that are `always` the same.
    """
    root = logging.getLogger()
    if not root.handlers and of_program is not None:
        of_program()
    elif not root.handlers:
        root.addHandler(_handler(format))
        root.setLevel(level.upper())
    for handler in root.handlers:
        handler.addFilter(AddFields(**always))


def keep_lines(handler: logging.Handler) -> None:
    """Have this handler hear of all messages of the process, with their fields."""
    handler.addFilter(AddFields())
    logging.getLogger().addHandler(handler)


def set_up_program(format: str, level: str) -> Callable[[], None]:
    """The same for what minirt itself logs in the user's program; returns what undoes it.

    Nothing is touched in a program that has set logging up.
    """
    logger = logging.getLogger("minirt")
    if logger.hasHandlers():
        return lambda: None
    handler, before = _handler(format), logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    return undo


def _handler(format: str) -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[format]())
    return handler
