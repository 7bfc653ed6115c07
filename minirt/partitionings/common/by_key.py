"""Partitionings that deal each record by its key alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from minirt.data.batch import Columns, Rows, dicts_of
from minirt.data.simple_columns import in_microseconds
from minirt.errors import MinirtError, UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.partitioning import Partitioning, Wiring
from minirt.operators.common.base import shown
from minirt.operators.common.calling import (
    Calling,
    ends_program,
    passed_foreign_code,
    result_of_each,
)
from minirt.operators.common.checks import check_column
from minirt.operators.common.functions import check_function, check_stable
from minirt.partitionings.common.dealing import (
    Dealer,
    DealingSite,
    check_present,
    check_targets,
    scatter,
    split,
)
from minirt.protocol.topology import InFlight, Order

PARTS_KEYS = (
    "so equal keys would part ways; compute the index from the key itself, or say that the partitioning "
    "is not pure, pure=False"
)
"""What comes of a partitioner that asks for what is another value elsewhere."""


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
            check_function(self.key.function, label, "the record", returns="the key")
            if self.pure:
                check_stable(self.key.function, label, PARTS_KEYS)
        if self.pure:
            check_stable(self.targets, label, PARTS_KEYS)
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
        with _Dealing(self, records, self._key_of):
            targets = self._partitioning.targets(result_of_each(self._key_of, records), count)
            chosen = check_targets(targets, len(records), count, self._label)
        scatter(rows, chosen, self._buffers)

    def columns(self, batch: Columns) -> Iterable[tuple[int, Columns]]:
        count, table, function = len(self._buffers), batch.table, self._key.function
        targets: Sequence[int]
        if function is not None:
            records = dicts_of(table)
            with _Dealing(self, records, function):
                targets = self._partitioning.targets(result_of_each(function, records), count)
                chosen = check_targets(targets, len(batch), count, self._label)
        else:
            check_present(self._key.columns, table.schema, self._label)
            columns = [table.column(name) for name in self._key.columns]
            with _Dealing(self, table, self._key_of):
                targets = self._partitioning.column_targets(columns, count)
                chosen = check_targets(targets, len(batch), count, self._label)
        return split(batch, np.array(chosen, np.min_scalar_type(count - 1)), count)

    def missing(self, culprit: Any) -> str | None:
        """What the key lacks in a record."""
        return None if culprit is None else self._key.missing(culprit)

    @property
    def label(self) -> str:
        """What failed, for messages."""
        return f"{self._label}, partitioner,"

    def culprit(self, records: Sequence[Any] | pa.RecordBatch, key_of: Callable[[Any], Any]) -> Any:
        """The first record that fails alone as well, if there is one."""
        if isinstance(records, pa.RecordBatch):
            records = dicts_of(records.select(self._key.columns))
        for record in records:
            try:
                [*self._partitioning.targets([key_of(record)], len(self._buffers))]
            except BaseException as error:
                if ends_program(error):
                    raise
                return record
        return None


class _Dealing(Calling):
    """A block that asks a partitioner for the receivers of records."""

    __slots__ = ("_dealer", "_key_of", "_records")

    def __init__(
        self,
        dealer: KeyDealer,
        records: Sequence[Any] | pa.RecordBatch,
        key_of: Callable[[Any], Any],
    ) -> None:
        super().__init__(dealer.label)
        self._dealer, self._records, self._key_of = dealer, records, key_of

    def _named(self, error: BaseException) -> BaseException:
        if isinstance(error, MinirtError) and not passed_foreign_code(error):
            return error
        self._record = culprit = self._dealer.culprit(self._records, self._key_of)
        missing = self._dealer.missing(culprit)
        if missing is None:
            return super()._named(error)
        return UserCodeError(f"operator {self._label} failed on record {shown(culprit)}: {missing}")
