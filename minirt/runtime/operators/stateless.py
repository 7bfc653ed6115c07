"""Operators that keep no state: they look at each record alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from minirt.data.batch import Batch, Columns, Rows
from minirt.errors import UserCodeError
from minirt.functions import Process
from minirt.runtime.operators.base import Emit, Operator, OperatorContext, user_error
from minirt.runtime.operators.columns import check_names, to_columns

CHUNK_RECORDS = 512
"""How many results are collected before they are passed on: of one record there may be very many."""


class MapOperator(Operator):
    def __init__(self, ctx: OperatorContext, *functions: Any) -> None:
        super().__init__(ctx)
        self._functions = functions

    def process(self, batch: Batch, input_index: int) -> None:
        rows, function = batch.rows(), self._functions[input_index]
        try:
            records = [function(record) for record in rows.records]
        except Exception as error:
            raise user_error(self.ctx.label, error) from error
        self.ctx.emit(Rows(records, rows.timestamps))


class FilterOperator(Operator):
    def __init__(self, ctx: OperatorContext, predicate: Any) -> None:
        super().__init__(ctx)
        self._predicate = predicate

    def process(self, batch: Batch, input_index: int) -> None:
        rows, keep = batch.rows(), self._predicate
        records, times = rows.records, rows.timestamps
        kept_times = None
        try:
            if times is None:
                kept = [record for record in records if keep(record)]
            else:
                pairs = [
                    (record, time)
                    for record, time in zip(records, times, strict=True)
                    if keep(record)
                ]
                kept = [pair[0] for pair in pairs]
                kept_times = [pair[1] for pair in pairs]
        except Exception as error:
            raise user_error(self.ctx.label, error) from error
        if kept:
            self.ctx.emit(Rows(kept, kept_times))


class FlatMapOperator(Operator):
    """Passes its output on in chunks, so that one record may become very many."""

    def __init__(self, ctx: OperatorContext, *functions: Any) -> None:
        super().__init__(ctx)
        self._functions = functions

    def process(self, batch: Batch, input_index: int) -> None:
        rows, function = batch.rows(), self._functions[input_index]
        try:
            if rows.timestamps is None:
                self._flatten(rows.records, function)
            else:
                self._flatten_with_times(rows, function)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error

    def _flatten(self, records: list[Any], function: Any) -> None:
        produced = (result for record in records for result in function(record))
        while chunk := list(islice(produced, CHUNK_RECORDS)):
            self.ctx.emit(Rows(chunk))

    def _flatten_with_times(self, rows: Rows, function: Any) -> None:
        assert rows.timestamps is not None
        produced: Iterator[tuple[Any, int]] = (
            (result, time)
            for record, time in zip(rows.records, rows.timestamps, strict=True)
            for result in function(record)
        )
        while chunk := list(islice(produced, CHUNK_RECORDS)):
            self.ctx.emit(Rows([pair[0] for pair in chunk], [pair[1] for pair in chunk]))


class MapBatchesOperator(Operator):
    """Results take over the timestamps of their batch one by one, or all its newest one."""

    def __init__(self, ctx: OperatorContext, function: Any, format: str) -> None:
        super().__init__(ctx)
        self._function = function
        self._columns = format == "columns"

    def process(self, batch: Batch, input_index: int) -> None:
        if not len(batch):
            return
        if self._columns:
            self._process_columns(batch)
            return
        rows = batch.rows()
        try:
            results = self._function(rows.records)
        except Exception as error:
            raise user_error(self.ctx.label, error, rows.records) from error
        if not isinstance(results, list):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a list, not "
                f"{type(results).__name__}"
            )
        times = rows.timestamps
        if times is not None and len(results) != len(times):
            times = [max(times)] * len(results)
        if results:
            self.ctx.emit(Rows(results, times))

    def _process_columns(self, batch: Batch) -> None:
        columns = to_columns(batch, self.ctx.label)
        try:
            table = self._function(columns.table)
        except Exception as error:
            raise user_error(self.ctx.label, error, columns.table.schema.names) from error
        if not isinstance(table, pa.RecordBatch):
            raise UserCodeError(
                f"operator {self.ctx.label}: map_batches must return a pyarrow.RecordBatch, not "
                f"{type(table).__name__}"
            )
        try:
            check_names(table)
        except ValueError as error:
            raise UserCodeError(f"operator {self.ctx.label}: map_batches: {error}") from error
        times = columns.timestamps
        if times is not None and table.num_rows != len(times):
            times = times.max().repeat(table.num_rows)
        if table.num_rows:
            self.ctx.emit(Columns(table, times))


class ContextOperator(Operator):
    """An operator that is itself the context which a user's process function sees."""

    def __init__(self, ctx: OperatorContext) -> None:
        super().__init__(ctx)
        self.timestamp: int | None = None

    @property
    def processing_time(self) -> int:
        return int(self.ctx.now() * 1000)

    @property
    def subtask(self) -> int:
        return self.ctx.subtask

    def side(self, tag: str, record: Any) -> None:
        times = None if self.timestamp is None else [self.timestamp]
        self.ctx.side(tag)(Rows([record], times))


class ProcessOperator(ContextOperator):
    """Runs a user's Process."""

    def __init__(self, ctx: OperatorContext, process: Process) -> None:
        super().__init__(ctx)
        self._process = process

    def open(self) -> None:
        self._process.open()

    def close(self) -> None:
        self._process.close()

    def process(self, batch: Batch, input_index: int) -> None:
        try:
            emit_results(self._results(batch.rows()), self.ctx.emit)
        except Exception as error:
            raise user_error(self.ctx.label, error) from error

    def _results(self, rows: Rows) -> Iterator[Produced]:
        process = self._process.process
        for record, time in rows_with_times(rows):
            self.timestamp = time
            yield record, process(record, self), time


Produced = tuple[Any, Iterable[Any] | None, int | None]
"""A record, what a process function returned for it, and its time."""


def emit_results(produced: Iterable[Produced], emit: Emit) -> None:
    """Pass on the results of process functions, each with the time of the record it came from.

    A function may be a generator that yields very many for one record: they are passed on in chunks.
    """
    records: list[Any] = []
    times: list[int] = []
    for record, results, time in produced:  # noqa: B007 - `user_error` looks for the record.
        if results is None:
            continue
        for result in results:
            records.append(result)
            if time is not None:
                times.append(time)
            if len(records) == CHUNK_RECORDS:
                emit(Rows(records, times or None))
                records, times = [], []
    if records:
        emit(Rows(records, times or None))


def rows_with_times(rows: Rows) -> Iterable[tuple[Any, int | None]]:
    """Each record with its timestamp, None for all where the batch has none."""
    if rows.timestamps is None:
        return ((record, None) for record in rows.records)
    return zip(rows.records, rows.timestamps, strict=True)
