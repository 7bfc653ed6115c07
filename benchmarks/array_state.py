"""What checkpoints of large state in arrays cost: `python -m benchmarks.array_state`.

One table of aggregates and a checkpoint storage on the local disk, without a job around them: this measures
what state adds to a checkpoint. Between two checkpoints a given share of the keys changes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import minirt as rt
from benchmarks.measure import milliseconds, print_rows
from minirt.kernels.choice import AUTO, choose_kernels
from minirt.protocol.manifest import ManifestKey, Reference, SnapshotRef
from minirt.state.array_table import ArrayTable
from minirt.state.sections import section_bytes
from minirt.storage.checkpoints import CheckpointStorage
from minirt.storage.store import ObjectStore

BATCH = 65_536
AGGREGATES = (rt.Sum("v"), rt.Count("n"))

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """How many keys change between two checkpoints, and whether these lie side by side or anywhere."""

    name: str
    share: float
    scattered: bool = True


CASES = (
    Case("all", 1.0),
    Case("20 %", 0.2),
    Case("1 %", 0.01),
    Case("1 %, side by side", 0.01, scattered=False),
    Case("none", 0.0),
)


def new_table() -> ArrayTable:
    return ArrayTable(("k",), AGGREGATES, "benchmark")


def update(table: ArrayTable, keys: Keys) -> None:
    """One record for each of these keys."""
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        table.add(pa.RecordBatch.from_pydict({"k": batch, "v": batch}), None)


def write(table: ArrayTable, storage: CheckpointStorage, number: int) -> tuple[SnapshotRef, float]:
    """A checkpoint; returns where it is, and how long its synchronous part took."""
    began = time.perf_counter()
    section = table.snapshot()
    sync_s = time.perf_counter() - began
    assert section is not None
    references = [Reference(path, ("table",)) for path in sorted(table.builds_on())]
    stored = {"table": section_bytes(section)}
    ref = storage.write_snapshot(number, 1, 0, 0, stored, references)
    assert ref.path is not None
    table.on_stored(ref.path)
    return ref, sync_s


def restore_s(storage: CheckpointStorage, ref: SnapshotRef, count: int) -> float:
    """How long a restore of the state takes, in seconds."""
    began = time.perf_counter()
    table = new_table()
    for _, sections in storage.read_state(ref, ManifestKey(1, 1)):
        table.restore(sections["table"], None, 128)
    assert len(table) == count
    return time.perf_counter() - began


def run(case: Case, count: int, rounds: int, folder: Path) -> dict[str, object]:
    storage = CheckpointStorage(ObjectStore(str(folder)), inline_bytes_max=0)
    random = np.random.default_rng(7)
    keys = random.permutation(count).astype(np.int64)
    table = new_table()
    update(table, keys)
    full, full_sync_s = write(table, storage, 1)
    updates_s, sync_s, whole_s, sizes, references = [], [], [], [], []
    changing = int(case.share * count)
    ref = full
    for number in range(2, rounds + 2):
        start = int(random.integers(0, count - changing + 1))
        chosen = (
            random.choice(count, changing, replace=False)
            if case.scattered
            else slice(start, start + changing)
        )
        began = time.perf_counter()
        update(table, keys[chosen])
        updates_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        ref, taken_s = write(table, storage, number)
        whole_s.append(time.perf_counter() - began)
        sync_s.append(taken_s)
        sizes.append(ref.bytes)
        references.append(len(ref.references))
    return {
        "case": f"array-state: {case.name} changed",
        "keys": count,
        "full_mb": round(full.bytes / 1e6, 1),
        "full_sync_ms": round(full_sync_s * 1000, 1),
        "written_share": round(float(np.median(sizes)) / full.bytes, 4),
        "sync_ms": milliseconds(sync_s),
        "snapshot_and_upload_ms": milliseconds(whole_s),
        "update_ns_per_record": (
            round(sum(updates_s) / (changing * rounds) * 1e9) if changing else None
        ),
        "builds_on_files_max": max(references),
        "restore_s": round(restore_s(storage, ref, count), 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=20, help="checkpoints of each case")
    parser.add_argument("--json", help="write the rows to this file, - for standard output")
    options = parser.parse_args(arguments)
    print(f"kernels: {choose_kernels(AUTO).name}", file=sys.stderr)
    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(run(case, options.keys, options.rounds, Path(folder)))
    print_rows(rows, options.json)


if __name__ == "__main__":
    main()
