"""State from data that no job has processed: what a savepoint is made of in place of a run.

The data comes in batches of columns: those of the key, and one for each state or result. A null says that
the key has nothing there. Types are checked before anything is read; a key may come once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates import Aggregate, Count, First, Last, Max, Mean, Min, Sum
from minirt.data.batch import Columns, dicts_of
from minirt.data.errors import UnsupportedRecordError
from minirt.data.keys import check_key_type, distinct_keys, exact_keys, group_columns
from minirt.data.simple_columns import simple, simple_type
from minirt.errors import ConfigurationError
from minirt.graph.keys import KeySelector
from minirt.operators.common.keyed import named
from minirt.state.array_slots import RepeatedKeyError
from minirt.state.array_table import ArrayTable
from minirt.state.handles import Handle, ListState, MapState
from minirt.state.keyed import KeyedState
from minirt.state.kinds_of_state import KindsOfState
from minirt.state.sections import Section, section_bytes
from minirt.state.stored import AGGREGATED, STATE

Selectors = Sequence[KeySelector | None]

_MEAN = pa.struct([("sum", pa.float64()), ("count", pa.int64())])


@dataclass(frozen=True, slots=True)
class StateFilling(ABC):
    """Makes the state of one operator. It travels by pickle to whoever makes a part."""

    label: str
    selectors: Selectors

    def check(self, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise ConfigurationError for columns that are missing, too many or of a wrong type."""
        columns = {selector.columns for selector in self.selectors if selector is not None}
        if columns - {()} and tuple(key) not in columns:
            keyed = " or ".join(", ".join(names) for names in sorted(columns - {()}))
            raise self.refused(f"its key is {keyed}, not {', '.join(key)}")
        names = schema.names
        missing = [name for name in (*key, *self._required) if name not in names]
        strange = [name for name in names if name not in key and name not in self._known]
        if missing or strange or len(set(names)) < len(names) or len(names) == len(key):
            said = [f"no column {name!r}" for name in missing]
            said += [f"nothing for column {name!r} to fill" for name in strange]
            raise self.refused(
                f"{', '.join(said) or 'columns are missing or have one name'}; it takes the key and "
                f"{', '.join(self._known)}, and got {', '.join(names)}"
            )
        for name in key:
            reason = check_key_type(schema.field(name).type)
            if reason is not None:
                raise self.refused(f"column {name!r}: {reason}")
        for name in names:
            if name not in key:
                self._check_type(name, simple_type(schema.field(name).type))

    @abstractmethod
    def sections(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], groups: range, most: int
    ) -> Mapping[str, bytes]:
        """The sections of the subtask that owns these of `most` key groups, filled with its rows.

        Raises ConfigurationError for a key that comes again, and for values that no state can hold.
        """

    @property
    @abstractmethod
    def _known(self) -> Collection[str]:
        """The columns besides the key that can fill something."""

    @property
    @abstractmethod
    def _required(self) -> Collection[str]:
        """Those that must be there."""

    @abstractmethod
    def _check_type(self, name: str, type: pa.DataType) -> None:
        """Raise ConfigurationError unless a column of this type can fill what is called so."""

    def refused(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"the state of operator {self.label} cannot be filled: {what}")

    def repeated(self, key: Any) -> ConfigurationError:
        return self.refused(f"the key {key!r} comes more than once; bring its rows together first")


def groups_of(
    batch: pa.RecordBatch, key: Sequence[str], max_parallelism: int
) -> npt.NDArray[np.int64]:
    """The key group of each row, as all of minirt tells it."""
    columns = [simple(batch.column(name)) for name in key]
    return group_columns(columns, max_parallelism).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ValuesFilling(StateFilling):
    """Fills states of Python objects; `states` tells what each is called, and its kind."""

    states: Mapping[str, type[Handle]]

    @property
    def _known(self) -> Collection[str]:
        return self.states

    @property
    def _required(self) -> Collection[str]:
        return ()

    def _check_type(self, name: str, type: pa.DataType) -> None:
        kind = self.states[name]
        fits, wanted = _FITTING.get(kind, (None, ""))
        if fits is not None and not fits(type):
            raise self.refused(
                f"column {name!r} is of type {type}; a {kind.__name__} takes {wanted}"
            )

    def sections(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], groups: range, most: int
    ) -> Mapping[str, bytes]:
        state = KeyedState(most, groups)
        tables = {name: state.table(name) for name in self.states}
        seen: set[Any] = set()
        try:
            for batch in batches:
                rows = dicts_of(batch)
                keys = [*map(KeySelector(tuple(key)).on_rows(), rows)]
                keys = distinct_keys(exact_keys(keys, Columns(batch), key))
                for own in keys:
                    if own in seen:
                        raise self.repeated(own)
                    seen.add(own)
                for name in tables.keys() & {*batch.schema.names} - {*key}:
                    tables[name].update(self._entries(name, keys, rows))
            kinds = {name: kind.__name__ for name, kind in self.states.items()}
            sections = named(STATE, state.snapshot())
            return _made(KindsOfState(self.label, kinds).beside(sections))
        except UnsupportedRecordError as error:
            raise self.refused(str(error)) from error

    def _entries(
        self, name: str, keys: Sequence[Any], rows: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[Any, Any]]:
        """Keys with what they have in a state; empty lists and maps take no room."""
        made = {ListState: list, MapState: dict}.get(self.states[name])
        for key, row in zip(keys, rows, strict=True):
            value = row[name]
            if value is None or (made is not None and not value):
                continue
            yield key, value if made is None else made(value)


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


