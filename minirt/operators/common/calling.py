"""Runs the functions of users. Every call of one stands in a block of this module.

Whatever such a function raises, also what is no `Exception`, becomes an error of minirt that names the
operator and the record. Without that, `StopIteration` would end a loop of minirt in silence,
`asyncio.CancelledError` a worker, and `SystemExit` the program.
"""

from __future__ import annotations

import signal
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from minirt.errors import (
    BadRecordError,
    ConfigurationError,
    MinirtError,
    SourceDataError,
    UnsupportedValueError,
    UserCodeError,
)
from minirt.operators.common.base import end_error, opening_error, text_of, user_error

_KEEP_THEIR_CLASS = (
    *(ConfigurationError, UnsupportedValueError),  # No restart mends what these are about.
    *(BadRecordError, SourceDataError),
)


class _Block(ABC):
    """A block that raises the error of `_named` in place of one that foreign code has raised."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if ends_program(error):
            return
        named = self._named(error)
        if named is not error:
            raise named from error

    @abstractmethod
    def _named(self, error: BaseException) -> BaseException:
        """The error to raise; `error` itself if it is to pass as it is."""


class Calling(_Block):
    """A block in which an operator calls functions of the user for records.

    Without `record`, the record is looked for as `user_error` does; `otherwise` as there.
    """

    __slots__ = ("_label", "_otherwise", "_record")

    def __init__(self, label: str, record: Any = None, *, otherwise: Any = None) -> None:
        self._label = label
        self._record = record
        self._otherwise = otherwise

    def _named(self, error: BaseException) -> BaseException:
        if not isinstance(error, MinirtError):
            named = user_error(self._label, error, self._record, otherwise=self._otherwise)
        elif _is_named(error) or not passed_foreign_code(error):
            named = error
        else:  # The user's function has raised it, or called what does: so it does not say where.
            plain = UserCodeError(text_of(error))
            named = user_error(self._label, plain, self._record, error, self._otherwise)
            for kind in _KEEP_THEIR_CLASS:
                if type(error) is kind:
                    named = kind(str(named))
        named.__dict__[_NAMED] = True
        return named


class Writing(Calling):
    """A block in which a sink writes records. Errors of minirt say by themselves what the sink refuses."""

    __slots__ = ()

    def _named(self, error: BaseException) -> BaseException:
        return error if isinstance(error, MinirtError) else super()._named(error)


class Reaching(_Block):
    """A block in which the user's source or sink reaches for another system.

    What it raises becomes an error of the class `kind`, with what it could not do.
    """

    __slots__ = ("_kind", "_label", "_problem")

    def __init__(self, label: str, problem: str, kind: type[MinirtError] = MinirtError) -> None:
        self._label = label
        self._problem = problem
        self._kind = kind

    def _named(self, error: BaseException) -> BaseException:
        return end_error(self._label, self._problem, error, self._kind)


class Opening(_Block):
    """A block in which an operator is opened."""

    __slots__ = ("_label",)

    def __init__(self, label: str) -> None:
        self._label = label

    def _named(self, error: BaseException) -> BaseException:
        return opening_error(self._label, error)


def result_of_each(function: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    """What a function of the user gives for each record.

    `map` takes StopIteration for the end of the records, and does not tell which one it was at. So if
    results are missing, the function is called once more for each, in a way that names the record.
    """
    try:
        results = [*map(function, records)]
        if len(results) == len(records):
            return results
    except BaseException as error:
        if ends_program(error):
            raise
    upcoming = iter(records)
    return [function(record) for record in upcoming]


class EndOfProcess(BaseException):
    """Ends a process that a test simulates; no function of the user raises it."""


def ends_program(error: BaseException) -> bool:
    """Tells whether an error ends the program, since a signal handler of the program has raised it.

    It strikes within a function of the user, but is none of the function's.
    """
    if isinstance(error, Exception | EndOfProcess):
        return isinstance(error, EndOfProcess)
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


_NAMED = "_minirt_names_operator"


def _is_named(error: MinirtError) -> bool:
    return _NAMED in error.__dict__


def passed_foreign_code(error: MinirtError) -> bool:
    """Tells whether code that is none of minirt's was between the operator and what raised the error."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").split(".")[0] != "minirt" for frame in frames)
