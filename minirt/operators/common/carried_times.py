"""Tells which event time each result of a function of batches has, where the function does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import is_, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns
from minirt.errors import SourceDataError
from minirt.operators.event_time import column_ms
from minirt.units import event_time_ms

Times = npt.NDArray[np.int64]
Rows = Callable[[], list[Any]]
"""Gives records as dicts."""


class NotTold(Exception):
    """Nothing tells which event time the results have."""


_VALUES = (int, float, complex, str, bytes, bool, Enum, type, type(None))
"""Types whose objects stand for equal ones: that one is the same object as another says nothing."""

_PLAIN_VALUES = frozenset({int, float, complex, str, bytes, bool, type(None)})
"""Some of these types: a batch that holds no other is not searched for records that were given."""


def times_of_columns(given: Columns, result: pa.RecordBatch) -> Times:
    """The event times of the rows of a result. Raises NotTold.

    A column that holds the event time of each record it was given tells it, if the result has it: so rows
    may be left out, repeated or sorted. Otherwise there must be as many rows, which are in their order.
    """
    times = given.timestamps
    assert times is not None
    found = {}
    for name in _columns_with(given.table, times):
        if name in result.schema.names and (column := _ms(result, name)) is not None:
            found[name] = column
    return _settled(times, result.num_rows, found, given.table.to_pylist, result.to_pylist)


class RowTimes:
    """What tells the event times of the results of a function that is given these records.

    To be made before the function is called, which may change the records and the list.
    """

    def __init__(self, records: list[Any], times: list[int]) -> None:
        self._records = [*records]
        self._times = times
        first = records[0]
        names = (
            [name for name, value in first.items() if _is(value, times[0])] if _plain(first) else []
        )
        self._fields = {name: _fields(records, name) for name in names}

    def of(self, results: list[Any]) -> list[int]:
        """The event times of the results. Raises NotTold.

        A record that was given has its own. New ones are like rows of columns, see `times_of_columns`.
        """
        records, times = self._records, self._times
        count = len(results)
        if count == len(records) and all(map(is_, records, results)):
            return [*times]
        if set(map(type, records)) <= _PLAIN_VALUES:
            return self._by_fields(results, in_order=True)
        known = set(map(id, records))
        if len(known) == len(records) and not known.isdisjoint(map(id, results)):
            places = dict(zip(map(id, records), range(len(records)), strict=True))
            hits = [places.get(id(result), -1) for result in results]
            own = [hit < 0 or not isinstance(records[hit], _VALUES) for hit in hits]
            if min(hits) >= 0 and all(own):
                return [times[hit] for hit in hits]
            if any(
                o and hit >= 0 and hit != place
                for place, (o, hit) in enumerate(zip(own, hits, strict=True))
            ):
                return self._by_fields(results, in_order=False)
        return self._by_fields(results, in_order=True)

    def _by_fields(self, results: list[Any], *, in_order: bool) -> list[int]:
        fields = [
            (name, before, after)
            for name, before in self._fields.items()
            if before is not None and (after := _fields(results, name)) is not None
        ]
        if in_order and len(results) == len(self._times) and all(b == a for _, b, a in fields):
            return [*self._times]  # Whichever of them was the event time, it is as before.
        known = np.array(self._times, np.int64)
        found = {}
        for name, before, after in fields:
            if before != self._times and not _are(before, known):
                continue
            if after == before:
                return [*self._times]
            told = _all_ms(after)
            if told is not None:
                found[name] = told
        if not in_order and not found:
            raise NotTold
        settled = _settled(known, len(results), found, lambda: self._records, lambda: results)
        result: list[int] = settled.tolist()
        return result


def _settled(
    times: Times, count: int, found: Mapping[str, Times], before: Rows, after: Rows
) -> Times:
    """The event times of so many results; `found` are fields of them that were the event time before."""
    told = found.values()
    if count == len(times) and any(np.array_equal(one, times) for one in told):
        return times
    for name, one in found.items():
        if not np.isin(one, times).all():
            continue
        if count != len(times) or np.array_equal(np.sort(one), np.sort(times)):
            return one
        # Some were repeated and as many left out, or the field was changed where it is.
        given, results = before(), after()
        if _other_fields_as_before(name, given, results):
            return times
        if _are_among(results, given, one, times):
            return one
        raise NotTold
    if count != len(times):
        raise NotTold
    return times


def _other_fields_as_before(name: str, given: list[Any], results: list[Any]) -> bool:
    """Whether each result is like the record at its place, but for this field."""
    return any(
        result.keys() & record.keys() - {name}
        for record, result in zip(given, results, strict=True)
    ) and all(
        record[other] == result[other]
        for record, result in zip(given, results, strict=True)
        for other in result.keys() & record.keys() - {name}
    )


def _are_among(results: list[Any], given: list[Any], told: Times, times: Times) -> bool:
    """Whether each result is like a record of its time, in all fields that both have."""
    of_time: dict[int, list[Any]] = {}
    for record, time in zip(given, times.tolist(), strict=True):
        of_time.setdefault(time, []).append(record)
    return all(
        any(
            all(record[field] == result[field] for field in result.keys() & record.keys())
            for record in of_time[time]
        )
        for result, time in zip(results, told.tolist(), strict=True)
    )


def _columns_with(table: pa.RecordBatch, times: Times) -> list[str]:
    """The columns that hold these times."""
    found = []
    for name in table.schema.names:
        kind = table.schema.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)):
            continue
        if _may_be(table.column(name)[0], int(times[0])):
            column = _ms(table, name)
            if column is not None and np.array_equal(column, times):
                found.append(name)
    return found


def _may_be(value: pa.Scalar, time: int) -> bool:
    """Whether a value may stand for this time: a quick look before a whole column is compared."""
    if not value.is_valid:
        return False
    return not pa.types.is_integer(value.type) or value.as_py() == time


def _ms(table: pa.RecordBatch, name: str) -> Times | None:
    try:
        return column_ms(table.column(name), name)
    except SourceDataError:
        return None


def _all_ms(values: Sequence[Any]) -> Times | None:
    """Values as event times; None if any of them is none."""
    try:
        return np.array([event_time_ms(value) for value in values], np.int64)
    except (TypeError, OverflowError):
        return None


def _are(values: Sequence[Any], times: Times) -> bool:
    found = _all_ms(values)
    return found is not None and np.array_equal(found, times)


def _is(value: object, time: int) -> bool:
    try:
        return event_time_ms(value) == time
    except (TypeError, OverflowError):
        return False


def _plain(record: Any) -> bool:
    return isinstance(record, Mapping)


def _fields(records: Sequence[Any], name: str) -> list[Any] | None:
    """A field of all records; None unless they all have it."""
    try:
        return [*map(itemgetter(name), records)]
    except (KeyError, TypeError, IndexError):
        return None
