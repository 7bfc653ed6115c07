"""Columns on their way into a link: gathered until they make frames."""

from __future__ import annotations

from minirt.data.batch import Columns, concat_columns


class Gathered:
    """Batches of one schema, held until they are worth being dealt."""

    __slots__ = ("_batches", "bytes", "records", "since")

    def __init__(self) -> None:
        self._batches: list[Columns] = []
        self.bytes = 0
        self.records = 0
        self.since: float | None = None
        """When the oldest one came in; None while there is none."""

    def fits(self, batch: Columns) -> bool:
        """Whether the batch can follow in the same frame: same columns, and timestamps or none."""
        if not self._batches:
            return True
        last = self._batches[-1]
        timed = batch.timestamps is not None
        return timed is (last.timestamps is not None) and batch.table.schema.equals(
            last.table.schema, check_metadata=True
        )

    def add(self, batch: Columns, now: float) -> None:
        self._batches.append(batch)
        self.bytes += batch.table.nbytes
        self.records += len(batch)
        if self.since is None:
            self.since = now

    def take(self) -> list[Columns]:
        """All that is held, in order, as few batches as possible."""
        batches, self._batches = self._batches, []
        self.bytes, self.records, self.since = 0, 0, None
        return concat_columns(batches) if batches else []
