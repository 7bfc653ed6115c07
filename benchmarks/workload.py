"""What every system is given to do, and what must come out. Peers import it too: standard library only.

A system is a process: it takes a `Work` as arguments, runs it, and prints lines of JSON. `announce` prints
one when a source makes its first record, `report` one at the end. Several processes of a system may do so;
what they count is added. What comes before the first record, such as the start of interpreters and JVMs and
planning, counts nowhere.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

SPREAD = 2654435761
"""Record number i has the key `i * SPREAD % keys`: consecutive records are scattered over the keys."""

RECORDS_PER_WINDOW = 1_000_000
WINDOW_MS = 1000
"""Event time of tumbling-count: each split begins at 0, and a million records of all make a second."""

JOIN_MS = 500
"""How far apart in event time the records of a pair of interval-join may be. A key comes again after more
than that."""

BUCKET_NS = 50_000
"""Latencies are counted in buckets of this width."""

WARM_UP_S = 2
"""Records that are made within so long have no part in the latencies: JVMs compile meanwhile."""

KEY_PREFIX = "user-"


@dataclass(frozen=True, slots=True)
class Arguments:
    """Texts and whole numbers that a system is given as arguments such as `records=1000`."""

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in asdict(self).items()]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Self:
        """From arguments; those that are not known are left out."""
        given = dict(argument.split("=", 1) for argument in arguments)
        kinds = {known.name: int if known.type == "int" else str for known in fields(cls)}
        return cls(**{name: kinds[name](text) for name, text in given.items() if name in kinds})


@dataclass(frozen=True, slots=True)
class Work(Arguments):
    """One run. `work` is a name that each system knows, or does not."""

    work: str
    records: int
    keys: int = 1000
    parallelism: int = 2
    checkpoint_ms: int = 1000
    """From one checkpoint to the next; 0 for none."""
    buffer_timeout_ms: int = 100
    """How long a record waits at most for its buffer to fill."""
    mode: str = "aligned"
    records_per_s: int = 0
    """The pace of the source, all splits together; 0 for as fast as it can."""
    storage: str = ""
    """A folder for checkpoints and files, empty at first."""


@dataclass(frozen=True, slots=True)
class Check:
    """Two numbers that show whether the results are right."""

    count: int
    checksum: int


def record_unit(work: str, keys: int) -> int:
    """The number of records must be a multiple of this one: then every key has equally many."""
    if work == "interval-join":
        return 4 * keys
    return RECORDS_PER_WINDOW if work == "tumbling-count" else 2 * keys


def last_total(work: Work) -> int:
    """What each key has counted in the end."""
    return work.records // work.keys


def expected(work: Work) -> Check:
    """What the sinks of a system count together if its results are right.

    Of running sums: the results that reach the last total of a key, and the sum of these keys. Of windows:
    the results, and the sum of (key + 1) x (number of the window + 1) x count. Of filter-project: the
    records, and the sum of the computed columns. Of keyed-pass: the records, and the sum of their numbers.
    Of interval-join: the pairs, and the sum of their keys.
    """
    if work.work == "tumbling-count":
        windows = work.records // RECORDS_PER_WINDOW
        return Check(
            windows * work.keys,
            RECORDS_PER_WINDOW // work.keys * _sum_to(work.keys) * _sum_to(windows),
        )
    if work.work == "interval-join":
        pairs = work.records // 2 * work.parallelism
        return Check(pairs, pairs // work.keys * _sum_to(work.keys - 1))
    if work.work == "filter-project":
        kept = work.records // 2
        return Check(kept, 8 * _sum_to(kept - 1) + 13 * kept)
    if work.work == "keyed-pass":
        return Check(work.records, _sum_to(work.records - 1))
    return Check(work.keys, _sum_to(work.keys - 1))


def _sum_to(number: int) -> int:
    return number * (number + 1) // 2


@dataclass(slots=True)
class Tally:
    """What one sink has seen."""

    count: int = 0
    checksum: int = 0
    latencies: dict[int, int] = field(default_factory=dict)
    """How many records had a latency of so many times `BUCKET_NS`."""

    def add(self, count: int, checksum: int) -> None:
        self.count += count
        self.checksum += checksum

    def add_latencies(self, buckets: Mapping[int, int]) -> None:
        for bucket, times in buckets.items():
            self.latencies[bucket] = self.latencies.get(bucket, 0) + times


def announce() -> None:
    """A source of this process makes its first record."""
    _print({"started_at": time.monotonic()})


def report(tally: Tally, ended_at: float, checkpoints: int = 0) -> None:
    """What the sinks of this process have seen, the last of it at `ended_at` (`time.monotonic()`)."""
    latencies = sorted(tally.latencies.items())
    line = {"ended_at": ended_at, "count": tally.count, "checksum": tally.checksum}
    _print({**line, "checkpoints": checkpoints, "latencies": latencies})


def _print(line: Mapping[str, Any]) -> None:
    """In one piece: other processes may print to the same pipe."""
    os.write(1, json.dumps(line).encode() + b"\n")
