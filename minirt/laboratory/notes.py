"""What the sinks and sources of a run write down for it, each in a file of its own, while it runs.

A note survives the SIGKILL of its process, but for what was counted in the last `EVERY_S`. Times are
those of the machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minirt.monitoring.buckets import LAST, STEPS, UNIT_S

EVERY_S = 0.01
"""A writer notes what it got at most this often; the first batch at once."""


@dataclass(frozen=True, slots=True)
class Note:
    """The records that a writer has got until `at`, since it was opened."""

    at: float
    records: int
    latencies: Mapping[int, int]
    """Of the records since the last note: how many are in each bucket."""
    checkpoint: int | None
    """The checkpoint that holds all records until here, if the writer has just prepared it."""


@dataclass(frozen=True, slots=True)
class Track:
    """The notes of one writer or reader: `who` is a sink or a split, in one generation."""

    who: str
    generation: int
    notes: tuple[Note, ...]
    error: str = ""


class Notebook:
    """Writes the notes of one writer, in a process of its own."""

    def __init__(self, folder: str, who: str, generation: int) -> None:
        path = os.path.join(folder, f"{who}@{generation}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._records = 0
        self._latencies: dict[int, int] = {}
        self._due_at = 0.0

    def add(self, records: int, latencies: npt.NDArray[np.float64] | None = None) -> None:
        """Count these records; of their latencies, in seconds, there may be fewer."""
        self._records += records
        if latencies is not None:
            for bucket, count in buckets(latencies).items():
                self._latencies[bucket] = self._latencies.get(bucket, 0) + count
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + EVERY_S
            self._write({"t": now})

    def reach(self, records: int) -> None:
        """As `add`, up to a number."""
        self.add(records - self._records)

    def mark(self, checkpoint: int) -> None:
        """All records until here belong to this checkpoint."""
        self._write({"t": time.monotonic(), "c": checkpoint})

    def complain(self, error: str) -> None:
        self._write({"t": time.monotonic(), "e": error})

    def close(self) -> None:
        """Note what was counted last, and that no more will come."""
        self._write({"t": time.monotonic()})
        os.close(self._file)

    def _write(self, row: dict[str, Any]) -> None:
        row["n"] = self._records
        if self._latencies:
            row["h"] = self._latencies
            self._latencies = {}
        os.write(self._file, json.dumps(row).encode() + b"\n")


def read_tracks(folder: Path, kind: str) -> list[Track]:
    """What all writers of a kind, "sink" or "source", have noted."""
    tracks = []
    for path in sorted(folder.glob(f"{kind}-*@*.jsonl")):
        who, _, generation = path.stem.rpartition("@")
        rows = list(_rows(path))
        notes = tuple(
            Note(row["t"], row["n"], {int(k): v for k, v in row.get("h", {}).items()}, row.get("c"))
            for row in rows
        )
        error = next((row["e"] for row in rows if "e" in row), "")
        tracks.append(Track(who, int(generation), notes, error))
    return tracks


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The last line may be cut off: its writer was killed."""
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def buckets(latencies: npt.NDArray[np.float64]) -> dict[int, int]:
    """How many latencies, in seconds, are in each bucket: as `bucket_of` says of one, for many at once."""
    units = np.maximum(latencies / UNIT_S, 1.0)
    places = np.minimum(np.floor(np.log2(units) * STEPS), LAST).astype(np.int64)
    found, counts = np.unique(places, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
