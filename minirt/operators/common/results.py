"""What operators share that run a user's process function: its context, and its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import GeneratorType
from typing import Any

import pyarrow as pa

from minirt.data.batch import Rows
from minirt.operators.common.base import Operator, OperatorContext

CHUNK_RECORDS = 512
"""How many results are collected before they are passed on: one record may have very many."""


class ContextOperator(Operator):
    """An operator that is itself the context which a user's process function sees."""

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        self.timestamp: int | None = None

    @property
    def processing_time(self) -> int:
        return self.ctx.processing_ms

    @property
    def subtask(self) -> int:
        return self.ctx.subtask

    def side(self, tag: str, record: Any) -> None:
        times = None if self.timestamp is None else [self.timestamp]
        self.ctx.side(tag)(Rows([self.ctx.custody.take(record)], times))


def nothing_returned(what: str) -> TypeError:
    """The error of a function that returned None where the next call needs a value."""
    return TypeError(
        f"the function of {what} returned None; return the value that it makes of the two, also if it has "
        "changed one of them"
    )


Produced = tuple[Any, Iterable[Any] | None, int | None]
"""A record, what a process function returned for it, and its time."""


def emit_results(produced: Iterable[Produced], ctx: OperatorContext) -> None:
    """Pass on the results of process functions, each with the time of the record it came from.

    A function may be a generator that yields very many for one record: they are passed on in chunks. It
    may go on to change what it has yielded: so that is taken first.
    """
    emit, take = ctx.emit, ctx.custody.take
    records: list[Any] = []
    times: list[int] = []
    for record, results, time in produced:  # noqa: B007 - `user_error` looks for the record.
        if results is None:
            continue
        for result in several(results):
            records.append(take(result))
            if time is not None:
                times.append(time)
            if len(records) == CHUNK_RECORDS:
                emit(Rows(records, times or None))
                records, times = [], []
    if records:
        emit(Rows(records, times or None))


_SEVERAL = frozenset((list, tuple, GeneratorType))
_SINGLE = (str, bytes, bytearray, memoryview, Mapping, pa.RecordBatch, pa.Table)


def several(results: Any) -> Any:
    """The results that a function returned for one record. Raises TypeError for None, or for one record."""
    kind = type(results)
    if kind in _SEVERAL:
        return results
    name = kind.__name__
    expected = (
        "was returned where several records are expected: return a list of records, [] for none,"
    )
    if results is None:
        raise TypeError(f"None {expected} or yield them")
    is_single = (
        isinstance(results, _SINGLE)
        or _is_table(kind)
        or not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__"))
    )
    if is_single or (isinstance(results, tuple) and hasattr(kind, "_fields")):
        an = "an" if name[0] in "aeiouAEIOU" else "a"
        raise TypeError(
            f"{an} {name} {expected} or yield them; return [...] around it if it is one record"
        )
    return results


def _is_table(kind: type) -> bool:
    """Tells a data frame, of whatever library: what it gives one by one are its columns, or their names."""
    return hasattr(kind, "__dataframe__") or (hasattr(kind, "columns") and hasattr(kind, "shape"))


def rows_with_times(rows: Rows) -> Iterable[tuple[Any, int | None]]:
    """Each record with its timestamp, None for all where the batch has none."""
    if rows.timestamps is None:
        return ((record, None) for record in rows.records)
    return zip(rows.records, rows.timestamps, strict=True)
