"""Aggregates that need an array or two, and what all aggregates have in common.

Nulls are left out, as in SQL; of a key that has nothing but nulls, the result is null. A column that has
held nothing but nulls so far may be of the type null, and then so is its result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from minirt.errors import ConfigurationError

if TYPE_CHECKING:
    from minirt.state.accumulator import Accumulator

_NUMBERS = (pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
_ORDERED = (
    *_NUMBERS,
    pa.types.is_decimal,
    pa.types.is_temporal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
"""Tests for the types that can be added up, and for those that have a least and a greatest value."""


@dataclass(frozen=True)  # Without slots: subclasses have attributes of their own.
class Aggregate(ABC):
    """One result column. `column` is what it reads, None for whole records; `name` what it is called.

    With `where`, an expression of columns, only records count for which it is true.
    """

    column: str | None
    name: str | None = None
    where: pc.Expression | None = field(default=None, kw_only=True, compare=False)

    needs_column: ClassVar[bool] = True
    """Whether it is one of a column, and not of whole records."""

    @property
    def repeats(self) -> bool:
        """Whether it comes to the same if it takes in the same batches again, also behind a restore."""
        return False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that it reads; the values of several come as structs."""
        return () if self.column is None else (self.column,)

    @property
    def computes(self) -> str:
        """What it computes besides its kind, as a text: so state of something else is not restored."""
        return (self.column or "") + self._condition

    @property
    def _condition(self) -> str:
        return "" if self.where is None else f" where {self.where}"

    @property
    def output(self) -> str:
        """The name of the result column."""
        return (
            self.name if self.name is not None else f"{self.column}_{type(self).__name__.lower()}"
        )

    @abstractmethod
    def result_type(self, type: pa.DataType) -> pa.DataType:
        """The type of the results for a column of this type; raises ConfigurationError if it has none."""


NUMBERS = "whole numbers and floats; cast others to float64"
"""What most aggregates compute on, for messages."""

WIDE_SUM = pa.decimal128(38, 0)


@dataclass(frozen=True, slots=True)
class Sum(Aggregate):
    """The sum: int64 of integers and bools, uint64 of unsigned ones, else float64.

    A sum of integers that is beyond its range fails the job; with `overflow="widen"` sums of integers are
    decimals of 38 digits.
    """

    repeats: ClassVar = True

    overflow: Literal["error", "widen"] = "error"

    def __post_init__(self) -> None:
        if self.overflow not in ("error", "widen"):
            raise ConfigurationError(
                f"Sum of column {self.column!r}: overflow is 'error' or 'widen', not {self.overflow!r}"
            )

    def result_type(self, type: pa.DataType) -> pa.DataType:
        whole = pa.types.is_integer(type) or pa.types.is_boolean(type) or type == WIDE_SUM
        if whole and self.overflow == "widen":
            return WIDE_SUM
        if pa.types.is_unsigned_integer(type):
            return pa.uint64()
        if pa.types.is_integer(type) or pa.types.is_boolean(type):
            return pa.int64()
        if pa.types.is_floating(type):
            return pa.float64()
        if pa.types.is_null(type):
            return type
        raise unfit(self, type, NUMBERS)


@dataclass(frozen=True)
class Count(Aggregate):
    """How many records there are, or with a column how many of them have a value there."""

    repeats: ClassVar = True
    needs_column: ClassVar = False

    column: str | None = None

    def __init__(
        self,
        name: str = "count",
        column: str | None = None,
        *,
        where: pc.Expression | None = None,
    ) -> None:
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "where", where)

    def result_type(self, type: pa.DataType) -> pa.DataType:
        return pa.int64()


class _Extreme(Aggregate):
    repeats: ClassVar = True

    def result_type(self, type: pa.DataType) -> pa.DataType:
        if has_order(type):
            return type
        raise unfit(self, type, "numbers, bools, texts, bytes, dates and times")


class Min(_Extreme):
    """The least value; NaN is left out as null is."""


class Max(_Extreme):
    """The greatest value; NaN is left out as null is."""


class Mean(Aggregate):
    """The arithmetic mean, in float64."""

    repeats: ClassVar = True

    def result_type(self, type: pa.DataType) -> pa.DataType:
        if is_number(type):
            return pa.float64()
        raise unfit(self, type, NUMBERS)


class First(Aggregate):
    """The value that came first."""

    repeats: ClassVar = True

    def result_type(self, type: pa.DataType) -> pa.DataType:
        return type


class Last(Aggregate):
    """The value that came last."""

    repeats: ClassVar = True

    def result_type(self, type: pa.DataType) -> pa.DataType:
        return type


@dataclass(frozen=True)
class Fold(Aggregate):
    """An aggregate of one's own: subclass it and say how values are taken in, united and shown.

    `type` is that of the results. What `of` and `merge` return must be of types that can be stored (see
    the guide to operators). Once per key and batch `of` is called, never per record. A subclass may have
    an `__init__` of its own, which calls that of Fold and sets what it likes; it is pickled as a whole.
    """

    needs_column: ClassVar = False
    repeats: ClassVar = True
    in_one_order: ClassVar = False
    """Whether sets that it remembers have one order, however they grew; the runtime turns that on."""

    type: pa.DataType | None = None

    def __post_init__(self) -> None:
        """Refuse here what else only a worker would find, with the first batch."""
        overridden = type(self).result_type is not Fold.result_type
        if not overridden and not isinstance(self.type, pa.DataType):
            raise ConfigurationError(
                f"{type(self).__name__} of column {self.column!r}: say of which type its results are, "
                f"type=pa.int64() or the like, not {self.type!r}"
            )

    @abstractmethod
    def of(self, values: pa.Array) -> Any:
        """What there is to remember of these values of one key, in their order; nulls are among them."""

    @abstractmethod
    def merge(self, earlier: Any, later: Any) -> Any:
        """What there is to remember of both; must be associative."""

    def result(self, remembered: Any) -> Any:
        """The result, a value for a column of type `type`."""
        return remembered

    def result_type(self, type: pa.DataType) -> pa.DataType:
        assert self.type is not None  # Refused when it was made.
        return self.type


class Accumulated(Aggregate):
    """An aggregate that brings its own accumulator: one file, and a line in `minirt.aggregates`."""

    @abstractmethod
    def accumulator(self, type: pa.DataType) -> Accumulator:
        """An empty accumulator for a column of this type, for which `result_type` gives a type."""


def is_number(type: pa.DataType) -> bool:
    """Whether the values of such a column can be added up."""
    return any(check(type) for check in _NUMBERS)


def has_order(type: pa.DataType) -> bool:
    """Whether there is a least and a greatest of such values."""
    return any(check(type) for check in _ORDERED) and not pa.types.is_interval(type)


def at_least_one(kind: str, column: str | None, option: str, value: object) -> None:
    """Raise ConfigurationError unless the value is a whole number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(
            f"{kind} of column {column!r}: {option} must be a whole number above 0, got {value!r}"
        )


def whole_number(what: str, option: str, value: object, least: int, most: int) -> None:
    """Raise ConfigurationError unless the value is a whole number within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigurationError(
            f"{what}: {option} must be a whole number from {least} to {most}, got {value!r}"
        )


def unfit(aggregate: Aggregate, type: pa.DataType, wanted: str) -> ConfigurationError:
    kind = aggregate.__class__.__name__
    return ConfigurationError(
        f"{kind} of column {aggregate.column!r}: it is of type {type}, but {kind} is for {wanted}"
    )
