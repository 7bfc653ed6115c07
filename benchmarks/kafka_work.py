"""What every system is given to do with Kafka. Peers import it too: standard library only.

A system is a process that takes a `KafkaWork` as arguments, runs it to its end, and prints lines of JSON as
those of `benchmarks.workload` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.workload import Arguments

FIRST_ID = 1_000_000
USERS = 1000
PRICES = 9000
NOTE = "x" * 40
"""Makes the JSON of a record 100 bytes long, as long as its id has seven digits."""

RECORDS_MAX = 9 * FIRST_ID
PARTITIONS = 4
RUN = 1000
"""So many consecutive records are in one partition, then as many in the next one; all hold whole runs."""


@dataclass(frozen=True, slots=True)
class KafkaWork(Arguments):
    """One run. `work` is "source", which reads a topic; "sink", which writes one; or "both"."""

    work: str
    records: int
    bootstrap: str
    topic: str = ""
    results: str = ""
    parallelism: int = 2
    checkpoint_ms: int = 1000
    storage: str = ""
    """A folder for checkpoints, empty at first."""

    def share(self, part: int) -> range:
        """The ids that subtask `part` writes."""
        bounds = [FIRST_ID + self.records * n // self.parallelism for n in (part, part + 1)]
        return range(*bounds)


def record(id: int) -> dict[str, Any]:
    return {
        "id": id,
        "user": f"user-{id % USERS:06d}",
        "price": 1000.5 + id % PRICES,
        "note": NOTE,
    }


def value(id: int) -> bytes:
    """The JSON of a record, 100 bytes."""
    price = 1000 + id % PRICES
    return b'{"id":%d,"user":"user-%06d","price":%d.5,"note":"%s"}' % (
        id,
        id % USERS,
        price,
        NOTE.encode(),
    )


def id_of(value: bytes) -> int:
    """The id of a record, whatever blanks a system writes into its JSON."""
    return int(value[6 : value.index(b",")])


def expected_sum(records: int) -> int:
    """What the ids of so many records add up to."""
    return records * FIRST_ID + records * (records - 1) // 2
