"""Compares the log of a server with the one that a checkpoint has read.

A place in the log is a number, and a server that came back from a backup, or a standby that was behind,
gives the same numbers to other transactions. So a checkpoint holds the last transaction that was read. The
log must still hold it, and no other one between it and the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minirt_connectors.postgres.pgoutput import Begin


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """A transaction: where its commit is in the log, its number, and when it was committed."""

    lsn: int
    number: int
    at_ms: int

    @classmethod
    def of(cls, begin: Begin) -> LastTransaction:
        return cls(begin.commit_lsn, begin.transaction, begin.committed_ms)

    def __str__(self) -> str:
        lsn = f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"
        return f"transaction {self.number} at {lsn}, committed at {self.at_ms} ms"

    def to_plain(self) -> list[Any]:
        return [self.lsn, self.number, self.at_ms]


NONE_YET = LastTransaction(0, 0, 0)
"""Stands for the last transaction of a job that has read none."""


class LogComparison:
    """Looks at the transactions of a slot that has all from `confirmed` on, until one is behind `position`.

    `complain` is told what does not fit, at most once.
    """

    def __init__(
        self,
        last: LastTransaction,
        position: int,
        confirmed: int,
        complain: Callable[[str], None],
    ) -> None:
        self._last = last
        self._position = position
        self._complain = complain
        self._seen = last == NONE_YET or last.lsn < confirmed
        """Whether the last transaction was there, or the slot begins behind it."""
        self._over = False

    def begins(self, begin: Begin) -> None:
        """Look at the next transaction of the log."""
        found = LastTransaction.of(begin)
        if self._over or found.lsn < self._last.lsn or found == self._last:
            self._seen = self._seen or found == self._last
        elif found.lsn == self._last.lsn:
            self._wrong(f"the log has {found} in its place")
        elif not self._seen:
            self._wrong(f"the log does not hold that, but {found}")
        elif found.lsn < self._position:
            self._wrong(f"the log has {found} behind that, which nobody has read")
        else:
            self._over = True

    def ends(self, lsn: int) -> None:
        """The log has no more transactions that have committed before `lsn`."""
        if not self._over and not self._seen and lsn > self._last.lsn:
            self._wrong("the log of the server does not hold that")

    def _wrong(self, found: str) -> None:
        self._over = True
        self._complain(found)
