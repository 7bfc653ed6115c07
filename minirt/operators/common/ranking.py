"""The order of records by columns: what a user says of it, and which records of a key come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from minirt.aggregates.basic import has_order
from minirt.data.batch import Columns
from minirt.data.column_keys import hash_columns
from minirt.data.simple_columns import simple, simple_type
from minirt.errors import ConfigurationError
from minirt.state.key_index import KeyIndex
from minirt.state.runs import Places, Times

Direction = Literal["descending", "ascending"]

_SLOT, _NUMBER = "\x1fslot", "\x1fnumber"

_SPARED_MIN = 4
"""A look at a batch is worth it if one in so many records need not be sent."""
_PAUSE_MAX = 63


def order_by(by: Any, label: str) -> tuple[tuple[str, Direction], ...]:
    """What a user says of the order: a column, of which the greatest value comes first, several, or
    columns with their directions. Raises ConfigurationError.
    """
    parts = [by] if isinstance(by, str) else by
    order: list[tuple[str, Any]] = []
    for part in parts if isinstance(parts, list | tuple) else (None,):
        column, direction = (part, "descending") if isinstance(part, str) else _pair(part)
        if not isinstance(column, str) or not column:
            raise ConfigurationError(
                f"{label}: by is a column, or a list of columns and of pairs such as ('at', 'ascending'), "
                f"not {by!r}"
            )
        order.append((column, direction))
    return tuple(order)


def _pair(part: Any) -> tuple[Any, Any]:
    is_pair = isinstance(part, list | tuple) and len(part) == 2
    return (part[0], part[1]) if is_pair else (None, None)


def check_order(column: str, type: pa.DataType, label: str) -> None:
    if not has_order(simple_type(type)) and not pa.types.is_null(type):
        raise ConfigurationError(
            f"{label}: column {column!r} is of type {type}, whose values have no order"
        )


@dataclass(frozen=True, slots=True)
class Ranked:
    """The records of the keys in a batch, held ones and new ones, in their order key by key."""

    order: Places
    """Places in the order in which they were given."""
    slots: npt.NDArray[np.intp]
    ranks: npt.NDArray[np.int64]
    """From 0 on."""


def in_ranks(
    slots: npt.NDArray[np.intp],
    by: Sequence[tuple[str, Direction]],
    columns: Mapping[str, pa.Array],
    numbers: Times,
) -> Ranked:
    """Records of keys in these slots, ranked by columns; of equal ones, the lowest number comes first."""
    order = pc.sort_indices(
        pa.table({_SLOT: slots, **columns, _NUMBER: numbers}),
        sort_keys=[(_SLOT, "ascending"), *by, (_NUMBER, "ascending")],
    ).to_numpy()
    order = order.astype(np.intp)
    slots = slots[order]
    begins = np.flatnonzero(np.r_[True, slots[1:] != slots[:-1]])
    counts = np.diff(np.r_[begins, len(slots)])
    return Ranked(order, slots, np.arange(len(slots)) - np.repeat(begins, counts))


class FirstOfBatch:
    """Leaves out what so many others of its key in the same batch are ahead of: no rank is left for it.

    Where that spares little, it lets more and more batches pass before it looks again.
    """

    def __init__(self, n: int, by: Sequence[tuple[str, Direction]], keys: Sequence[str]) -> None:
        self._n = n
        self._by = by
        self._keys = keys
        self._pause = self._passing = 0
        """How many batches pass before the next look, and how many of them have not come yet."""

    def __call__(self, batch: Columns) -> Columns:
        if self._passing:
            self._passing -= 1
            return batch
        kept = self._first(batch.table)
        spared = len(batch) - len(kept)
        if _SPARED_MIN * spared < len(batch):
            self._passing = self._pause = min(2 * self._pause + 1, _PAUSE_MAX)
        else:
            self._pause = 0
        return batch.take(kept) if spared else batch

    def _first(self, table: pa.RecordBatch) -> Places:
        names, everything = table.schema.names, np.arange(len(table))
        if not {column for column, _ in self._by} <= {*names}:
            return everything  # The operator refuses the batch.
        by = {column: simple(table.column(column)) for column, _ in self._by}
        if not all(has_order(array.type) for array in by.values()):
            return everything
        keys = [simple(table.column(name)) for name in self._keys]
        slots = KeyIndex([key.type for key in keys]).slots(keys, hash_columns(keys))
        found = in_ranks(slots.astype(np.intp), self._by, by, everything)
        return np.sort(found.order[found.ranks < self._n])
