"""How far a partition is, compared with how far a checkpoint has read it.

An offset alone does not tell whether the log is still the one that was read: after an unclean leader
election, or from a backup, a partition goes back, and other records take its offsets. So a checkpoint holds
the last record that was read: its offset, its time and a digest. A reader that goes on begins with this
record, compares it, and leaves it out.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from minirt.io.remembered import behind

_SHORTER_FOR_S = 3.0
"""For how long a partition must end before the offset: a new leader may not know its end at once."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A record of a partition, as a checkpoint remembers it. `at_ms` is its time in Kafka, -1 without."""

    offset: int
    at_ms: int
    digest: str

    @classmethod
    def of(cls, message: Any) -> LastRecord:
        parts = (message.key(), message.value())
        data = b"".join(b"-" if part is None else b"%d:%b" % (len(part), part) for part in parts)
        digest = blake2b(data, digest_size=8).hexdigest()
        return cls(message.offset(), message.timestamp()[1], digest)

    def to_plain(self) -> list[Any]:
        return [self.offset, self.at_ms, self.digest]


class PartitionProgress:
    """Whether one partition is still as far as it was read. Used by one thread.

    `who` and `place` name the source and the partition in messages. `next` is the offset to go on at.
    """

    def __init__(
        self, who: str, place: str, next: int, last: LastRecord | None, accept: Collection[str]
    ) -> None:
        self._who = who
        self._place = place
        self._accept = accept
        self._shorter_since: float | None = None
        self.next = next
        self.last = last
        """The last record that was read, if it is known."""
        self._compares = False

    def begin(self, low: int, high: int) -> int | None:
        """Give the offset to fetch from, in a partition from `low` to `high`; None if nobody can tell yet.

        Raises SourceChangedError if the partition ends before the offset to go on at.
        """
        if high < self.next:
            now = time.monotonic()
            self._shorter_since = self._shorter_since or now
            if now - self._shorter_since < _SHORTER_FOR_S:
                return None
            self._went_back(f"{self._place} ends at offset {high}")
            self.next, self.last = high, None
        self._compares = self.last is not None and low <= self.last.offset < self.next
        return self.last.offset if self._compares and self.last is not None else self.next

    def new(self, messages: list[Any]) -> list[Any]:
        """Give the messages that were not read before.

        Raises SourceChangedError if the last one that was read is another one now.
        """
        if self._compares and messages:
            self._compares = False
            first, last = messages[0], self.last
            if last is not None and first.offset() < self.next and LastRecord.of(first) != last:
                found = f"{self._place} has another record at offset {first.offset()} now"
                self._went_back(found)
            messages = [one for one in messages if one.offset() >= self.next]
        if messages:
            self.last = LastRecord.of(messages[-1])
            self.next = messages[-1].offset() + 1
        return messages

    def _went_back(self, found: str) -> None:
        kept = f"offset {self.next} of {self._place}"
        if self.last is not None:
            kept += f", behind the record at {self.last.offset} of {self.last.at_ms} ms"
        way_on = "reading goes on at that offset, or at the end where the partition is shorter"
        behind(self._who, kept, found, way_on, self._accept)
