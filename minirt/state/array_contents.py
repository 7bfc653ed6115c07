"""The content of a table of array state, once the types of its columns are known, and how it gets known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.aggregates import Aggregate, CountDistinct
from minirt.data.errors import UnlikeTypesError
from minirt.data.keys import check_key_type
from minirt.data.unify import unified_type, widened
from minirt.errors import ConfigurationError, UserCodeError
from minirt.kernels.contract import Slots
from minirt.state.accumulator import Accumulator
from minirt.state.accumulators import Arrivals, accumulator
from minirt.state.key_index import KeyIndex
from minirt.state.numbers import Mask
from minirt.state.slot_arrays import SlotArrays

Times = npt.NDArray[np.int64]

_BEFORE_ALL = np.iinfo(np.int64).min


class Marks(SlotArrays):
    """What a table knows of each key besides its aggregates."""

    def __init__(self) -> None:
        super().__init__([(np.int64, _BEFORE_ALL), (np.bool_, False), (np.bool_, False)])

    @property
    def times(self) -> Times:
        """The event time of the newest record."""
        return self._arrays[0]

    @property
    def pending(self) -> Mask:
        """Whether the result has changed since it was given out."""
        return self._arrays[1]

    @property
    def gone(self) -> Mask:
        """Whether the key was dropped. It is still listed, until slots are moved together."""
        return self._arrays[2]

    def begin_anew(self, slots: Slots) -> None:
        """There are no records any more."""
        self.times[slots] = _BEFORE_ALL
        self.pending[slots] = False


@dataclass(slots=True)
class Contents:
    """Keys and accumulators, with the types of the columns that these were made for."""

    key_types: list[pa.DataType]
    value_types: list[pa.DataType]
    result_types: list[pa.DataType]
    index: KeyIndex
    accumulators: list[Accumulator]

    def is_of(self, keys: Sequence[pa.Array], values: Sequence[pa.Array]) -> bool:
        """Whether columns are of the very types that these contents were made for."""
        return [array.type for array in keys] == self.key_types and [
            array.type for array in values
        ] == self.value_types

    def change_value_type(
        self, place: int, type: pa.DataType, result: pa.DataType, held: Accumulator
    ) -> None:
        """A column of values turns out to be of this type, which is wider than that so far.

        The accumulator for that takes over what the one before holds. Of nothing but nulls that is nothing.
        Raises UnlikeTypesError for what it holds and the new one cannot hold exactly.
        """
        before = self.value_types[place]
        if not pa.types.is_null(before):
            if not held.takes_over_from(before, type):
                raise UnlikeTypesError("", before, type)
            slots = np.arange(len(self.index))
            held.make_room(len(slots))
            held.load(slots, self.accumulators[place].stored(slots))
        self.accumulators[place] = held
        self.value_types[place], self.result_types[place] = type, result

    def reserve(self, count: int) -> None:
        """Make room at once for so many keys, which are to come soon."""
        self.index.reserve(count)
        for held in self.accumulators:
            held.reserve(count)

    def change_key_type(self, place: int, type: pa.DataType) -> None:
        """A key column turns out to be of this type, which is wider than that so far.

        Raises UnlikeTypesError for a key that is none of this type.
        """
        self.key_types[place] = type
        self.index.change_type(place, type)


@lru_cache
def _is_made_of_objects(type: pa.DataType) -> bool:
    try:
        pa.array([], type)
    except pa.ArrowNotImplementedError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table is made of: the first `routing` key columns tell the key group."""

    keys: Sequence[str]
    aggregates: Sequence[Aggregate]
    label: str
    routing: int
    arrivals: Arrivals | None

    def begin(
        self, key_types: Sequence[pa.DataType], value_types: Sequence[pa.DataType]
    ) -> Contents:
        """Empty contents. An aggregate can compute a result also from a column of its result's type."""
        for name, type in zip(self.keys, key_types, strict=True):
            problem = check_key_type(type)
            if problem is not None:
                raise UserCodeError(f"operator {self.label}: column {name!r}: {problem}")
        pairs = list(zip(self.aggregates, value_types, strict=True))
        return Contents(
            list(key_types),
            list(value_types),
            [self.result_type(aggregate, type) for aggregate, type in pairs],
            KeyIndex(key_types),
            [self.accumulator(aggregate, type) for aggregate, type in pairs],
        )

    def unfitting(
        self, contents: Contents, keys: list[pa.Array], values: list[pa.Array]
    ) -> tuple[dict[int, pa.DataType], dict[int, pa.DataType]]:
        """Which columns of keys and of values get which wider types, so that they hold these as well.

        `keys` and `values` become columns of the types that there are then. A column of nothing but nulls
        may have no type of its own: it takes the known one, or it is the known one that waits for a
        better. Raises UserCodeError for columns and values that do not go with those before.
        """
        late_keys: dict[int, pa.DataType] = {}
        late_values: dict[int, pa.DataType] = {}
        for place, (known, array) in enumerate(zip(contents.key_types, keys, strict=True)):
            if array.type == known:
                continue
            name = self.keys[place]
            type = self._common(f"key column {name!r}", name, known, array.type)
            problem = check_key_type(type)
            if problem is not None:
                raise UserCodeError(f"operator {self.label}: column {name!r}: {problem}")
            keys[place] = self.widened(array, type, name)
            if type != known:
                late_keys[place] = type
        for place, (aggregate, array) in enumerate(zip(self.aggregates, values, strict=True)):
            before = contents.value_types[place]
            if array.type == before or self._takes_any(aggregate, contents, place, array.type):
                continue
            type = self._common_values(aggregate, before, array.type)
            values[place] = self._widened_values(aggregate, array, type)
            if type != before:
                late_values[place] = type
        return late_keys, late_values

    def _takes_any(
        self, aggregate: Aggregate, contents: Contents, place: int, type: pa.DataType
    ) -> bool:
        """Whether the accumulator that there is computes the same from a column of this type."""
        # What differs in values of one result type is told apart by their number, whatever its unit.
        if isinstance(aggregate, CountDistinct) or len(aggregate.inputs) > 1:
            return False
        return bool(self.result_type(aggregate, type) == contents.result_types[place])

    def _common_values(
        self, aggregate: Aggregate, known: pa.DataType, type: pa.DataType
    ) -> pa.DataType:
        what = f"column {aggregate.column!r}: its {aggregate.output!r}"
        if len(aggregate.inputs) < 2 or pa.types.is_null(known) or pa.types.is_null(type):
            return self._common(what, str(aggregate.column), known, type)
        by = f"column {aggregate.inputs[1]!r}, by which {aggregate.output!r} goes,"
        parts = [
            self._common(of, name, known.field(part).type, type.field(part).type)
            for part, (of, name) in enumerate(zip((what, by), aggregate.inputs, strict=True))
        ]
        return pa.struct([*zip(("value", "by"), parts, strict=True)])

    def accumulator(self, aggregate: Aggregate, type: pa.DataType) -> Accumulator:
        return accumulator(aggregate, type, self.arrivals)

    def result_type(self, aggregate: Aggregate, type: pa.DataType) -> pa.DataType:
        try:
            result = aggregate.result_type(type)
        except ConfigurationError as error:
            raise UserCodeError(f"operator {self.label}: {error}") from error
        if not _is_made_of_objects(result):
            raise UserCodeError(
                f"operator {self.label}: column {aggregate.column!r}: its {aggregate.output!r} would be of "
                f"type {result}, of which Arrow makes no columns of single values; cast the column"
            )
        return result

    def _widened_values(self, aggregate: Aggregate, array: pa.Array, type: pa.DataType) -> pa.Array:
        if len(aggregate.inputs) < 2 or pa.types.is_null(array.type):
            return self.widened(array, type, str(aggregate.column))
        parts = [
            self.widened(array.field(place), type.field(place).type, name)
            for place, name in enumerate(aggregate.inputs)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(type))

    def widened(self, array: pa.Array, type: pa.DataType, column: str) -> pa.Array:
        """As `unify.widened`. Raises UserCodeError."""
        try:
            return widened(array, type, column)
        except UnlikeTypesError as error:
            raise UserCodeError(f"operator {self.label}: {error}") from error

    def _common(self, what: str, column: str, known: pa.DataType, type: pa.DataType) -> pa.DataType:
        """The type of a column that was of the known type so far, and is of another one in a batch."""
        try:
            # A dict or struct that gets more fields would not come out as it went in.
            return unified_type(known, type, column, missing_fields=False)
        except UnlikeTypesError as error:
            raise UserCodeError(
                f"operator {self.label}: {what} was of type {known} so far and is of type {type} in "
                "a batch; cast the column to one type"
            ) from error
