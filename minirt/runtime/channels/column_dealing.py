"""Columns on their way into a link: gathered until they make frames, then dealt to its receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns, concat_columns
from minirt.data.keys import (
    UnstableKeyError,
    check_key_type,
    group_columns,
    key_groups,
    subtask_of_group,
)
from minirt.errors import UserCodeError
from minirt.graph.execution import Link
from minirt.graph.job_graph import Custom, Hash
from minirt.operators.common.base import user_error

Targets = npt.NDArray[np.unsignedinteger[Any]]
"""For each record of a batch, the index of its receiver."""


class Gathered:
    """Batches of one schema, held until they are worth being dealt."""

    __slots__ = ("_batches", "bytes", "records", "since")

    def __init__(self) -> None:
        self._batches: list[Columns] = []
        self.bytes = 0
        self.records = 0
        self.since: float | None = None
        """When the oldest one came in; None while there is none."""

    def fits(self, batch: Columns) -> bool:
        """Whether the batch can follow in the same frame: same columns, and timestamps or none."""
        if not self._batches:
            return True
        last = self._batches[-1]
        timed = batch.timestamps is not None
        return timed is (last.timestamps is not None) and batch.table.schema.equals(
            last.table.schema, check_metadata=True
        )

    def add(self, batch: Columns, now: float) -> None:
        self._batches.append(batch)
        self.bytes += batch.table.nbytes
        self.records += len(batch)
        if self.since is None:
            self.since = now

    def take(self) -> list[Columns]:
        """All that is held, in order, as few batches as possible."""
        batches, self._batches = self._batches, []
        self.bytes, self.records, self.since = 0, 0, None
        return concat_columns(batches) if batches else []


class ColumnRouter:
    """Finds the receivers of records in columns, for a link that deals by key or by a function.

    Methods raise UserCodeError, naming the operator by `label`, for keys that cannot be had or hashed
    and for what a user's function does wrong.
    """

    def __init__(self, link: Link, label: str) -> None:
        self._label = label
        self._receivers = link.receivers
        self._max_parallelism = link.max_parallelism
        self._checked: pa.Schema | None = None
        self._choose: Callable[[Any, int], int] | None = None
        match link.partitioning:
            case Hash(key):
                self._key = key
            case Custom(function, key):
                self._key, self._choose = key, function
            case other:
                raise TypeError(f"{other} deals without looking at records")
        groups, count = range(link.max_parallelism), link.receivers
        owners = [subtask_of_group(group, count, link.max_parallelism) for group in groups]
        # The smaller the type, the fewer passes it takes to sort by it.
        self._owners = np.array(owners, np.min_scalar_type(count - 1))

    def check(self, table: pa.RecordBatch) -> None:
        """Refuse keys that have no hash: columns by their type, a function by its first result."""
        if self._key.function is None:
            self._check_columns(table.schema)
        else:
            self._groups_by_function(self._key.function, table.slice(0, 1))

    def targets(self, table: pa.RecordBatch) -> Targets:
        """The index of the receiver of each record."""
        if self._choose is not None:
            return self._chosen(self._choose, table)
        if self._key.function is not None:
            return self._owners[self._groups_by_function(self._key.function, table)]
        self._check_columns(table.schema)
        columns = [table.column(name) for name in self._key.columns]
        return self._owners[group_columns(columns, self._max_parallelism)]

    def _check_columns(self, schema: pa.Schema) -> None:
        if schema is self._checked or schema == self._checked:
            return
        self._check_present(schema)
        for name in self._key.columns:
            problem = check_key_type(schema.field(name).type)
            if problem is not None:
                raise UserCodeError(
                    f"operator {self._label}: column {name!r}, key of the next operator: {problem}"
                )
        self._checked = schema

    def _check_present(self, schema: pa.Schema) -> None:
        for name in self._key.columns:
            if name not in schema.names:
                raise UserCodeError(
                    f"operator {self._label}: there is no column {name!r}, key of the next "
                    f"operator; it emits {', '.join(schema.names)}"
                )

    def _groups_by_function(
        self, key_of: Callable[[Any], Any], table: pa.RecordBatch
    ) -> npt.NDArray[np.int64]:
        label = f"{self._label}, key of the next operator,"
        record = None
        try:
            keys = []
            for record in table.to_pylist():
                keys.append(key_of(record))
            return key_groups(keys, self._max_parallelism)
        except UnstableKeyError as error:
            raise UserCodeError(f"operator {label} failed: {error}") from error
        except Exception as error:
            raise user_error(label, error, record) from error

    def _chosen(self, choose: Callable[[Any, int], int], table: pa.RecordBatch) -> Targets:
        key = None
        try:
            chosen = []
            for key in self._keys(table):
                chosen.append(choose(key, self._receivers))
        except Exception as error:
            raise user_error(f"{self._label}, partitioner,", error, key) from error
        check_chosen(chosen, self._receivers, self._label)
        return np.array(chosen, self._owners.dtype)

    def _keys(self, table: pa.RecordBatch) -> Iterable[Any]:
        """The keys as a function of the user gets them: as of the same records in rows."""
        if self._key.function is not None:
            return map(self._key.function, table.to_pylist())
        self._check_present(table.schema)
        columns = [table.column(name).to_pylist() for name in self._key.columns]
        return columns[0] if len(columns) == 1 else zip(*columns, strict=True)


def check_chosen(chosen: Iterable[Any], receivers: int, label: str) -> None:
    """Raise UserCodeError unless a partitioner returned indexes of receivers."""
    for target in set(chosen):
        if not (isinstance(target, int) and 0 <= target < receivers):
            raise UserCodeError(
                f"operator {label}: the partitioner returned {target!r}; it must return an index "
                f"from 0 to {receivers - 1}"
            )


def dealt(batch: Columns, targets: Targets, receivers: int) -> Iterator[tuple[int, Columns]]:
    """The part of each receiver that gets any, in the order of the batch."""
    counts = np.bincount(targets, minlength=receivers)
    if counts.max() == len(batch):
        yield int(targets[0]), batch
        return
    ordered = batch.take(np.argsort(targets, kind="stable"))
    ends = np.cumsum(counts).tolist()
    for receiver, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        if start < stop:
            yield receiver, ordered.slice(start, stop)


def in_turn(batch: Columns, first: int, receivers: int) -> Iterator[tuple[int, Columns]]:
    """Runs of nearly equal length; the receivers that get one record more come from `first` on."""
    least, more = divmod(len(batch), receivers)
    start = 0
    for place in range(min(receivers, len(batch))):
        stop = start + least + (place < more)
        yield (first + place) % receivers, batch.slice(start, stop)
        start = stop
