"""A planted mistake: the connection of a ledger sink that misreads its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minirt.io.ledger import LedgerConnection, LedgerEntry, LedgerTransaction


class Bent(LedgerConnection):
    """The right one, but for what it finds in the ledger."""

    def __init__(self, right: LedgerConnection, bend: Callable[[LedgerEntry], LedgerEntry]) -> None:
        self.right, self.bend = right, bend

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        with self.right.transaction() as transaction:
            found = transaction.entry
            transaction.entry = lambda owner: (  # type: ignore[method-assign]
                None if (entry := found(owner)) is None else self.bend(entry)
            )
            yield transaction

    def close(self) -> None:
        self.right.close()
