"""Restores state in an order in which it was not kept: no result may depend on that order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from minirt.state import array_slots, runs, segments
from minirt.state.runs import Run, Runs
from minirt.state.sections import unpack_columns


def restore_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """Turn round what each file holds of state in arrays, and what runs are restored.

    Snapshots build on older ones, and runs are not merged, however little they hold.
    """
    patch.setattr(segments, "STRETCH_MIN", 2)
    patch.setattr(runs, "RUN_ROWS_MIN", 1)
    patch.setattr(array_slots, "unpack_columns", _from_behind)
    right = Runs.restored

    def restored(held: Runs, run: Run) -> None:
        right(held, run)
        held.runs.insert(0, held.runs.pop())

    patch.setattr(Runs, "restored", restored)


def _from_behind(kind: bytes, data: bytes) -> list[pa.RecordBatch]:
    return [
        batch.take(pa.array(range(len(batch))[::-1], pa.int64()))
        for batch in unpack_columns(kind, data)
    ]