_FITTING: Mapping[type[Handle], tuple[Callable[[pa.DataType], bool], str]] = {
    ListState: (_is_list, "an array"),
    MapState: (pa.types.is_map, "a map"),
}
"""What a column must be that fills a state of this kind; any will do for a value."""


@dataclass(frozen=True, slots=True)
class AggregatesFilling(StateFilling):
    """Fills what aggregates of columns have come to; `output` are the columns of results, if known.

    `pending` says that no result was given out yet, though all are due.
    """

    aggregates: Sequence[Aggregate]
    output: pa.Schema | None
    pending: bool

    def check(self, key: Sequence[str], schema: pa.Schema) -> None:
        for aggregate in self.aggregates:
            if type(aggregate) not in _FILLED:
                able = ", ".join(kind.__name__ for kind in _FILLED)
                raise self.refused(
                    f"{aggregate.output!r} is a {type(aggregate).__name__}, which remembers more than its "
                    f"results; {able} can be filled"
                )
        super(AggregatesFilling, self).check(key, schema)
        if self.output is None:
            return
        for name in key:
            wanted, found = self.output.field(name).type, simple_type(schema.field(name).type)
            if found != wanted:
                raise self.refused(
                    f"column {name!r} is of type {found}, the key of the job {wanted}"
                )

    @property
    def _known(self) -> Collection[str]:
        return [aggregate.output for aggregate in self.aggregates]

    @property
    def _required(self) -> Collection[str]:
        return self._known

    def _check_type(self, name: str, type: pa.DataType) -> None:
        aggregate = next(one for one in self.aggregates if one.output == name)
        wanted = self._wanted(aggregate, type)
        if type != wanted:
            raise self.refused(
                f"column {name!r} is of type {type}; a {aggregate.__class__.__name__} takes {wanted}"
            )

    def _wanted(self, aggregate: Aggregate, type: pa.DataType) -> pa.DataType:
        if isinstance(aggregate, Mean):
            return _MEAN
        if self.output is not None:
            return self.output.field(aggregate.output).type
        try:
            return aggregate.result_type(type)
        except ConfigurationError as error:
            raise self.refused(str(error)) from error

    def sections(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], groups: range, most: int
    ) -> Mapping[str, bytes]:
        table = ArrayTable(key, self.aggregates, self.label)
        for batch in batches:
            if not batch.num_rows:
                continue
            held = [self._held(one, simple(batch.column(one.output))) for one in self.aggregates]
            keys = [simple(batch.column(name)) for name in key]
            try:
                slots = table.fill(keys, held)
            except RepeatedKeyError as error:
                values = [column[error.row].as_py() for column in keys]
                raise self.repeated(values[0] if len(values) == 1 else tuple(values)) from error
            if self.pending:
                table.hold_back(slots)
        section = table.snapshot()
        return {} if section is None else _made({AGGREGATED: section})

    def _held(self, aggregate: Aggregate, column: pa.Array) -> list[pa.Array]:
        """What the accumulator of the aggregate stores, from what the user gives."""
        if isinstance(aggregate, Mean):
            return [pc.fill_null(part, 0) for part in column.flatten()]
        if isinstance(aggregate, Count):
            return [pc.fill_null(column, 0)]
        if pa.types.is_floating(column.type) and isinstance(aggregate, Min | Max):
            return [pc.if_else(pc.is_nan(column), None, column)]
        return [column]


_FILLED = (Sum, Count, Min, Max, Mean, First, Last)
"""The aggregates whose whole state their results tell, with a count in the case of the mean."""


def _made(sections: Mapping[str, Section]) -> dict[str, bytes]:
    return {name: section_bytes(section) for name, section in sections.items()}
