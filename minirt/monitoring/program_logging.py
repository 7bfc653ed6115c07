"""How the program of a job has set up logging, for its workers to log in the same way."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields

from minirt import by_value
from minirt.config import Options
from minirt.monitoring.logs import FIELDS

_OF_LOGGING = ("log_format", "log_level")
"""The options that say how workers log, whatever the program does."""


@dataclass(frozen=True, slots=True)
class ProgramLogging:
    """The levels of the program's loggers, and how it writes messages to its console."""

    levels: Mapping[str, int]
    """By the name of the logger, "" for the root; loggers without a level of their own are left out."""
    handler_level: int
    to_stdout: bool
    formatter: bytes
    """Pickled by value: its class may be one of the program."""

    @staticmethod
    def of_this_process(options: Options) -> ProgramLogging | None:
        """None if the root logger writes to no console, or if the options of the job say how to log."""
        if any(getattr(options, name) != _DEFAULTS[name] for name in _OF_LOGGING):
            return None
        root = logging.getLogger()
        for handler in root.handlers:
            to_stdout = getattr(handler, "stream", None) in (sys.stdout, sys.__stdout__)
            if to_stdout or getattr(handler, "stream", None) in (sys.stderr, sys.__stderr__):
                formatter = handler.formatter or logging.Formatter()
                try:
                    pickled = by_value.dumps(formatter)
                except Exception:  # It may hold whatever it likes; the level still counts.
                    pickled = by_value.dumps(logging.Formatter(logging.BASIC_FORMAT))
                return ProgramLogging(_levels(root), handler.level, to_stdout, pickled)
        return None

    def set_up(self) -> None:
        """Have the root logger of this process do the same."""
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
        handler = logging.StreamHandler(sys.stdout if self.to_stdout else sys.stderr)
        handler.setLevel(self.handler_level)
        formatter: logging.Formatter = pickle.loads(self.formatter)
        plain = type(formatter) is logging.Formatter and "operator" not in (formatter._fmt or "")
        handler.setFormatter(_WithPlace(formatter) if plain else formatter)
        logging.getLogger().addHandler(handler)


_DEFAULTS = {field.name: field.default for field in fields(Options) if field.name in _OF_LOGGING}


def _levels(root: logging.Logger) -> dict[str, int]:
    loggers = root.manager.loggerDict.items()
    set_here = {name: one.level for name, one in loggers if isinstance(one, logging.Logger)}
    return {"": root.level} | {name: level for name, level in set_here.items() if level}


class _WithPlace(logging.Formatter):
    """As the formatter of the program, with the fields behind the message: it does not show them."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        known = [(name, getattr(record, name, None)) for name in FIELDS]
        place = " ".join(f"{name}={value}" for name, value in known if value is not None)
        if not place:
            return self._formatter.format(record)
        message, args = record.msg, record.args
        record.msg, record.args = f"{record.getMessage()} [{place}]", None
        try:
            return self._formatter.format(record)
        finally:
            record.msg, record.args = message, args
