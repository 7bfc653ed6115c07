"""A batch: the unit in which operators receive, process and emit records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(slots=True)
class Rows:
    """Records as Python objects; `timestamps`, if there are any, in milliseconds, one a record."""

    records: list[Any]
    timestamps: list[int] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def slice(self, start: int, stop: int) -> Rows:
        timestamps = None if self.timestamps is None else self.timestamps[start:stop]
        return Rows(self.records[start:stop], timestamps)

    def rows(self) -> Rows:
        return self


@dataclass(slots=True)
class Columns:
    """Records as an Arrow record batch; `timestamps` (int64, milliseconds) as in `Rows`."""

    table: pa.RecordBatch
    timestamps: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def slice(self, start: int, stop: int) -> Columns:
        timestamps = None if self.timestamps is None else self.timestamps[start:stop]
        return Columns(self.table.slice(start, stop - start), timestamps)

    def rows(self) -> Rows:
        """The same records as dicts, one a row."""
        timestamps = None if self.timestamps is None else self.timestamps.tolist()
        return Rows(self.table.to_pylist(), timestamps)


Batch = Rows | Columns


def concat_rows(batches: Sequence[Rows]) -> Rows:
    """One batch with the records of all, in order; either all or none carry timestamps."""
    if len(batches) == 1:
        return batches[0]
    records = [record for batch in batches for record in batch.records]
    if not batches or batches[0].timestamps is None:
        return Rows(records)
    return Rows(records, [time for batch in batches for time in batch.timestamps or ()])
