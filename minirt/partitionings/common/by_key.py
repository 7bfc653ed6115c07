"""Partitionings that deal each record by its key alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from minirt.data.batch import Columns, Rows, dicts_of
from minirt.data.simple_columns import in_microseconds
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.partitioning import Partitioning, Wiring
from minirt.operators.common.base import shown, user_error
from minirt.operators.common.checks import check_column
from minirt.operators.common.functions import check_function
from minirt.partitionings.common.dealing import (
    Dealer,
    DealingSite,
    check_present,
    check_targets,
    scatter,
    split,
)
from minirt.protocol.topology import InFlight, Order


class KeyPartitioning(Partitioning, ABC):
    """Deals each record by its key: what it looks at, whatever that is, and nothing else.

    A subclass says, besides its `name`:

    `key`     how the key of a record is found
    `pure`    whether the same key goes to the same of as many receivers, always and everywhere; no
              barrier overtakes records that are dealt otherwise, as nobody could deal them again

    and in `targets` where keys go.
    """

    wiring: ClassVar = Wiring.ALL_TO_ALL
    unchained: ClassVar[str | None] = "records go where their key sends them"

    if TYPE_CHECKING:  # A property here would be the default of a field there.

        @property
        def key(self) -> KeySelector: ...

        @property
        def pure(self) -> bool: ...

    @classmethod
    def facts(cls) -> tuple[str, ...]:
        return (*super().facts(), "pure", "targets")

    @abstractmethod
    def targets(self, keys: Sequence[Any], receivers: int) -> Sequence[int]:
        """For each key the index of its receiver, from 0 to below `receivers`: a sequence or an array."""

    def column_targets(self, columns: Sequence[pa.Array], receivers: int) -> Sequence[int]:
        """As `targets`, for keys in columns of equal length: to be overridden where arrays are quicker."""
        values = [in_microseconds(column).to_pylist() for column in columns]
        keys = values[0] if len(values) == 1 else [*zip(*values, strict=True)]
        return self.targets(keys, receivers)

    @property
    def in_flight(self) -> InFlight:
        return InFlight.DEALT_AGAIN if self.pure else InFlight.UNCAPTURED

    def order(self, senders: int, receivers: int) -> Order:
        return Order.BY_KEY if self.pure else Order.NONE

    def identity(self, max_parallelism: int) -> object:
        return (type(self).targets, type(self).column_targets, self)

    def check(self, schema: pa.Schema | None, label: str) -> None:
        if self.key.function is not None:
            check_function(self.key.function, label, "the record")
        for column in self.key.columns:
            check_column(column, schema, label)

    def among(self, site: DealingSite) -> Dealer:
        return KeyDealer(self, site)


class KeyDealer(Dealer):
    """Asks the partitioning for the receivers of a batch's keys."""

    def __init__(self, partitioning: KeyPartitioning, site: DealingSite) -> None:
        self._partitioning = partitioning
        self._key = partitioning.key
        self._key_of = partitioning.key.on_rows()
        self._buffers = site.buffers
        self._label = site.label

    def rows(self, rows: Rows) -> None:
        count, records = len(self._buffers), rows.records
        try:
            targets = self._partitioning.targets([*map(self._key_of, records)], count)
        except Exception as error:
            raise self._failed(error, records, self._key_of) from error
        scatter(rows, check_targets(targets, len(records), count, self._label), self._buffers)

    def columns(self, batch: Columns) -> Iterable[tuple[int, Columns]]:
        count, table, function = len(self._buffers), batch.table, self._key.function
        targets: Sequence[int]
        if function is not None:
            records = dicts_of(table)
            try:
                targets = self._partitioning.targets([*map(function, records)], count)
            except Exception as error:
                raise self._failed(error, records, function) from error
        else:
            check_present(self._key.columns, table.schema, self._label)
            columns = [table.column(name) for name in self._key.columns]
            try:
                targets = self._partitioning.column_targets(columns, count)
            except Exception as error:
                records = dicts_of(table.select(self._key.columns))
                raise self._failed(error, records, self._key_of) from error
        chosen = check_targets(targets, len(batch), count, self._label)
        return split(batch, np.array(chosen, np.min_scalar_type(count - 1)), count)

    def _failed(
        self, error: Exception, records: Sequence[Any], key_of: Callable[[Any], Any]
    ) -> Exception:
        """Names the first record that fails alone as well, if there is one."""
        label, culprit = f"{self._label}, partitioner,", self._culprit(records, key_of)
        missing = None if culprit is None else self._key.missing(culprit)
        if missing is not None:
            return UserCodeError(f"operator {label} failed on record {shown(culprit)}: {missing}")
        return user_error(label, error, culprit)

    def _culprit(self, records: Sequence[Any], key_of: Callable[[Any], Any]) -> Any:
        for record in records:
            try:
                self._partitioning.targets([key_of(record)], len(self._buffers))
            except Exception:
                return record
        return None
