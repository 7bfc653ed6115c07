"""`key_by`: records go to the subtask that owns the key group of their key, where its state is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minirt.data.batch import Columns, Rows, dicts_of
from minirt.data.keys import (
    KeyRouter,
    UnstableKeyError,
    check_key_type,
    check_keys,
    hash_columns,
    key_groups,
    key_hash,
    subtask_of_group,
)
from minirt.errors import UserCodeError
from minirt.graph.keys import KeySelector
from minirt.graph.partitioning import Partitioning, Wiring
from minirt.kernels.choice import kernels
from minirt.kernels.contract import Targets
from minirt.operators.common.base import shown
from minirt.operators.common.calling import Calling, result_of_each
from minirt.partitionings.common.dealing import (
    Dealer,
    DealingSite,
    ToOne,
    check_present,
    split,
)
from minirt.protocol.topology import InFlight, Order


@dataclass(frozen=True, slots=True)
class Hash(Partitioning):
    """By key group of the key."""

    name: ClassVar = "hash"
    wiring: ClassVar = Wiring.ALL_TO_ALL
    in_flight: ClassVar = InFlight.DEALT_AGAIN
    unchained: ClassVar = "records go to the subtask of their key"

    key: KeySelector

    def order(self, senders: int, receivers: int) -> Order:
        return Order.BY_KEY

    def identity(self, max_parallelism: int) -> object:
        return (self.key.columns, self.key.function, max_parallelism)

    def among(self, site: DealingSite) -> Dealer:
        return HashDealer(self.key, site)

    def to_one(self, site: DealingSite) -> Dealer:
        return HashToOne(self.key, site)

    @property
    def in_flight_described(self) -> str:
        return "each goes to the subtask of its key"


class _KeyChecks:
    """Refuses keys that have no hash which is the same everywhere, in rows and in columns."""

    def __init__(self, key: KeySelector, site: DealingSite) -> None:
        self.key = key
        self.key_of = key.on_rows()
        self._label = site.label
        self._max_parallelism = site.max_parallelism
        self._checked: pa.Schema | None = None

    def on_table(self, table: pa.RecordBatch) -> None:
        """Columns are refused by their type, a function by its first result."""
        if self.key.function is None:
            self.on_schema(table.schema)
        else:
            self.groups_by_function(self.key.function, table.slice(0, 1))

    def on_schema(self, schema: pa.Schema) -> None:
        if schema is self._checked or schema == self._checked:
            return
        check_present(self.key.columns, schema, self._label)
        for name in self.key.columns:
            problem = check_key_type(schema.field(name).type)
            if problem is not None:
                raise UserCodeError(
                    f"operator {self._label}: column {name!r}, key of the next operator: {problem}"
                )
        self._checked = schema

    def groups_by_function(
        self, key_of: Callable[[Any], Any], table: pa.RecordBatch
    ) -> npt.NDArray[np.int64]:
        label = f"{self._label}, key of the next operator,"
        records = dicts_of(table)
        with Calling(label):
            keys = result_of_each(key_of, records)
        try:
            return key_groups(keys, self._max_parallelism)
        except UnstableKeyError:
            with self.naming(records):
                raise

    def naming(self, records: Sequence[Any]) -> _Keying:
        """A block that asks for the keys of these records."""
        return _Keying(f"{self._label}, key of the next operator,", self.key, records)


class _Keying(Calling):
    """Names the first record whose key cannot be had, or is refused."""

    __slots__ = ("_key", "_records")

    def __init__(self, label: str, key: KeySelector, records: Sequence[Any]) -> None:
        super().__init__(label)
        self._key = key
        self._records = records

    def _named(self, error: BaseException) -> BaseException:
        key_of = self._key.on_rows()
        for record in self._records:
            self._record = record
            try:
                key_hash(key_of(record))
            except UnstableKeyError as unstable:
                return UserCodeError(
                    f"operator {self._label} failed on record {shown(record)}: {unstable}"
                )
            except BaseException as found:
                missing = self._key.missing(record)
                if missing is not None:
                    return UserCodeError(
                        f"operator {self._label} failed on record {shown(record)}: {missing}"
                    )
                return super()._named(found)
        self._record = None
        return super()._named(error)


class HashToOne(ToOne):
    """A key that could not be dealt to several is refused here too."""

    def __init__(self, key: KeySelector, site: DealingSite) -> None:
        super().__init__(site)
        self._checks = _KeyChecks(key, site)

    def rows(self, rows: Rows) -> None:
        with self._checks.naming(rows.records):
            check_keys(result_of_each(self._checks.key_of, rows.records))
        super().rows(rows)

    def check_columns(self, table: pa.RecordBatch) -> None:
        self._checks.on_table(table)


class HashDealer(Dealer):
    """Remembers of known keys where they go."""

    def __init__(self, key: KeySelector, site: DealingSite) -> None:
        buffers, groups, routes = site.buffers, site.max_parallelism, site.routes_max
        self._checks = _KeyChecks(key, site)
        self._key_of = key.on_rows()
        self._receivers = len(buffers)
        self._appends = KeyRouter([b.records.append for b in buffers], groups, routes)
        self._timed_appends = KeyRouter(
            [(b.records.append, b.timestamps.append) for b in buffers], groups, routes
        )
        owners = [subtask_of_group(group, len(buffers), groups) for group in range(groups)]
        # The smaller the type, the fewer passes it takes to sort by it.
        self._owners = np.array(owners, np.min_scalar_type(len(buffers) - 1))

    def rows(self, rows: Rows) -> None:
        """A known key costs a look-up; it finds what equals the key, so who keeps state looks at types."""
        records, key_of = rows.records, self._key_of
        with self._checks.naming(records):
            if rows.timestamps is None:
                appends = self._appends
                for record in records:
                    appends[key_of(record)](record)
                return
            timed = self._timed_appends
            for record, time in zip(records, rows.timestamps, strict=True):
                append, stamp = timed[key_of(record)]
                append(record)
                stamp(time)

    def columns(self, batch: Columns) -> Iterable[tuple[int, Columns]]:
        return split(batch, self._targets(batch.table), self._receivers)

    def check_columns(self, table: pa.RecordBatch) -> None:
        self._checks.on_table(table)

    def _targets(self, table: pa.RecordBatch) -> Targets:
        key = self._checks.key
        if key.function is not None:
            return self._owners[self._checks.groups_by_function(key.function, table)]
        self._checks.on_schema(table.schema)
        columns = [table.column(name) for name in key.columns]
        return kernels().targets(hash_columns(columns), self._owners)
