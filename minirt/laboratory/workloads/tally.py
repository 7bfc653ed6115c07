"""Checks sums where records do not come out one by one: each must be counted in exactly one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from minirt.data.batch import Batch, Columns
from minirt.io.base import Handle, Prepared, Sink, SinkContext, SinkWriter
from minirt.laboratory.measured import Verification
from minirt.laboratory.workload import Place
from minirt.laboratory.workloads.parts import ends_of_splits, ids_of_split

_SCATTER, _BELOW = 2654435761, 1 << 31
_AT_ONCE = 1 << 20


def check_number(id: Any) -> Any:
    """A number by which a record is known in a sum, of an id or of an array of ids; below 2 to the 31st."""
    return id * _SCATTER % _BELOW


class TallySink(Sink):
    """Adds up, in two phases, the columns `records` and `check`: a file a checkpoint and subtask."""

    def __init__(self, place: Place) -> None:
        self._folder = str(place.outputs)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _TallyWriter(self._folder, context)

    def commit(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            pending = Path(self._folder, handle["name"])
            if pending.exists():  # Else it was committed before.
                pending.rename(pending.with_suffix(".tally"))

    def redirected(self, folder: str) -> Sink:
        """Itself: it writes into the folder of its run."""
        return self


class _TallyWriter(SinkWriter):
    def __init__(self, folder: str, context: SinkContext) -> None:
        self._folder = folder
        self._name = f"{context.subtask}-{context.generation}"
        self._records = self._check = 0

    def write(self, batch: Batch) -> None:
        if isinstance(batch, Columns):
            for name in ("records", "check"):
                total = pc.sum(batch.table.column(name)).as_py() or 0
                setattr(self, f"_{name}", getattr(self, f"_{name}") + total)
            return
        for row in batch.records:
            self._records += row["records"]
            self._check += row["check"]

    def prepare(self, checkpoint_id: int) -> Prepared:
        if not self._records:
            return Prepared()
        sums = json.dumps([self._records, self._check])
        self._records = self._check = 0
        path = Path(self._folder, f"{self._name}-{checkpoint_id}.pending")
        return Prepared([{"name": path.name}], lambda: _store(path, sums))


def _store(path: Path, text: str) -> None:
    path.write_text(text)


def verify_tally(place: Place) -> Verification:
    """Whether each record that the sources gave out was counted, and in one result only."""
    ends = ends_of_splits(place)
    if ends is None:
        words = "the sources did not come to an end, so nobody knows what must be there"
        return Verification("not verified", words)
    checked = sum(_check_sum(ids_of_split(split, end)) for split, end in ends.items())
    return judge_tally(place, sum(ends.values()), checked)


def judge_tally(place: Place, expected: int, checked: int, of: str = "in windows") -> Verification:
    """Whether what was committed adds up to so many records, and to that check sum."""
    sums = [json.loads(path.read_text()) for path in sorted(place.outputs.glob("*.tally"))]
    records, check = sum(one[0] for one in sums), sum(one[1] for one in sums)
    missing, twice = max(0, expected - records), max(0, records - expected)
    passed = records == expected and check == checked
    words = f"{expected:,} records expected {of}, {records:,} were counted"
    if records == expected and not passed:
        words += ", but not these: their check sum is another"
    return Verification("passed" if passed else "failed", words, expected, missing, twice)


def _check_sum(ids: npt.NDArray[np.uint64]) -> int:
    parts = range(0, len(ids), _AT_ONCE)
    return sum(int(check_number(ids[at : at + _AT_ONCE]).sum()) for at in parts)
